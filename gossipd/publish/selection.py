"""Which files of a tree belong to the model: ``--include`` and ``--exclude``, and the usual rubbish.

A pattern matches the whole relative path, and ``*`` matches ``/`` too, as in huggingface_hub's ``allow_patterns``:
``*.safetensors`` finds shards at any depth. A pattern with a final ``/`` means everything below that directory. Without
``include`` everything is in; ``exclude`` wins. Case counts.

The default patterns name what tools leave beside a model. They match at any depth, and are counted when they decide, so
that nothing is left out unseen. Credentials are not among them: a person should know that they are there
(``inspection``).
"""

from __future__ import annotations

import re
from collections import Counter
from fnmatch import fnmatchcase
from functools import lru_cache

from msgspec import Struct

from gossipd.core.errors import UsageError

UNFINISHED_EXCLUDES = (
    "*.incomplete", "*.aria2", "*.part", "*.partial", "*.crdownload", "*.filepart", ".rsync-partial/", "*.part.minio",
    "*.gstmp", "*.download", "*-partial", "*.!qB", "*.lftp-pget-status", ".azDownload-*", ".syncthing.*.tmp",
    "._____temp/", "*.tmp", "*.temp", "*.tmp/", "tmp-checkpoint-*/", "_temporary/", "*.opdownload", "*.crswap", "*.!ut",
    "*.bc!", "*.xltd", "*.dtapart", "*.aria2__temp", ".com.google.Chrome.*",
)  # fmt: skip
"""What downloads and savers call a file, or a directory, until it is whole."""
DEFAULT_EXCLUDES = (
    *UNFINISHED_EXCLUDES,
    ".git", ".git/", ".svn/", ".hg/", ".bzr/", ".jj/", "CVS/", "_darcs/", ".pijul/", ".dvc/",  # version control
    ".cache/huggingface/", ".huggingface/", ".locks/", ".no_exist/", ".~tmp~/", "wget-log*", ".wget-hsts", ".msc",
    ".mdl", ".mv", "_SUCCESS", ".*.crc", "*_$folder$",  # what downloads and Hadoop's file systems keep
    ".nfs*", ".fuse_hidden*", "lost+found/", ".snapshot/", ".zfs/", "@eaDir/", "#recycle/", "#snapshot/", ".Trash/",
    ".Trash-*/", ".trash/", ".recycle/", ".@__thumb/", ".snapshots/", ".glusterfs/", ".minio.sys/", ".directory",
    ".goutputstream-*", ".stfolder/", ".stversions/", ".dropbox", ".dropbox.cache/",  # file systems, desktops
    "__MACOSX/", ".DS_Store", "._*", ".AppleDouble/", ".Spotlight-V100/", ".Trashes/", ".fseventsd/", ".localized",
    ".apdisk", ".TemporaryItems/", ".DocumentRevisions-V100/", ".VolumeIcon.icns",  # macOS
    "Thumbs.db", "ehthumbs.db", "desktop.ini", "$RECYCLE.BIN/", "System Volume Information/", "*:Zone.Identifier",
    "__pycache__/", "*.pyc", "*.pyo", ".ipynb_checkpoints/", "*.swp", "*.swo", "*.swn", "*~", ".#*", ".~lock.*",
    ".idea/", ".vscode/", ".vs/", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/", ".venv/", ".tox/", ".nox/",
    ".coverage", "node_modules/", "nohup.out", "slurm-*.out",  # editors, interpreters, jobs
)  # fmt: skip
PATTERNS_MAX = 100  # that a job may give
_TYPED_MAX = 60  # characters of a path in a pattern that a message proposes


class Selection(Struct, frozen=True):
    """Patterns of included and excluded files. ``defaults``: names of files, and of directories with a final ``/``,
    that are left out at any depth; only ``*`` means more than itself there."""

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
        if not self.defaults or not _any_of(self.defaults).search(f"/{path}"):
            return True
        if left_out is not None:
            decided = next(pattern for pattern in self.defaults if _any_of((pattern,)).search(f"/{path}"))
            left_out[decided] += 1
        return False

    def leaves_out_below(self, directory: str) -> bool:
        """Whether everything below this directory is left out by a pattern of directories."""
        below = f"{directory}/"
        if any(pattern.endswith("/") and _matches(below, pattern) for pattern in self.exclude):
            return True
        names = tuple(name for name in self.defaults if name.endswith("/"))
        return bool(names) and _any_of(names).search(f"/{below}") is not None


EVERYTHING = Selection()


def selection_without(exclude: str) -> Selection:
    """What a job publishes: all but what tools leave, and but the files that these patterns match, one a line. Raises
    UsageError: too many, or one that matches no relative path."""
    patterns = tuple(exclude.split("\n")) if exclude else ()
    if len(patterns) > PATTERNS_MAX:
        raise UsageError(f"exclude has {len(patterns)} patterns, at most {PATTERNS_MAX}")
    for pattern in patterns:
        if not pattern or pattern.startswith(("/", "./")):
            raise UsageError(f"exclude has {pattern[:40]!r}, which matches no file: paths begin below the directory")
    return Selection(exclude=patterns, defaults=DEFAULT_EXCLUDES)


def pattern_for(path: str) -> str:
    """A pattern that matches this path, and that a shell takes in single quotes as it is printed."""
    return "".join(map(_typed, path[:_TYPED_MAX])) + "*" * (len(path) > _TYPED_MAX)


def _typed(character: str) -> str:
    if character in "*?[":
        return f"[{character}]"
    if not " " <= character <= "~":
        return "[! -~]"
    return "?" if character in "\\'\"" else character


def _matches(path: str, pattern: str) -> bool:
    return fnmatchcase(path, pattern + "*" if pattern.endswith("/") else pattern)


@lru_cache(maxsize=64)
def _any_of(names: tuple[str, ...]) -> re.Pattern[str]:
    """One expression for all: a tree may have 100,000 files. It looks at a path that begins with ``/``."""
    return re.compile("|".join(map(_expression, names)))


def _expression(name: str) -> str:
    parts = re.split(r"(\*)", name)
    return "/" + "".join("[^/]*" if part == "*" else re.escape(part) for part in parts) + r"\Z" * (name[-1] != "/")
