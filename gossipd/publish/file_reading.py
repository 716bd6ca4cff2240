"""Reading and hashing files on a local disk, at the speed of the cores.

What lives here: reading an extent, and noticing a changed file. What does not: finding files (``tree``).

An extent is hashed in the page cache: the file is mapped, so nothing is copied, which is faster than reading into a
buffer. But if somebody shortens a mapped file, SIGBUS kills the process. So an extent is mapped only under a read lease
(``F_SETLEASE``): a process that opens the file for writing or truncates it waits for the end of the lease, some
milliseconds later, or 45 s at most. Without a lease (a foreign file, one open for writing, or a network file system)
the extent is read into a buffer.

A file is opened beneath its root without following links, so that a link or directory that is exchanged after the walk
leads to no other file. One that the tree holds twice (hard links, or links into the blobs of a Hugging Face cache) is
hashed once.

A changed file is refused, never published half old and half new: size, time of change and inode are compared at the end
of an extent, and for the whole tree at the end (``publisher``).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import mmap
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from blake3 import blake3

from gossipd.manifest.chunk_layout import Segment
from gossipd.manifest.errors import shown
from gossipd.publish.errors import PublishError, TreeChangedError
from gossipd.publish.extents import FileExtent
from gossipd.publish.hashing import hash_pieces
from gossipd.publish.tree import FoundFile
from gossipd.store.disk.syscalls import open_beneath

BUFFER_BYTES = 512 * 1024  # 256 KiB to 1 MiB are equally fast
_NO_LEASE = (errno.EAGAIN, errno.EACCES, errno.EINVAL, errno.EPERM, errno.ENOTSUP, errno.ENOLCK)


class LocalFiles:
    """Reads extents of the given files, which are in the manifest's order."""

    def __init__(self, files: Sequence[FoundFile], *, mapped: bool = True) -> None:
        self._files = files
        self._mapped = mapped
        twins = Counter(file.inode for file in files if file.size)
        self._once = {inode: threading.Lock() for inode, count in twins.items() if count > 1}
        self._hashed: dict[tuple[tuple[int, int], int, tuple[int, ...]], bytes] = {}
        self.threads = len(os.sched_getaffinity(0))

    def hash_extent(self, run: FileExtent) -> bytes:
        """Raises TreeChangedError, PublishError ``E_SOURCE_READ``."""
        if len(run.segments) == 1:
            return self._hash_once(run.segments[0], run.lengths)
        hasher = blake3()
        for segment in run.segments:
            with self._opened(segment) as descriptor:
                for piece in self._pieces(descriptor, segment):
                    hasher.update(piece)
        return hasher.digest()

    def read_piece(self, index: int, offset: int, length: int) -> bytes:
        """A small part of one file. Raises TreeChangedError, PublishError ``E_SOURCE_READ``."""
        segment = Segment(index, offset, length)
        with self._opened(segment) as descriptor:
            return b"".join(bytes(piece) for piece in self._pieces(descriptor, segment))

    def _hash_once(self, segment: Segment, lengths: tuple[int, ...]) -> bytes:
        """``_hash_adjacent``, unless the same chunks of the same file were hashed under another name."""
        inode = self._files[segment.file_index].inode
        lock = self._once.get(inode)
        if lock is None:
            return self._hash_adjacent(segment, lengths)
        with lock:  # the thread that comes second would only read the same pages
            key = (inode, segment.offset, lengths)
            if key not in self._hashed:
                self._hashed[key] = self._hash_adjacent(segment, lengths)
            return self._hashed[key]

    def _hash_adjacent(self, segment: Segment, lengths: Sequence[int]) -> bytes:
        with self._opened(segment) as descriptor:
            # The kernel reads ahead, for this extent and for the next, which another thread takes.
            os.posix_fadvise(descriptor, segment.offset, 2 * segment.length, os.POSIX_FADV_WILLNEED)
            if self._mapped and _lease(descriptor):
                try:
                    return self._hash_mapped(descriptor, segment, lengths)
                finally:
                    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            return hash_pieces(self._pieces(descriptor, segment), lengths)

    def _hash_mapped(self, descriptor: int, segment: Segment, lengths: Sequence[int]) -> bytes:
        if not self._files[segment.file_index].is_still(os.fstat(descriptor)):  # it may be shorter than the map
            raise self._changed(segment)
        at = segment.offset % mmap.ALLOCATIONGRANULARITY  # a chunk that begins at a tensor begins within a page
        with mmap.mmap(
            descriptor, at + segment.length, mmap.MAP_SHARED, mmap.PROT_READ, offset=segment.offset - at
        ) as mapped, memoryview(mapped) as view:  # fmt: skip
            found = []
            for length in lengths:
                with view[at : at + length] as chunk:
                    found.append(blake3(chunk).digest())
                at += length
        return b"".join(found)

    def _pieces(self, descriptor: int, segment: Segment) -> Iterator[memoryview]:
        """The segment's bytes in one reused buffer, which each piece but the last fills."""
        buffer = memoryview(bytearray(min(segment.length, BUFFER_BYTES)))
        at, end = segment.offset, segment.offset + segment.length
        while at < end:
            want = min(len(buffer), end - at)
            got = 0
            while got < want:
                count = os.preadv(descriptor, [buffer[got:want]], at + got)
                if count == 0:
                    raise self._changed(segment)
                got += count
            yield buffer[:want]
            at += want

    @contextmanager
    def _opened(self, segment: Segment) -> Iterator[int]:
        file = self._files[segment.file_index]
        try:
            descriptor = open_found(file)
            try:
                yield descriptor
                if not file.is_still(os.fstat(descriptor)):
                    raise self._changed(segment)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            raise self._changed(segment) from None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EXDEV):  # a link stands where none was
                raise self._changed(segment) from None
            raise PublishError(f"{shown(file.path)}: {error.strerror}") from None

    def _changed(self, segment: Segment) -> TreeChangedError:
        path = self._files[segment.file_index].path
        return TreeChangedError(f"{shown(path)} changed while it was hashed; publish when nobody writes to it")


class WholeFiles(LocalFiles):
    """Also takes the SHA-256 of each file as a whole, while its bytes are still in memory. Extents of a file must come
    in order."""

    def __init__(self, files: Sequence[FoundFile]) -> None:
        super().__init__(files)
        self._begun: dict[int, tuple[hashlib._Hash, int]] = {}
        self._whole: dict[int, bytes] = {}

    def hash_extent(self, run: FileExtent) -> bytes:
        """Raises as of LocalFiles."""
        digests = super().hash_extent(run)
        for segment in run.segments:
            index, end = segment.file_index, segment.offset + segment.length
            hasher, hashed = self._begun.pop(index, (None, 0))
            hasher = hasher or hashlib.sha256()
            assert segment.offset == hashed, f"an extent of file {index} was left out"
            with self._opened(segment) as descriptor:
                for piece in self._pieces(descriptor, segment):
                    hasher.update(piece)
            if end < self._files[index].size:
                self._begun[index] = hasher, end
            else:
                self._whole[index] = hasher.digest()
        return digests

    def whole_digests(self) -> dict[str, bytes]:
        """The SHA-256 of each file, by path, when all extents were hashed."""
        nothing = hashlib.sha256().digest()  # of an empty file, which no extent has
        return {file.path: self._whole.get(index, nothing) for index, file in enumerate(self._files)}


def open_found(file: FoundFile) -> int:
    """A descriptor of the file that the walk found, through no link. Raises OSError: ELOOP or EXDEV where a link
    has appeared."""
    root = os.open(file.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return open_beneath(root, file.location, os.O_RDONLY | os.O_NONBLOCK)
    finally:
        os.close(root)


def _lease(descriptor: int) -> bool:
    """Take a read lease. False when the file cannot be protected."""
    try:
        # The kernel signals to the holder of a lease that a writer waits; SIGURG is ignored by default.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        if error.errno in _NO_LEASE:
            return False
        raise
    return True
