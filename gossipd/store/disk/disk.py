"""The port between the store and a file system: every call the store makes, so that each can be made to fail.

What lives here: the protocol and the two loops that finish what one call leaves undone. What does not: the real
body (``durable``) and the one in memory that forgets what was not synced (``tests/gossipd/store/memory_disk.py``).

Paths are relative to the store's directory, ``/`` between components, and come from ``layout`` only. Errors are
``OSError`` with the kernel's number; ``condition`` gives them their names. All methods are thread-safe.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class FileKind(Enum):
    """What a path names, without following it."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes of the file system: what we may still take, and its size."""

    free_bytes: int
    total_bytes: int


class Disk(Protocol):
    """One directory and everything beneath it."""

    def open(self, path: str, *, write: bool = False, create: bool = False, mode: int = 0o644) -> int:
        """A descriptor; a symbolic link anywhere on the way is ELOOP. ``create`` takes an existing file too."""

    def close(self, descriptor: int) -> None: ...

    def lock(self, path: str) -> int:
        """Opens and locks; the lock lasts until ``close``. Raises BlockingIOError when another process has it."""

    def write_some(self, descriptor: int, data: memoryview, offset: int) -> int:
        """May write less than it was given."""

    def read_some(self, descriptor: int, into: memoryview, offset: int, *, passing: bool = False) -> int:
        """May read less; zero at the end. ``passing``: do not keep in the page cache what was not there."""

    def copy_some(self, source: int, source_offset: int, target: int, target_offset: int, length: int) -> int:
        """Bytes copied inside the kernel, possibly fewer; shared blocks where the file system can."""

    def allocate(self, descriptor: int, length: int) -> bool:
        """Reserve blocks and set the size, writing nothing; False where the file system cannot."""

    def truncate(self, descriptor: int, length: int) -> None: ...

    def set_mode(self, descriptor: int, mode: int) -> None: ...

    def size(self, descriptor: int) -> int: ...

    def allocated(self, descriptor: int) -> int:
        """Bytes of blocks that the file has already."""

    def has_data(self, descriptor: int, offset: int) -> bool:
        """False when ``offset`` is known to be in a hole that was never written."""

    def is_unwritten(self, descriptor: int) -> bool:
        """Nothing was ever written to the file, whatever its size; False where the file system cannot tell."""

    def forget(self, descriptor: int, offset: int, length: int) -> None:
        """Drop clean pages, so that the next read comes from the device. Best effort, never fails."""

    def start_write_back(self, descriptor: int) -> None:
        """Have what was written go to the device from now on. Promises nothing, never fails."""

    def sync_data(self, descriptor: int) -> None:
        """The file's bytes and size survive a power cut."""

    def sync_file(self, descriptor: int) -> None:
        """Its mode too."""

    def sync_everything(self) -> None:
        """All files of the file system, ours or not: cheaper than thousands of syncs of small files."""

    def sync_directory(self, path: str) -> None:
        """The names in it survive a power cut."""

    def rename(self, source: str, target: str, *, replace: bool = False) -> None:
        """Raises FileExistsError when ``target`` exists and ``replace`` is not set."""

    def make_link(self, text: str, path: str) -> None: ...

    def read_link(self, path: str) -> str: ...

    def make_directory(self, path: str) -> None:
        """One directory; an existing one is left as it is."""

    def remove_file(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None: ...

    def names(self, path: str) -> list[str]:
        """What a directory contains; the order means nothing."""

    def kind(self, path: str) -> FileKind | None:
        """None when there is nothing."""

    def space(self) -> Space: ...

    def memory_file(self) -> int:
        """A nameless file that is never on the disk, for chunks of many small pieces."""


def write_all(disk: Disk, descriptor: int, data: memoryview, offset: int) -> None:
    """Write every byte: a short write is finished, one that makes no progress is EIO."""
    while len(data):
        written = disk.write_some(descriptor, data, offset)
        if written <= 0:
            raise OSError(errno.EIO, "write made no progress")
        offset += written
        data = data[written:]


def read_all(disk: Disk, descriptor: int, into: memoryview, offset: int, *, passing: bool = False) -> bool:
    """Fill ``into``; False when the file ends before."""
    while len(into):
        found = disk.read_some(descriptor, into, offset, passing=passing)
        if found <= 0:
            return False
        offset += found
        into = into[found:]
    return True


def read_file(disk: Disk, path: str, *, bytes_max: int) -> bytes:
    """A whole small file. Raises OSError, EFBIG when it is larger than ``bytes_max``."""
    descriptor = disk.open(path)
    try:
        size = disk.size(descriptor)
        if size > bytes_max:
            raise OSError(errno.EFBIG, f"{path} has {size} bytes, at most {bytes_max}")
        body = bytearray(size)
        whole = read_all(disk, descriptor, memoryview(body), 0)
    finally:
        disk.close(descriptor)
    if not whole:
        raise OSError(errno.EIO, f"{path} became shorter while it was read")
    return bytes(body)


def write_new_file(disk: Disk, path: str, body: bytes, *, mode: int = 0o644) -> None:
    """Put ``body`` at ``path`` so that a crash leaves the old file or the new one, whole, and never a mixture."""
    unfinished = path + ".part"
    descriptor = disk.open(unfinished, write=True, create=True, mode=mode)
    try:
        disk.truncate(descriptor, 0)
        write_all(disk, descriptor, memoryview(body), 0)
        disk.sync_data(descriptor)
    finally:
        disk.close(descriptor)
    disk.rename(unfinished, path, replace=True)
    disk.sync_directory(parent(path))


def parent(path: str) -> str:
    """The directory of a path; ``""`` is the store's own."""
    return path.rpartition("/")[0]
