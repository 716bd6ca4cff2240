"""What is deleted when a directory was moved into a version: ``publish(..., how="move")``.

What lives here: which files those are. What does not: publishing. The job's own process deletes them, with its own
rights, when the daemon of this host holds the version whole and durably: a file that is in the version and that nobody
has touched since before it was hashed. Rejected: renaming files into the store, because the one who owns a file may
write to it afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

Seen: TypeAlias = "Mapping[str, tuple[int, int, int, int]]"
"""Files by their paths below a directory, as ``seen_files`` has found them."""


def seen_files(source: Path) -> Seen:
    """Every plain file below the directory ``source``, or the file that it is. Links are not followed."""
    root = _root(source)
    return {str(path.relative_to(root)): found for path in _files(source) if (found := _identity(path))}


def delete_moved(source: Path, seen: Seen, version: Path) -> None:
    """Delete what ``version``, the directory of the published one, has and what is as it was ``seen``; then directories
    below ``source`` that are empty, and itself. What cannot be deleted stays."""
    root = _root(source)
    for path in _files(version):
        name = str(path.relative_to(version))
        if name in seen and _identity(root / name) == seen[name]:
            with suppress(OSError):
                (root / name).unlink()
    for place, _, _ in os.walk(source, topdown=False):
        with suppress(OSError):  # not empty
            os.rmdir(place)


def _root(source: Path) -> Path:
    """What the paths of a version are relative to."""
    return source if source.is_dir() else source.parent


def _files(source: Path) -> Iterator[Path]:
    if not source.is_dir():
        yield source
    for place, _, names in os.walk(source):
        for name in names:
            yield Path(place, name)


def _identity(path: Path) -> tuple[int, int, int, int] | None:
    with suppress(OSError):
        found = path.lstat()
        if path.is_file() and not path.is_symlink():
            return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
    return None
