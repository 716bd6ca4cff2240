"""One chunk of several files on its way into the store: its segments come in any order, from one mirror or several.

What lives here: which segments have come, and the memory of the chunk until the store has it. What does not: the
requests for the segments (``packed_read``), and chunks of one file (``assembly``).

What has come stays while the rest is asked for again, here or at another mirror. Where bytes of several mirrors do not
hash together, nobody knows which mirror was wrong, so the chunk is read once more from one mirror at a time.
"""

from __future__ import annotations

import threading
from itertools import accumulate

from gossipd.core.events import SourceReadMoves
from gossipd.core.ids import SOURCE, ChunkIndex
from gossipd.core.timing import READ_ENDING_SHARE
from gossipd.manifest.chunk_layout import Segment
from gossipd.runtime.incoming_chunks import IncomingChunk
from gossipd.runtime.ports import DigestMismatchError
from gossipd.sources.assembly import Delivery
from gossipd.sources.errors import SourceHashError
from gossipd.sources.range_request import Job
from gossipd.sources.settings import Clock

MOVES_S = 1.0  # a read that moves is told this often
RELAYED_RATE_MIN = 256 * 1024  # bytes/s; relays of one that comes more slowly would be cut, and their suppliers shunned


class PackedChunk:
    """Thread-safe, but for one thread at a time that feeds a segment; ``deliver`` and ``close`` when none does."""

    def __init__(self, job: Job, chunk: ChunkIndex, delivery: Delivery, *, clock: Clock) -> None:
        self.chunk = chunk
        self.mirrors: set[str] = set()
        """Those that have sent some of it."""
        self.received = 0
        self._job = job
        self._delivery = delivery
        self._clock = clock
        self._segments = job.manifest.segments(chunk)
        self._starts = list(accumulate((part.length for part in self._segments), initial=0))
        self._come = [0] * len(self._segments)  # bytes of each
        self._in_row = 0  # segments that have come whole, before the first that has not
        self._lock = threading.Lock()
        self._incoming: IncomingChunk | None = None
        self._began_s = clock()
        self._told_s = self._began_s
        self._is_relayed = False

    def left(self) -> list[int]:
        """The segments that have not come whole, by their places in the chunk."""
        return [at for at, part in enumerate(self._segments) if self._come[at] < part.length]

    def rest(self, at: int) -> Segment:
        """What is left of one segment."""
        part, come = self._segments[at], self._come[at]
        return Segment(part.file_index, part.offset + come, part.length - come)

    def feed(self, at: int, mirror: str, piece: memoryview) -> None:
        """The next bytes of one segment. Raises PoolExhaustedError when stopped."""
        with self._lock:
            if self._incoming is None:
                length = self._starts[-1]
                lease = self._delivery.pool.acquire(length, gave_up=self._job.stop.is_set, leaves_room=True)
                self._incoming = self._delivery.incoming_chunks.begin(
                    self._job.manifest.id, self.chunk, SOURCE, lease, ending_share=READ_ENDING_SHARE
                )
            begin = self._starts[at] + self._come[at]
            self._incoming.view[begin : begin + len(piece)] = piece
            self.mirrors.add(mirror)
            self._come[at] += len(piece)
            self.received += len(piece)
            self._advance(self._incoming)

    def _advance(self, incoming: IncomingChunk) -> None:
        before = self._in_row
        while self._in_row < len(self._come) and self._come[self._in_row] == self._segments[self._in_row].length:
            self._in_row += 1
        now = self._clock()
        if now - self._told_s >= MOVES_S:
            self._told_s = now
            self._delivery.moves(SourceReadMoves(self._job.manifest.id, self.chunk))
        part_come = self._come[self._in_row] if self._in_row < len(self._come) else 0
        self._is_relayed |= self.received >= RELAYED_RATE_MIN * (now - self._began_s)
        if self._is_relayed and (self._in_row > before or part_come):
            incoming.advance(self._starts[self._in_row] + part_come)

    def deliver(self, what: str) -> None:
        """All has come: give it to the store, and the memory back. Raises SourceHashError, which names the object
        ``what``, and the store's."""
        assert self._incoming is not None, "a chunk has at least one byte"
        manifest, chunk = self._job.manifest, self.chunk
        try:
            self._delivery.writer.put(manifest.id, chunk, self._incoming.view, SOURCE, self._clock() - self._began_s)
            self._incoming.land()
        except DigestMismatchError:
            packed = f"which holds {len(self._segments) - 1} more files"
            said = f"chunk {chunk}, {packed}, does not hash to the manifest's digest"
            raise SourceHashError(what, said) from None
        finally:
            self.close()
        self._job.stored.append(chunk)

    def close(self) -> None:
        """Give the memory back. What has come of a chunk that the store has not got is lost, and its relays end."""
        if self._incoming is not None:
            self._incoming.release()
            self._incoming = None
        self._come = [0] * len(self._segments)
        self.received = self._in_row = 0
        self._is_relayed = False
        self.mirrors.clear()
