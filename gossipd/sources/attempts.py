"""What one call of the reader has tried: which mirrors are of no more use to it, wholly or for one chunk.

What lives here: the choice of mirrors that are left. What does not: which of them is read (``admission``), and for how
long wrong bytes are left alone (``wrong_bytes``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from gossipd.core.ids import ChunkIndex
from gossipd.manifest.source_url import SourceUrl
from gossipd.sources.packed_chunk import PackedChunk
from gossipd.sources.range_request import Job
from gossipd.sources.wrong_bytes import WrongBytes


class Attempts:
    """Of one call, ``job``. What was wrong at a mirror, and is not to be read again yet, goes to its errors."""

    def __init__(self, job: Job, mirrors: Sequence[SourceUrl], known_wrong: WrongBytes) -> None:
        self._job = job
        self._known_wrong = known_wrong
        self._mirrors = list(mirrors)
        self._wrong: set[tuple[str, ChunkIndex]] = set()
        self._alone: set[ChunkIndex] = set()
        self.packed: PackedChunk | None = None
        """What has come of the packed chunk that the call is at."""
        self._counts: dict[tuple[str, ChunkIndex], tuple[int, int]] = {}  # and what had come of the chunk then

    @property
    def are_left(self) -> bool:
        """Whether any mirror may still have other chunks."""
        return bool(self._mirrors)

    def usable(self, chunk: ChunkIndex) -> list[SourceUrl]:
        """The mirrors that may be asked for a chunk, in the order of the manifest."""
        for mirror in self._left(chunk) if self._known_wrong.is_any else ():
            error = self._known_wrong.refusal(self._job.manifest, mirror, chunk)
            if error is not None:
                self.give_up(mirror, chunk)
                self._job.errors.append(error)
        left = self._left(chunk)
        return left[:1] if chunk in self._alone else left

    def alike(self, chunks: list[ChunkIndex]) -> list[ChunkIndex]:
        """The first of ``chunks``, as far as the same mirrors may be asked for each."""
        usable = self.usable(chunks[0])
        return list(takewhile(lambda chunk: self.usable(chunk) == usable, chunks))

    def _left(self, chunk: ChunkIndex) -> list[SourceUrl]:
        return [mirror for mirror in self._mirrors if (mirror.text, chunk) not in self._wrong]

    def is_alone(self, chunk: ChunkIndex) -> bool:
        """Whether the chunk comes from one mirror at a time."""
        return chunk in self._alone

    def read_alone(self, chunk: ChunkIndex) -> bool:
        """What several mirrors have sent of a chunk does not hash together: one after the other is to send all of it.
        False when that was so before."""
        is_new = chunk not in self._alone
        self._alone.add(chunk)
        return is_new

    def close(self) -> None:
        """Give back what has come of a chunk that the store has not got."""
        if self.packed is not None:
            self.packed.close()
            self.packed = None

    def count(self, mirror: SourceUrl, chunk: ChunkIndex) -> int:
        """One more failure of a mirror with a chunk. Returns how many there were in a row, since a byte of it came that
        is kept."""
        received = self.packed.received if self.packed is not None and self.packed.chunk == chunk else 0
        count, before = self._counts.get((mirror.text, chunk), (0, 0))
        count = 1 if received > before else count + 1
        self._counts[mirror.text, chunk] = count, max(before, received)
        return count

    def give_up(self, mirror: SourceUrl, chunk: ChunkIndex | None) -> None:
        """Do not ask the mirror again, for this chunk or for any."""
        if chunk is None:
            self._mirrors.remove(mirror)
        else:
            self._wrong.add((mirror.text, chunk))
