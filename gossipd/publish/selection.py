"""Which files of a tree belong to the model: ``--include`` and ``--exclude``.

A pattern matches the whole relative path, and ``*`` matches ``/`` too, as in huggingface_hub's ``allow_patterns``:
``*.safetensors`` finds shards at any depth. A pattern with a final ``/`` means everything below that directory. Without
``include`` everything is in; ``exclude`` wins. Case counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Selection:
    """Patterns of included and excluded files."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def admits(self, path: str) -> bool:
        """Whether the file at this relative path is part of the model."""
        if self.include and not any(_matches(path, pattern) for pattern in self.include):
            return False
        return not any(_matches(path, pattern) for pattern in self.exclude)


EVERYTHING = Selection()


def _matches(path: str, pattern: str) -> bool:
    return fnmatchcase(path, pattern + "*" if pattern.endswith("/") else pattern)
