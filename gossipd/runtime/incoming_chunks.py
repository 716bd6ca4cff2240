"""Chunks on their way to this host, which others may be sent while they come.

What lives here: how much of a chunk has arrived, whose memory it is in and until when, and how its relays learn that.
What does not: receiving (``transfer.client`` from a peer, ``sources.assembly`` from storage), sending
(``transfer.server``), and whether the bytes are right (the store).

A chunk is told to others from the moment an eighth of it is here: a hop then costs an eighth of the time of a fetch,
and not all of it (switches call it cut-through). Nobody takes an unverified chunk for a chunk, because a relay keeps
back the last byte until this host has verified and stored the chunk: who gets a whole one gets it from a host that
vouches for it, and a wrong one is that host's fault, as ever. A chunk that does not arrive, or turns out wrong, ends
its relays' transfers; it costs those that wait for it a part of a transfer, and nobody's good name.

The receiver owns the memory. A relay may use it while the receiver has not let go; what has been verified meanwhile it
sends from the store's file, so that a slow peer never holds a buffer for longer than it takes to send one piece.

Rejected: pieces of 128 KiB (4 % less CPU time in the lab, and the last host at 1.08 to 1.18 downloads in five runs for
1.11 to 1.14 in turn, though the mean host came sooner); digests of parts in the manifest, or BLAKE3's own tree (the
same bytes would be verified twice, and what is gained is that a liar is found some milliseconds sooner); keeping the
buffer until the last relay is done (a few slow peers would use up the pool).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from gossipd.core.events import ChunkArriving, ChunkEnding
from gossipd.core.ids import ChunkIndex, DeploymentId, Supplier
from gossipd.core.timing import ENDING_S, ENDING_SHARE, TOLD_SHARE
from gossipd.runtime.buffer_pool import Lease

_PIECES_MIN = 8
_PIECE_BYTES_MIN = 64 * 1024  # each piece is a system call and, where somebody waits, a thread that wakes
_LAST_PIECE_S = ENDING_S / 4  # the request that is planned meanwhile leaves in time
_PIECE_S = 0.25  # a relay must not look silent, which is 0.5 s, only because its pieces are large for a slow link

Key = tuple[DeploymentId, ChunkIndex]


class IncomingChunk:
    """One chunk under way. ``view`` is the receiver's until ``release``; others use ``piece``."""

    def __init__(
        self, incoming_chunks: IncomingChunks, key: Key, supplier: Supplier, lease: Lease, *, ending_share: float
    ) -> None:  # fmt: skip
        self.supplier = supplier
        self.view = lease.view
        self.length = len(lease.view)
        self._incoming_chunks = incoming_chunks
        self._key = key
        self._lease = lease
        self._changed = threading.Condition()
        self._is_listed = False
        self._ending_share = ending_share
        self._first = (0, 0.0)  # how much was here when, the first time
        self._filled = 0
        self._users = 1
        self._is_over = False
        self.is_landed = False

    def piece_bytes(self, elapsed_s: float) -> int:
        """How much the receiver should receive next: what comes in a quarter of a second, or an eighth of the chunk.
        From where its end is told it comes in smaller pieces, as the next request is sent between two of them.

        Args:
            elapsed_s: since the first byte was awaited.
        """
        rate = self._filled / elapsed_s if elapsed_s > 0 else 0.0
        piece = max(_PIECE_BYTES_MIN, min(int(rate * _PIECE_S), self.length // _PIECES_MIN))
        if not rate:
            return piece
        to_end = self.length - self._filled - int(min(ENDING_SHARE * self.length, rate * ENDING_S))
        most = to_end if to_end > 0 else int(rate * _LAST_PIECE_S)
        return max(_PIECE_BYTES_MIN, min(piece, most))

    def advance(self, filled: int) -> None:
        """So many bytes are here, from the first on. By the receiver."""
        with self._changed:
            self._filled = filled
            self._changed.notify_all()
        if not self._is_listed and filled < self.length and filled >= TOLD_SHARE * self.length:
            self._is_listed = self._incoming_chunks.list(self._key, self)
        if self._ending_share and self._is_ending(filled):
            self._ending_share = 0.0
            self._incoming_chunks.ending(self._key, self.supplier)

    def _is_ending(self, filled: int) -> bool:
        left, now = self.length - filled, time.monotonic()
        if not self._first[0]:
            self._first = (filled, now)
        if not 0 < left <= self._ending_share * self.length:
            return False
        before, at_s = self._first
        return left * (now - at_s) <= ENDING_S * (filled - before)

    def land(self) -> None:
        """The chunk is verified and in the store. By the receiver."""
        self.is_landed = True

    def release(self) -> None:
        """The receiver lets go: relays go on from the store if it has landed, else they end. A second call does
        nothing."""
        with self._changed:
            if self._is_over:
                return
            self._is_over = True
            self._changed.notify_all()
        if self._is_listed:
            self._incoming_chunks.drop(self._key, self)
        self._let_go()

    @contextmanager
    def piece(self, at: int, timeout_s: float) -> Iterator[memoryview | None]:
        """A piece of what has come beyond the first ``at`` bytes, but for the last byte; waits for some.

        Yields: valid inside the context; empty after ``timeout_s`` without any, None when there will be no more: see
            ``is_landed``.
        """
        with self._changed:
            if not self._is_over and self._ready(at) <= at:
                self._changed.wait(timeout_s)
            is_over = self._is_over
            ready = min(self._ready(at), at + max(self.length // _PIECES_MIN, _PIECE_BYTES_MIN))
            if not is_over:
                self._users += 1
        if is_over:
            yield None
            return
        try:
            with self.view[at:ready] as piece:
                yield piece
        finally:
            self._let_go()

    def _ready(self, at: int) -> int:
        return max(at, min(self._filled, self.length - 1))

    def _let_go(self) -> None:
        with self._changed:
            self._users -= 1
            is_last = self._users == 0
        if is_last:
            self._lease.release()

    def __enter__(self) -> IncomingChunk:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()


class IncomingChunks:
    """Those of this host that others may be sent. Thread-safe.

    Args:
        post: told, in the receiver's thread, which chunk others may ask for from now on, and when little is left of
            one; quick. A second fetch of the same chunk is listed when the first has ended and it goes on.
    """

    def __init__(self, post: Callable[[ChunkArriving | ChunkEnding], None] | None = None) -> None:
        self._post = post
        self._lock = threading.Lock()
        self._incoming_chunks: dict[Key, IncomingChunk] = {}

    def begin(
        self, deployment: DeploymentId, chunk: ChunkIndex, supplier: Supplier, lease: Lease, *,
        ending_share: float = ENDING_SHARE,
    ) -> IncomingChunk:  # fmt: skip
        """A chunk will be received into ``lease``, which is the arrival's from now on.

        Args:
            ending_share: how much is left of it when its end is told, at most; 0 when its supplier goes on after it.
        """
        return IncomingChunk(self, (deployment, chunk), supplier, lease, ending_share=ending_share)

    def find(self, deployment: DeploymentId, chunk: ChunkIndex) -> IncomingChunk | None:
        """The one that may be relayed now."""
        with self._lock:
            return self._incoming_chunks.get((deployment, chunk))

    def list(self, key: Key, incoming: IncomingChunk) -> bool:
        """Let others find it; False while there is another of the same chunk."""
        with self._lock:
            if self._incoming_chunks.setdefault(key, incoming) is not incoming:
                return False
        if self._post is not None:
            self._post(ChunkArriving(*key, incoming.supplier))
        return True

    def ending(self, key: Key, supplier: Supplier) -> None:
        """Little is left of this one."""
        if self._post is not None:
            self._post(ChunkEnding(*key, supplier))

    def drop(self, key: Key, incoming: IncomingChunk) -> None:
        """Nobody finds it any more."""
        with self._lock:
            if self._incoming_chunks.get(key) is incoming:
                del self._incoming_chunks[key]
