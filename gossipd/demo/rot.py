"""Bytes that flip on a disk while the host serves them: ``--corrupt`` for one host's files.

The damage comes from outside, as from a failing disk; the daemon has no such switch. A chunk counts as stored when its
first and last bytes are right on the disk. The youngest such chunks are damaged, because other hosts still ask for
them. Each flip damages several bytes in the middle of a chunk.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from random import Random

from gossipd.manifest.manifest import Manifest

EDGE_BYTES = 64
FLIPPED_BYTES = 8
LOOK_S = 0.002  # a chunk spreads within some tens of milliseconds; a look at a thousand takes about 3


class Rot:
    """Flips bytes of a host's copy of one model. ``models``: the host's ``models`` directory. ``original``: the
    published tree. ``chunks_max``: how many chunks to damage in all."""

    def __init__(self, manifest: Manifest, models: Path, original: Path, *, chunks_max: int, rng: Random) -> None:
        self._manifest = manifest
        self._trees = (models / ".incoming" / manifest.id.hex(), models / manifest.name / str(manifest.version))
        self._original = original
        self._chunks_max = chunks_max
        self._rng = rng
        self._seen: set[int] = set()
        self._open: dict[tuple[Path, str], int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._flip, name="rot", daemon=True)
        self.damaged: list[int] = []

    def start(self) -> None:
        """Damage chunks as they are stored from now on, until there are enough or ``close``."""
        self.skip_stored()
        self._thread.start()

    def close(self) -> None:
        """Stop flipping; damage stays."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def _flip(self) -> None:
        while len(self.damaged) < self._chunks_max and not self._stop.wait(LOOK_S):
            self.step()

    def skip_stored(self) -> None:
        """Leave present chunks alone: other hosts have most of them."""
        self._seen.update(filter(self._is_stored, range(self._manifest.chunk_count)))

    def step(self) -> None:
        """Damage one of the chunks that were stored since the last step, if there is one."""
        unseen = set(range(self._manifest.chunk_count)) - self._seen
        fresh = sorted(filter(self._is_stored, unseen))
        self._seen.update(fresh)
        if fresh:
            self.damage(self._rng.choice(fresh))

    def damage(self, chunk: int) -> None:
        """Flip bytes in the middle of the chunk, wherever its file is now."""
        segment = self._manifest.segments(chunk)[0]
        descriptor = self._copy(segment.file_index)
        if descriptor is None:
            return
        at = segment.offset + segment.length // 2
        good = os.pread(descriptor, min(FLIPPED_BYTES, segment.length), at)
        os.pwrite(descriptor, bytes(byte ^ 0xFF for byte in good), at)
        self.damaged.append(chunk)

    def is_repaired(self, chunk: int) -> bool:
        """Whether the chunk's bytes on the disk are the original's again."""
        segment = self._manifest.segments(chunk)[0]
        where = (segment.file_index, segment.offset, segment.length)
        return self._read(*where) == self._wanted(*where)

    def _is_stored(self, chunk: int) -> bool:
        segments = self._manifest.segments(chunk)
        if len(segments) != 1:
            return False  # packed small files are left alone
        index, start = segments[0].file_index, segments[0].offset
        edge = min(EDGE_BYTES, segments[0].length)
        stop = start + segments[0].length - edge
        return all(self._read(index, at, edge) == self._wanted(index, at, edge) for at in (stop, start))

    def _copy(self, file_index: int) -> int | None:
        """A descriptor of the host's file; it stays valid when the file is renamed to its final place."""
        path = self._manifest.files[file_index].path
        found = (self._descriptor(tree, path, os.O_RDWR) for tree in self._trees)
        return next((descriptor for descriptor in found if descriptor is not None), None)

    def _descriptor(self, tree: Path, path: str, flags: int) -> int | None:
        if (known := self._open.get((tree, path))) is not None:
            return known
        try:
            self._open[tree, path] = os.open(tree / path, flags | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        return self._open[tree, path]

    def _read(self, file_index: int, at: int, length: int) -> bytes:
        descriptor = self._copy(file_index)
        return b"" if descriptor is None else os.pread(descriptor, length, at)

    def _wanted(self, file_index: int, at: int, length: int) -> bytes:
        descriptor = self._descriptor(self._original, self._manifest.files[file_index].path, os.O_RDONLY)
        assert descriptor is not None, "the original is there as long as the demo runs"
        return os.pread(descriptor, length, at)
