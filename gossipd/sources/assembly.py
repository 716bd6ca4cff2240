"""Cuts a run of bytes into chunks and hands each to the store.

One buffer lease is held at a time, from a chunk's first byte until the store has written or refused the chunk; a chunk
that arrives whole needs none. A chunk in pieces may be relayed meanwhile (``runtime.incoming_chunks``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct, field

from gossipd.core.events import SourceReadMoves
from gossipd.core.ids import SOURCE, ChunkIndex
from gossipd.core.timing import READ_ENDING_SHARE
from gossipd.runtime.buffer_pool import BufferPool
from gossipd.runtime.incoming_chunks import IncomingChunk, IncomingChunks
from gossipd.runtime.ports import ChunkWriter, DigestMismatchError
from gossipd.sources.errors import SourceHashError
from gossipd.sources.range_request import Job


class Delivery(Struct, frozen=True):
    """The way of chunks into the store: buffers, and the table where the server finds chunks during their arrival.
    ``moves``: told about once a second that more of a chunk of many files has come; must be quick."""

    writer: ChunkWriter
    pool: BufferPool
    incoming_chunks: IncomingChunks = field(default_factory=IncomingChunks)
    moves: Callable[[SourceReadMoves], None] = lambda _: None


class Assembly:
    """The chunks of one run, in order. Used by one thread. ``job`` notes each chunk that the store has accepted; its
    ``stop`` ends a wait for memory. ``what``: the object to name when a hash is wrong.
    """

    def __init__(
        self, job: Job, chunks: Sequence[ChunkIndex], delivery: Delivery, *, what: str, clock: Callable[[], float]
    ) -> None:
        self._job = job
        self._manifest = job.manifest
        self._chunks = chunks
        self._delivery = delivery
        self._what = what
        self._clock = clock
        self._position = 0
        self._filled = 0
        self.received = 0
        """Bytes of the run that need not be asked for again."""
        self._incoming: IncomingChunk | None = None
        self._began_s = clock()

    def feed(self, piece: memoryview) -> None:
        """Take the next bytes of the run. Raises SourceHashError, PoolExhaustedError when stopped, and the store's."""
        self.received += len(piece)
        while piece:
            if self._incoming is None:
                chunk = self._chunks[self._position]
                length = self._manifest.chunk_length(chunk)
                if len(piece) >= length:  # a whole chunk in obstore's memory needs no buffer of ours
                    self._deliver(piece[:length])
                    piece = piece[length:]
                    continue
                lease = self._delivery.pool.acquire(length, gave_up=self._job.stop.is_set)
                share = READ_ENDING_SHARE if self._position == len(self._chunks) - 1 else 0.0
                self._incoming = self._delivery.incoming_chunks.begin(
                    self._manifest.id, chunk, SOURCE, lease, ending_share=share
                )
                self._filled = 0
            view = self._incoming.view
            step = min(len(piece), len(view) - self._filled)
            view[self._filled : self._filled + step] = piece[:step]
            self._filled += step
            piece = piece[step:]
            self._incoming.advance(self._filled)
            if self._filled == len(view):
                self._deliver(view)

    def close(self) -> None:
        """Give the memory back. An unfinished chunk is lost, and its relays end."""
        if self._incoming is not None:
            self._incoming.release()
            self._incoming = None

    def _deliver(self, body: memoryview) -> None:
        chunk = self._chunks[self._position]
        now = self._clock()
        try:
            self._delivery.writer.put(self._manifest.id, chunk, body, SOURCE, now - self._began_s)
            if self._incoming is not None:
                self._incoming.land()
        except DigestMismatchError:
            packed = len(self._manifest.segments(chunk)) - 1
            of = f", which holds {packed} more files," if packed else ""
            raise SourceHashError(self._what, f"chunk {chunk}{of} does not hash to the manifest's digest") from None
        finally:
            self.close()
        self._position += 1
        self._began_s = self._clock()
        self._job.stored.append(chunk)
