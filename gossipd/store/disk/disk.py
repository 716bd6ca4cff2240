"""The port between the store and a file system: every call of the store, so that tests can make each one fail.

What lives here: the protocol, and loops that complete short reads and writes. What does not: the real disk
(``posix_disk``) and the one in memory that loses unsynced writes (``tests/gossipd/store/memory_disk.py``).

Paths are relative to the store's directory, with ``/`` between components, and come from ``layout`` only. Errors are
``OSError`` with the kernel's number; ``condition`` names them. All methods are thread-safe.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Protocol

from msgspec import Struct

_ASIDES_MOST = 100  # names to try


class FileKind(Enum):
    """The kind of a path; symbolic links are not followed."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "other"


class NotAFileError(OSError):
    """A directory, pipe, socket or device stands where a file belongs. Fault: the user who put it there. State:
    unchanged; nothing was read from it or written to it. ``filename``: where; ``strerror``: what."""


class Space(Struct, frozen=True):
    """Bytes of the file system: what we may still take, and its size. ``free_files``: how many more it can hold, None
    where it does not count them."""

    free_bytes: int
    total_bytes: int
    free_files: int | None = None


class Disk(Protocol):
    """One directory and everything beneath it."""

    def open(self, path: str, *, write: bool = False, create: bool = False, mode: int = 0o644) -> int:
        """Open a file, without waiting. A symbolic link anywhere in the path is ELOOP. ``create`` accepts an existing
        file. Raises NotAFileError for what is none."""

    def close(self, descriptor: int) -> None: ...

    def lock(self, path: str) -> int:
        """Open and lock a file until ``close``. Raises BlockingIOError when another process holds the lock."""

    def lock_directory(self, path: str) -> int | None:
        """Lock a directory against those who hold it until ``close``; None while somebody holds it."""

    def is_open_elsewhere(self, descriptor: int) -> bool:
        """Whether the file is open, or mapped, by another descriptor of any process; True where that is not told."""

    def last_read_s(self, descriptor: int) -> float:
        """When others last read the file, by the wall clock; as exact as the mount's ``relatime`` is, a day. Reads
        through this port do not count, where the daemon owns the file."""

    def write_some(self, descriptor: int, data: memoryview, offset: int) -> int:
        """Write some bytes, possibly fewer than given. Returns how many."""

    def read_some(self, descriptor: int, into: memoryview, offset: int, *, passing: bool = False) -> int:
        """Read some bytes; 0 at the end. ``passing``: leave no pages in the cache that were not there before."""

    def copy_some(self, source: int, source_offset: int, target: int, target_offset: int, length: int) -> int:
        """Copy inside the kernel, possibly fewer bytes than asked; blocks are shared where the file system can."""

    def allocate(self, descriptor: int, length: int) -> bool:
        """Reserve blocks and set the size without writing; False where the file system cannot."""

    def punch(self, descriptor: int, offset: int, length: int) -> bool:
        """Give the blocks of a range back, which reads as zeros then; False where the file system cannot."""

    def truncate(self, descriptor: int, length: int) -> None: ...
    def set_mode(self, descriptor: int, mode: int) -> None: ...
    def size(self, descriptor: int) -> int: ...

    def allocated(self, descriptor: int) -> int:
        """Bytes of blocks that the file occupies."""

    def has_data(self, descriptor: int, offset: int) -> bool:
        """False when ``offset`` lies in a hole that was never written."""

    def is_unwritten(self, descriptor: int) -> bool:
        """Whether nothing was ever written to the file; False where the file system cannot tell."""

    def forget(self, descriptor: int, offset: int, length: int) -> None:
        """Drop clean pages, so that the next read comes from the device. Best effort, never fails."""

    def cached(self, descriptor: int, offset: int, length: int) -> int | None:
        """Bytes of a range of the file that are in the page cache; None where that is not told."""

    def start_write_back(self, descriptor: int) -> None:
        """Ask the kernel to start writing dirty pages to the device. Promises nothing, never fails."""

    def sync_data(self, descriptor: int) -> None:
        """Make the file's bytes and size survive a power cut."""

    def sync_file(self, descriptor: int) -> None:
        """Make bytes, size and mode of a file durable."""

    def sync_everything(self) -> None:
        """Sync all files of the file system, also foreign ones: cheaper than thousands of single syncs."""

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory survive a power cut."""

    def rename(self, source: str, target: str, *, replace: bool = False) -> None:
        """Raises FileExistsError when ``target`` exists and ``replace`` is not set; NotAFileError for a directory in
        the place of a file."""

    def make_link(self, text: str, path: str) -> None: ...
    def read_link(self, path: str) -> str: ...

    def make_directory(self, path: str) -> None:
        """Make one directory; an existing one is left alone."""

    def remove_file(self, path: str) -> None:
        """Raises NotAFileError for a directory."""

    def remove_directory(self, path: str) -> None: ...

    def names(self, path: str) -> list[str]:
        """The entries of a directory, in no order."""

    def kind(self, path: str) -> FileKind | None:
        """None when the path does not exist, as where a file stands for one of its directories."""

    def names_mark(self, path: str) -> int | None:
        """A number that changes when a name in the directory comes or goes; None where no directory is."""

    def space(self) -> Space: ...

    def memory_file(self) -> int:
        """A nameless file in memory, for chunks of many small pieces."""


@contextmanager
def opened(disk: Disk, path: str, *, write: bool = False, create: bool = False, mode: int = 0o644) -> Iterator[int]:
    """``Disk.open`` for the length of a ``with``."""
    descriptor = disk.open(path, write=write, create=create, mode=mode)
    try:
        yield descriptor
    finally:
        disk.close(descriptor)


def write_all(disk: Disk, descriptor: int, data: memoryview, offset: int) -> None:
    """Write every byte, in several calls if needed. A write without progress is EIO."""
    while len(data):
        written = disk.write_some(descriptor, data, offset)
        if written <= 0:
            raise OSError(errno.EIO, "write made no progress")
        offset += written
        data = data[written:]


def read_all(disk: Disk, descriptor: int, into: memoryview, offset: int, *, passing: bool = False) -> bool:
    """Fill ``into``; False when the file ends earlier."""
    while len(into):
        found = disk.read_some(descriptor, into, offset, passing=passing)
        if found <= 0:
            return False
        offset += found
        into = into[found:]
    return True


def read_file(disk: Disk, path: str, *, bytes_max: int) -> bytes:
    """Read a small file. Raises OSError; EFBIG when it is larger than ``bytes_max``."""
    with opened(disk, path) as descriptor:
        size = disk.size(descriptor)
        if size > bytes_max:
            raise OSError(errno.EFBIG, f"{path} has {size} bytes, at most {bytes_max}")
        body = bytearray(size)
        whole = read_all(disk, descriptor, memoryview(body), 0)
    if not whole:
        raise OSError(errno.EIO, f"{path} became shorter while it was read")
    return bytes(body)


def write_new_file(disk: Disk, path: str, body: bytes, *, mode: int = 0o644) -> None:
    """Write ``body`` to ``path``; after a crash the old file or the new one is there, whole."""
    unfinished = path + ".part"
    descriptor = open_unfinished(disk, unfinished, mode=mode)
    try:
        write_all(disk, descriptor, memoryview(body), 0)
        disk.sync_data(descriptor)
    finally:
        disk.close(descriptor)
    disk.rename(unfinished, path, replace=True)
    disk.sync_directory(parent(path))


def open_unfinished(disk: Disk, path: str, *, mode: int = 0o644) -> int:
    """Open a file of ours that nobody misses, empty, to be written. What stands in its place and cannot be written is
    moved aside (``move_aside``): it must not hold up what the finished file is for. Raises OSError."""
    try:
        descriptor = disk.open(path, write=True, create=True, mode=mode)
    except OSError as error:
        if not isinstance(error, NotAFileError | PermissionError) and error.errno != errno.ELOOP:
            raise
        try:
            move_aside(disk, path)
        except OSError:
            raise error from None
        descriptor = disk.open(path, write=True, create=True, mode=mode)
    try:
        disk.truncate(descriptor, 0)
    except OSError:
        disk.close(descriptor)
        raise
    return descriptor


def move_aside(disk: Disk, path: str) -> None:
    """Free a name of ours: what stands there is another's, and is kept as ``PATH.aside-N``. Raises OSError; when all N
    are taken, FileExistsError."""
    for number in range(1, _ASIDES_MOST):
        with suppress(FileExistsError):
            disk.rename(path, f"{path}.aside-{number}")
            return
    disk.rename(path, f"{path}.aside-{_ASIDES_MOST}")


def parent(path: str) -> str:
    """The directory of a path; ``""`` is the store's own."""
    return path.rpartition("/")[0]
