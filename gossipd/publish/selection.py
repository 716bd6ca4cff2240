"""Which files of a tree belong to the model: ``--include`` and ``--exclude``, and the usual rubbish.

A pattern matches the whole relative path, and ``*`` matches ``/`` too, as in huggingface_hub's ``allow_patterns``:
``*.safetensors`` finds shards at any depth. A pattern with a final ``/`` means everything below that directory. Without
``include`` everything is in; ``exclude`` wins. Case counts.

The default patterns name what tools leave beside a model. They match at any depth, and are counted when they decide, so
that nothing is left out unseen. Credentials are not among them: a person should know that they are there
(``inspection``).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase

DEFAULT_EXCLUDES = (
    ".git/", ".svn/", ".hg/",  # version control
    ".cache/huggingface/", ".huggingface/", ".locks/", "*.incomplete",  # hf download
    "*.aria2", "*.part", "*.partial", "*.crdownload", "*.filepart", ".rsync-partial/", ".~tmp~/",  # other downloads
    ".nfs*", ".fuse_hidden*", "lost+found/",  # file systems
    "__MACOSX/", ".DS_Store", "._*", ".AppleDouble/", ".Spotlight-V100/", ".Trashes/", ".fseventsd/",  # macOS
    "Thumbs.db", "desktop.ini", "$RECYCLE.BIN/",  # Windows
    "__pycache__/", "*.pyc", ".ipynb_checkpoints/", "*.swp", "*~",  # editors and interpreters
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Selection:
    """Patterns of included and excluded files. ``defaults``: names of files, and of directories with a
    final ``/``, that are left out at any depth."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()

    def admits(self, path: str, left_out: Counter[str] | None = None) -> bool:
        """Whether the file at this relative path is part of the model. ``left_out``: counts what a default pattern
        alone leaves out, by pattern."""
        if self.include and not any(_matches(path, pattern) for pattern in self.include):
            return False
        if any(_matches(path, pattern) for pattern in self.exclude):
            return False
        decided = next((pattern for pattern in self.defaults if _matches_deep(path, pattern)), None)
        if decided is not None and left_out is not None:
            left_out[decided] += 1
        return decided is None


EVERYTHING = Selection()


def _matches(path: str, pattern: str) -> bool:
    return fnmatchcase(path, pattern + "*" if pattern.endswith("/") else pattern)


def _matches_deep(path: str, pattern: str) -> bool:
    if pattern.endswith("/"):
        return f"/{pattern}" in f"/{path}"
    return fnmatchcase(path.rpartition("/")[2], pattern)
