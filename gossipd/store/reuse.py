"""Copying what another version on this host holds already, instead of fetching it.

What lives here: finding equal digests, copying inside the kernel, and checking the copy. What does not: which
versions there are.

``copy_file_range`` moves the bytes without bringing them here, and shares the blocks on file systems that can
(XFS, Btrfs). The copy is hashed where it has landed, not where it came from: the old version may have rotted since it
was checked. The chunk is busy until then, so that nobody else delivers it, and is held only when the hash is right;
a wrong one costs the copy and is left to be overwritten. The source is checked by its own scrub.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from blake3 import blake3

from gossipd.core.events import ChunkStored
from gossipd.core.ids import LOCAL
from gossipd.core.layout import Segment
from gossipd.core.manifest import Manifest
from gossipd.store.disk import read_all
from gossipd.store.handles import Handle
from gossipd.store.replica import Replica
from gossipd.store.windows import Context, write_chunk


class _Differs(OSError):
    """The copy does not hash to the digest; makes ``write_chunk`` leave the chunk unheld."""


def copy_shared(context: Context, replica: Replica, others: Iterable[Replica]) -> int:
    """Copy every missing chunk that another replica holds; how many. Raises OSError when the disk refuses."""
    missing: dict[bytes, list[int]] = {}
    for chunk in range(replica.manifest.chunk_count):
        if chunk not in replica.held:
            missing.setdefault(replica.manifest.digest(chunk), []).append(chunk)
    copied = 0
    for other in others:
        if not missing:
            break
        for source in range(other.manifest.chunk_count):
            if source not in other.held:
                continue
            targets = missing.get(other.manifest.digest(source))
            if not targets:
                continue
            left = [chunk for chunk in targets if not _copy(context, other, source, replica, chunk)]
            copied += len(targets) - len(left)
            targets[:] = left
    return copied


def _copy(context: Context, other: Replica, source: int, replica: Replica, chunk: int) -> bool:
    """One chunk; False when the source cannot be read or is not what it should be."""
    length = replica.manifest.chunk_length(chunk)
    if other.manifest.chunk_length(source) != length:
        return False
    begun = time.monotonic()
    pieces: list[tuple[Handle, int, int]] = []
    try:
        try:
            for part in other.manifest.segments(source):
                handle = context.handles.lease(other.deployment, part.file_index, other.path(part.file_index))
                pieces.append((handle, part.offset, part.length))
        except OSError:
            return False
        copier = _Copier(context, replica.manifest, chunk, pieces)
        try:
            is_mine = write_chunk(context, replica, chunk, copier.fill)
        except _Differs:
            return False
    finally:
        for handle, _, _ in pieces:
            context.handles.give_back(handle)
    if is_mine:
        with replica.lock:
            replica.counters.local_bytes += length
        context.emit(ChunkStored(replica.deployment, chunk, LOCAL, length, time.monotonic() - begun))
    return True


class _Copier:
    """Fills the segments of one chunk from the pieces of another, and hashes the whole with the last."""

    def __init__(self, context: Context, manifest: Manifest, chunk: int, pieces: list[tuple[Handle, int, int]]) -> None:
        self._disk = context.disk
        self._manifest = manifest
        self._chunk = chunk
        self._pieces = pieces
        self._hasher = blake3(max_threads=blake3.AUTO)

    def fill(self, segment: Segment, position: int, descriptor: int) -> None:
        """Called for each segment in order."""
        begin = 0
        for handle, offset, length in self._pieces:
            first = max(position, begin)
            last = min(position + segment.length, begin + length)
            if first < last:
                target = segment.offset + first - position
                self._copy_all(handle.descriptor, offset + first - begin, descriptor, target, last - first)
            begin += length
        body = memoryview(bytearray(segment.length))
        is_whole = read_all(self._disk, descriptor, body, segment.offset)
        self._hasher.update(body)
        is_last = position + segment.length == self._manifest.chunk_length(self._chunk)
        if not is_whole or (is_last and self._hasher.digest() != self._manifest.digest(self._chunk)):
            raise _Differs(0, "the copy is not what the manifest says")

    def _copy_all(self, source: int, source_offset: int, target: int, target_offset: int, length: int) -> None:
        while length:
            copied = self._disk.copy_some(source, source_offset, target, target_offset, length)
            if copied <= 0:
                raise _Differs(0, "the source is shorter than it should be")
            source_offset += copied
            target_offset += copied
            length -= copied
