"""Copying chunks from another version or a directory on this host, instead of fetching them.

What lives here: finding equal digests, copying inside the kernel, checking the copy. What does not: listing versions,
and finding the files of a directory (``publish``).

``copy_file_range`` copies without bytes in user space, and shares blocks on file systems that can (XFS, Btrfs). The
copy is hashed where it landed, because the old version may have rotted. Until then the chunk is busy, so that no other
thread delivers it; it is held only if the hash is right. The scrub checks the original.

Rejected: hard links to a directory's files, because trainers write into the files of the last checkpoint.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from threading import Lock
from typing import Protocol

from blake3 import blake3

from gossipd.core.events import ChunkStored
from gossipd.core.ids import COPIED, LOCAL, Origin
from gossipd.manifest.chunk_layout import Segment
from gossipd.manifest.manifest import Manifest
from gossipd.runtime.ports import NotHeldError, StoreWriteError
from gossipd.runtime.system_refusals import NoThreadError
from gossipd.runtime.worker_threads import submitted
from gossipd.store.disk.disk import read_all
from gossipd.store.errors import StoreClosingError
from gossipd.store.journal.windows import write_chunk
from gossipd.store.models.context import Context
from gossipd.store.models.reading import lease_for_reading
from gossipd.store.models.repair import mend_beginnings
from gossipd.store.models.replica import ModelReplica

# Copying and hashing one byte after the other takes some 2 s a GB of one core; disks of a training host write more. Few
# threads, because the job goes on meanwhile; none but the caller's for what takes it a tenth of a second.
COPY_THREADS = 4
COPY_THREAD_BYTES = 64 << 20


class _Differs(OSError):
    """The copy does not match its digest; ``write_chunk`` then leaves the chunk unheld."""


def copy_shared(context: Context, replica: ModelReplica, others: Iterable[ModelReplica]) -> None:
    """Copy every missing chunk that another replica holds. Raises OSError when the disk refuses."""
    missing: dict[bytes, list[int]] = {}
    for chunk in range(replica.manifest.chunk_count):
        if chunk not in replica.held and chunk in replica.wanted:
            missing.setdefault(replica.manifest.digest(chunk), []).append(chunk)
    for other in others:
        if not missing:
            break
        for source in range(other.manifest.chunk_count):
            if context.stopping.is_set():
                return  # the rest is copied or fetched after the next start
            if source not in other.held:
                continue
            targets = missing.get(other.manifest.digest(source), [])
            targets[:] = [chunk for chunk in targets if not _copy(context, other, source, replica, chunk)]


def copy_equal(context: Context, replica: ModelReplica, chunk: int) -> None:
    """Copy a chunk that was just written to all chunks of its model that are equal to it, where the file system can
    without storing it twice. What the disk refuses is fetched like any other chunk.
    """
    for twin in replica.equal.get(chunk, ()):
        if context.stopping.is_set():
            return
        if twin in replica.held or twin not in replica.wanted:
            continue
        try:
            _copy(context, replica, chunk, replica, twin, supplier=COPIED)
        except (StoreWriteError, NotHeldError):
            return
        except OSError as error:
            context.refused(error, replica.manifest.chunk_length(twin))
            return


class PieceSource(Protocol):
    """Where the bytes of a copy come from."""

    def opened(self, file_index: int) -> AbstractContextManager[int]:
        """A descriptor of one file. Raises OSError."""


def copy_from_files(
    context: Context, replica: ModelReplica, files: PieceSource, files_here: frozenset[int] | None,
    on_copied: Callable[[int], None],
) -> int | None:  # fmt: skip
    """Copy every missing chunk from files that should be the model's, in the manifest's order. Returns the first chunk
    that they do not have as the manifest says, None when there is none. ``files_here``: only chunks of these files;
    they may come while the model is fetched. ``on_copied`` is told each chunk's bytes. Raises OSError when the disk
    refuses."""
    copying = _FilesCopying(context, replica, files, files_here, on_copied)
    threads = min(COPY_THREADS, len(os.sched_getaffinity(0)), replica.missing_bytes() // COPY_THREAD_BYTES)
    if threads <= 1:
        copying.run()
    else:
        with ThreadPoolExecutor(threads, thread_name_prefix="copy") as pool, suppress(NoThreadError):
            for done in submitted(pool, copying.run, threads):
                done.result()
        copying.run()  # what is left, where the system gives no thread
    return min(copying.wrong, default=None)


class _FilesCopying:
    """Copies a model's chunks from files; ``run`` by several threads at a time, which end when one fails."""

    def __init__(
        self, context: Context, replica: ModelReplica, files: PieceSource, files_here: frozenset[int] | None,
        on_copied: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._context = context
        self._replica = replica
        self._files = files
        self._files_here = files_here
        self._on_copied = on_copied
        self._supplier = LOCAL if files_here is None else COPIED
        self._lock = Lock()
        self._left = iter(range(replica.manifest.chunk_count))
        self._has_failed = False
        self.wrong: list[int] = []  # in no order; all chunks before the first were tried

    def run(self) -> None:
        """Copy until nothing is left. Raises OSError, StoreClosingError."""
        try:
            while (chunk := self._next()) is not None:
                if self._context.stopping.is_set():
                    raise StoreClosingError("the store is being closed")
                segments = self._replica.manifest.segments(chunk)
                if self._files_here is not None and any(one.file_index not in self._files_here for one in segments):
                    continue
                if _copy_chunk(self._context, self._files, segments, self._replica, chunk, supplier=self._supplier):
                    self._on_copied(self._replica.manifest.chunk_length(chunk))
                else:
                    self.wrong.append(chunk)
                    self._has_failed = True
        except BaseException:
            self._has_failed = True
            raise

    def _next(self) -> int | None:
        with self._lock:
            replica = self._replica
            if self._has_failed:
                return None
            return next((one for one in self._left if one not in replica.held and one in replica.wanted), None)


def _copy(
    context: Context, other: ModelReplica, source: int, replica: ModelReplica, chunk: int, *, supplier: Origin = LOCAL
) -> bool:
    """Copy one chunk; False when the original cannot be read or is wrong."""
    if other.manifest.chunk_length(source) != replica.manifest.chunk_length(chunk):
        return False
    pieces = other.placement.segments(source)
    return _copy_chunk(context, _HeldFiles(context, other), pieces, replica, chunk, supplier=supplier)


def _copy_chunk(
    context: Context, source: PieceSource, pieces: Sequence[Segment], replica: ModelReplica, chunk: int,
    *, supplier: Origin = LOCAL,
) -> bool:  # fmt: skip
    length = replica.manifest.chunk_length(chunk)
    begun = time.monotonic()
    copier = _Copier(context, source, pieces, replica.manifest, chunk)
    try:
        is_mine = write_chunk(context, replica, chunk, copier.fill)
    except _Differs:
        return False
    if is_mine:
        with replica.lock:
            replica.counters.local_bytes += length
        mend_beginnings(context, replica, chunk)
        context.emit(ChunkStored(replica.deployment, chunk, supplier, length, time.monotonic() - begun))
    return True


class _HeldFiles:
    """The files of another version."""

    def __init__(self, context: Context, other: ModelReplica) -> None:
        self._context = context
        self._other = other

    @contextmanager
    def opened(self, file_index: int) -> Iterator[int]:
        handle = lease_for_reading(self._context, self._other, file_index)
        try:
            yield handle.descriptor
        finally:
            self._context.handles.give_back(handle)


class _Copier:
    """Fills the segments of one chunk from pieces of other files, and hashes the result. One piece is open at a time: a
    chunk of packed files may have sixteen thousand.
    """

    def __init__(
        self, context: Context, source: PieceSource, pieces: Sequence[Segment], manifest: Manifest, chunk: int
    ) -> None:
        self._disk = context.disk
        self._source = source
        self._manifest = manifest
        self._chunk = chunk
        self._pieces = pieces
        self._piece = 0
        self._piece_done = 0
        self._hasher = blake3(max_threads=blake3.AUTO)

    def fill(self, segment: Segment, position: int, descriptor: int) -> None:
        """Called for each segment in order; continues in the piece where the last segment ended."""
        done = 0
        while done < segment.length:
            piece = self._pieces[self._piece]
            length = min(segment.length - done, piece.length - self._piece_done)
            self._copy_piece(piece, descriptor, segment.offset + done, length)
            done += length
            self._piece_done += length
            if self._piece_done == piece.length:
                self._piece += 1
                self._piece_done = 0
        body = memoryview(bytearray(segment.length))
        is_whole = read_all(self._disk, descriptor, body, segment.offset)
        self._hasher.update(body)
        is_last = position + segment.length == self._manifest.chunk_length(self._chunk)
        if not is_whole or (is_last and self._hasher.digest() != self._manifest.digest(self._chunk)):
            raise _Differs(0, "the copy is not what the manifest says")

    def _copy_piece(self, piece: Segment, target: int, target_offset: int, length: int) -> None:
        with ExitStack() as stack:
            try:
                source = stack.enter_context(self._source.opened(piece.file_index))
            except OSError as error:
                raise _Differs(0, "the source cannot be opened") from error
            offset = piece.offset + self._piece_done
            try:
                while length:
                    copied = self._disk.copy_some(source, offset, target, target_offset, length)
                    if copied <= 0:
                        raise _Differs(0, "the source is shorter than it should be")
                    offset += copied
                    target_offset += copied
                    length -= copied
            except OSError as error:
                if error.errno == errno.EIO:  # probably a bad sector of the old version: fetch this chunk
                    raise _Differs(0, "the source cannot be read") from error
                raise
