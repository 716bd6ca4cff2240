"""The files in ``accepted/`` and ``rejected/``: their names, and how many of them stay.

What lives here: a free name for one more, and which files are deleted for it. What does not: moving a file there
(``drop_folder``).

Only what a drop leaves is deleted: files that are no larger than a manifest, under names that a drop can have, each
with its ``.reason``. Directories and larger files, which somebody has dropped by mistake, stay. All files are looked at
once, and again when a tenth of what may stay has come: a look at each drop would cost a thousand system calls.

Rejected: a list of what was moved there, which a restored or copied inbox would not have.
"""

from __future__ import annotations

import contextlib
import os
import stat

from msgspec import Struct

REASON_SUFFIX = ".reason"
UNFINISHED_REASON_SUFFIX = ".tmp"
UNFINISHED_SUFFIXES = (
    "~", ".part", ".partial", ".tmp", ".temp", ".swp", ".crdownload", ".filepart", REASON_SUFFIX,
)  # fmt: skip
FILES_MAX, BYTES_MAX = 1_000, 1 << 30
_NUMBER_BITS = 30  # more names than a directory can hold
# The limit of limits.h, less the number, ".reason" and ".tmp", all of which may be added.
_NAME_BYTES_MAX = 255 - len(f".{2**_NUMBER_BITS}{REASON_SUFFIX}{UNFINISHED_REASON_SUFFIX}")


def free_name(folder: int, name: str) -> str:
    """``name``, cut where its reason would not fit beside it, with a number where it is taken. With a thousand numbers
    taken some twenty are tried: powers of two up to a free one, then halves of what lies between.
    """
    while len(os.fsencode(name)) > _NAME_BYTES_MAX:
        name = name[:-1]  # whole characters
    if not _is_taken(folder, name):
        return name
    taken, free = 0, 1
    while _is_taken(folder, f"{name}.{free}") and free < 2**_NUMBER_BITS:
        taken, free = free, free * 2
    while free - taken > 1:
        middle = (taken + free) // 2
        if _is_taken(folder, f"{name}.{middle}"):
            taken = middle
        else:
            free = middle
    return f"{name}.{free}"


def _is_taken(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


class SettledFiles:
    """How many files stay in one of the folders. Belongs to one thread at a time."""

    def __init__(self, *, file_bytes_max: int, files_max: int = FILES_MAX, bytes_max: int = BYTES_MAX) -> None:
        """``file_bytes_max``: a larger file is no manifest, and stays."""
        self._file_bytes_max, self._files_max, self._bytes_max = file_bytes_max, files_max, bytes_max
        self._files_left, self._bytes_left = 0, 0

    def make_room(self, folder: int, size: int) -> int:
        """Delete the oldest for one more of ``size`` bytes, if need be. Returns how many were deleted. What cannot be
        deleted stays. Raises OSError when the folder cannot be listed.
        """
        counted = size if size <= self._file_bytes_max else 0
        self._files_left, self._bytes_left = self._files_left - 1, self._bytes_left - counted
        if self._files_left >= 0 and self._bytes_left >= 0:
            return 0
        spare_files, spare_bytes = max(1, self._files_max // 10), max(counted, self._bytes_max // 10)
        files_max, bytes_max = self._files_max - spare_files, self._bytes_max - spare_bytes
        found = _settled(folder, self._file_bytes_max)
        files, whole_bytes, deleted = len(found), sum(one.size for one in found), 0
        if files < self._files_max and whole_bytes + counted <= self._bytes_max:
            self._files_left, self._bytes_left = self._files_max - files - 1, self._bytes_max - whole_bytes - counted
            return 0
        for one in found:
            if files <= files_max and whole_bytes <= bytes_max:
                break
            for name in one.names:
                with contextlib.suppress(OSError):  # gone, or not to be deleted: it must not hold up a drop
                    os.unlink(name, dir_fd=folder)
            files, whole_bytes, deleted = files - 1, whole_bytes - one.size, deleted + 1
        self._files_left = max(self._files_max - files, spare_files) - 1
        self._bytes_left = max(self._bytes_max - whole_bytes, spare_bytes) - counted
        return deleted


class _Settled(Struct):
    """One drop of earlier: its file and its reason, or one of them."""

    names: list[str]
    size: int
    changed_ns: int  # when it was moved there: what it was written at, its writer may have set


def _settled(folder: int, file_bytes_max: int) -> list[_Settled]:
    """The oldest first."""
    found: dict[str, _Settled] = {}
    left_alone = set()
    with os.scandir(folder) as entries:
        for entry in entries:
            drop = entry.name.removesuffix(REASON_SUFFIX + UNFINISHED_REASON_SUFFIX).removesuffix(REASON_SUFFIX)
            if drop.startswith(".") or drop.endswith(UNFINISHED_SUFFIXES):
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISDIR(status.st_mode) or status.st_size > file_bytes_max:
                left_alone.add(drop)
                continue
            one = found.setdefault(drop, _Settled([], 0, 0))
            one.names.append(entry.name)
            one.size += status.st_size
            one.changed_ns = max(one.changed_ns, status.st_ctime_ns)
    kept = [one for drop, one in found.items() if drop not in left_alone]
    return sorted(kept, key=lambda one: (one.changed_ns, one.names))
