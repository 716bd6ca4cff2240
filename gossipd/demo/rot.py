"""Bytes that flip on a disk, while the host serves them: what ``--corrupt`` does to one host's files.

It is done from outside, as a failing disk would: the daemon has no switch that makes it lie. A chunk counts as stored
when its first and last bytes are on the disk as they should be; the youngest such chunks are flipped, because those
are still asked for by other hosts. Each flip damages several bytes in the middle of one chunk.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from gossipd.core.manifest import Manifest

EDGE_BYTES = 64
FLIPPED_BYTES = 8


class Rot:
    """Flips bytes of a host's copy of one model.

    Args:
        models: the host's ``models`` directory.
        original: the tree that was published.
        chunks_max: how many chunks are damaged in all.
    """

    def __init__(self, manifest: Manifest, models: Path, original: Path, *, chunks_max: int, rng: Random) -> None:
        self._manifest = manifest
        self._trees = (models / ".incoming" / manifest.id.hex(), models / manifest.name / str(manifest.version))
        self._original = original
        self._chunks_max = chunks_max
        self._rng = rng
        self._seen: set[int] = set()
        self.damaged: list[int] = []

    @property
    def is_done(self) -> bool:
        """As many are damaged as should be."""
        return len(self.damaged) >= self._chunks_max

    def skip_stored(self) -> None:
        """What is there already is not touched: other hosts have most of it."""
        self._seen.update(chunk for chunk in range(self._manifest.chunk_count) if self._is_stored(chunk))

    def step(self) -> None:
        """Damage one of the chunks that were stored since the last step, if there is one."""
        fresh = [
            chunk for chunk in range(self._manifest.chunk_count) if chunk not in self._seen and self._is_stored(chunk)
        ]
        self._seen.update(fresh)
        if fresh and not self.is_done:
            self.damage(self._rng.choice(fresh))

    def damage(self, chunk: int) -> None:
        """Flip bytes in the middle of the chunk, wherever its file is now."""
        segment = self._manifest.segments(chunk)[0]
        path = self._path(segment.file_index)
        if path is None:
            return
        at = segment.offset + segment.length // 2
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            good = os.pread(descriptor, min(FLIPPED_BYTES, segment.length), at)
            os.pwrite(descriptor, bytes(byte ^ 0xFF for byte in good), at)
        finally:
            os.close(descriptor)
        self.damaged.append(chunk)

    def is_repaired(self, chunk: int) -> bool:
        """True when the chunk's bytes on the disk are the original's again."""
        segment = self._manifest.segments(chunk)[0]
        return self._read(segment.file_index, segment.offset, segment.length) == self._wanted(
            segment.file_index, segment.offset, segment.length
        )

    def _is_stored(self, chunk: int) -> bool:
        segments = self._manifest.segments(chunk)
        if len(segments) != 1:
            return False  # packed small files: left alone
        index, start = segments[0].file_index, segments[0].offset
        edge = min(EDGE_BYTES, segments[0].length)
        stop = start + segments[0].length - edge
        return all(self._read(index, at, edge) == self._wanted(index, at, edge) for at in (stop, start))

    def _path(self, file_index: int) -> Path | None:
        relative = self._manifest.files[file_index].path
        return next((tree / relative for tree in self._trees if (tree / relative).exists()), None)

    def _read(self, file_index: int, at: int, length: int) -> bytes:
        path = self._path(file_index)
        return _pread(path, at, length) if path is not None else b""

    def _wanted(self, file_index: int, at: int, length: int) -> bytes:
        return _pread(self._original / self._manifest.files[file_index].path, at, length)


def _pread(path: Path, at: int, length: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""  # renamed to its final place a moment ago
    try:
        return os.pread(descriptor, length, at)
    finally:
        os.close(descriptor)
