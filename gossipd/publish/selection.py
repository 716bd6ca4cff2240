"""Which files of a tree belong to the model: ``--include`` and ``--exclude``.

Patterns are matched against the whole relative path, and ``*`` matches ``/`` too, as in huggingface_hub's
``allow_patterns``: ``*.safetensors`` finds shards at any depth. A pattern that ends in ``/`` means everything below
that directory. With no ``include`` everything is in; ``exclude`` has the last word. Case counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Selection:
    """Patterns in, patterns out."""

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
