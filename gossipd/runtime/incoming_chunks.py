"""Chunks during their arrival, which this host may already relay.

What lives here: how much of a chunk has arrived, whose memory it is in and until when, and how relays learn that. What
does not: receiving (``transfer.client`` from a peer, ``sources.assembly`` from storage), sending (``transfer.server``),
and verifying (the store).

A chunk is announced when an eighth of it is here, so a hop costs an eighth of a fetch (cut-through, as in switches). No
receiver gets an unverified chunk whole: a relay holds back the last byte until this host has verified and stored the
chunk. So the host that sends a whole chunk vouches for it, and a wrong one is its fault. A chunk that does not arrive,
or is wrong, ends the transfers of its relays; that costs them part of a transfer and no strike.

That the end of a chunk is near is told by a clock, from the rate of the supplier's last chunk: a receiver that only
told it would be woken for that. Only where the rest comes in one piece, so that no rate is trusted for longer, and of
the first copy: the end of a second one has the first cancelled, and must be true. The rate of this chunk so far would
not do: a thread that was late finds much of it at once.

The receiver owns the memory. A relay may use it until the receiver releases it, and then sends the rest from the
store's file. So a slow peer holds a buffer only for one piece.

Rejected: smaller pieces, because the last host comes later; digests of parts, or BLAKE3's tree, because bytes would be
verified twice to detect a false peer some milliseconds sooner; keeping the buffer until the last relay ends, because a
few slow peers would use up the pool.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gossipd.core.events import ChunkArriving, ChunkEnding
from gossipd.core.ids import ChunkIndex, DeploymentId, Supplier
from gossipd.core.timing import ENDING_S, ENDING_SHARE, TOLD_SHARE
from gossipd.runtime.buffer_pool import Lease

_PIECES_MIN = 4
_RELAYED_PIECES_MIN = 8  # at both ends, while a relay waits for them: a hop costs an eighth of a fetch
_PIECE_BYTES_MIN = 64 * 1024  # each piece is a system call, and wakes a waiting thread
_LAST_PIECE_S = ENDING_S / 4  # so that the request planned meanwhile leaves in time
_PIECE_S = 0.25  # well below the 0.5 s at which a relay looks silent, also on a slow link

Key = tuple[DeploymentId, ChunkIndex]


class IncomingChunk:
    """One chunk during its arrival. ``view`` is the receiver's until ``release``; others use ``piece``."""

    def __init__(
        self, incoming_chunks: IncomingChunks, key: Key, supplier: Supplier, lease: Lease, *, ending_share: float
    ) -> None:  # fmt: skip
        self.supplier = supplier
        self.view = lease.view
        self.length = len(lease.view)
        self._incoming_chunks = incoming_chunks
        self._key = key
        self._lease = lease
        self._lock = threading.RLock()  # entered without the condition, whose way in is two more calls of Python
        self._changed = threading.Condition(self._lock)
        self._is_listed = False
        self._ending_share = ending_share
        self._first = (0, 0.0)  # the bytes here at the first look, and its time
        self._filled = 0
        self._usual_rate = 0.0
        self._users = 1
        self._hurry: Callable[[int], None] | None = None
        self._is_relayed = False
        self._is_over = False
        self.is_landed = False

    def expect_rate(self, rate: float) -> None:
        """Bytes a second of the supplier's last chunk; 0 if unknown. For the receiver, before the first byte."""
        self._usual_rate = rate

    def on_relay(self, hurry: Callable[[int], None]) -> None:
        """Have ``hurry`` called with the bytes of a piece when the first relay comes. For the receiver."""
        self._hurry = hurry

    def piece_bytes(self, elapsed_s: float, *, is_duplex: bool = False) -> int:
        """How much the receiver should receive next: the bytes of a quarter of a second, an eighth or a quarter of
        the chunk while it is relayed. Pieces end where the chunk is announced and where its end is told.

        ``elapsed_s``: since the first byte was awaited. ``is_duplex``: a relay can make the receiver hurry, and others
        send on its connection. If not, a piece is at most a quarter, and those near the end are small, because the next
        request is sent between two of them.
        """
        rate = self._filled / elapsed_s if elapsed_s > 0 else 0.0
        if self._usual_rate and _PIECES_MIN * self._filled < self.length:  # the first bytes came together
            rate = self._usual_rate
        at_once = self.length if is_duplex else self.length // _PIECES_MIN
        if self._is_relayed:
            at_once = self._relayed_bytes(self._filled)
        piece = max(_PIECE_BYTES_MIN, min(int(rate * _PIECE_S), at_once))
        if not rate:
            return piece
        if (to_told := int(TOLD_SHARE * self.length) - self._filled) > 0:
            return max(_PIECE_BYTES_MIN, min(piece, to_told))
        left = self.length - self._filled
        is_told = is_duplex and not self._ending_share
        to_end = 0 if is_told else left - int(min(ENDING_SHARE * self.length, rate * ENDING_S))
        if to_end <= 0 and not is_duplex:
            return max(_PIECE_BYTES_MIN, min(piece, int(rate * _LAST_PIECE_S)))
        to_next = to_end if to_end > 0 else left
        if to_next <= piece + piece // 2 and not self._is_relayed:
            return max(_PIECE_BYTES_MIN, to_next)  # rather than a small rest
        return max(_PIECE_BYTES_MIN, min(piece, to_next))

    def advance(self, filled: int, *, by_clock: bool = False) -> None:
        """The first ``filled`` bytes are here. For the receiver. ``by_clock``: the end may be told before it is near,
        with the seconds until then.
        """
        if not self._first[0]:
            self._first = (filled, time.monotonic())
        with self._lock:
            self._filled = filled
            if self._is_relayed:  # a relay says so before it waits
                self._changed.notify_all()
        is_new = not self._is_listed and filled < self.length and filled >= TOLD_SHARE * self.length
        if is_new:
            is_new = self._is_listed = self._incoming_chunks.list(self._key, self)
        ending_at_s = self._ending_at_s(filled, by_clock=by_clock) if self._ending_share else None
        if ending_at_s is not None:
            self._ending_share = 0.0
        if is_new:
            self._incoming_chunks.post(ChunkArriving(*self._key, self.supplier, ending_at_s))
        elif ending_at_s is not None:
            self._incoming_chunks.post(ChunkEnding(*self._key, self.supplier, ending_at_s))

    def _ending_at_s(self, filled: int, *, by_clock: bool) -> float | None:
        """When the end is near, by the planner's clock; None while that is not known."""
        now, ahead_s = time.monotonic(), self._incoming_chunks.clock_ahead_s
        rate = self._usual_rate if by_clock and self._is_listed else 0.0
        if rate and 0 < (left_s := (self.length - filled) / rate) <= _PIECE_S:
            return now + ahead_s + max(0.0, left_s - min(ENDING_S, self._ending_share * self.length / rate))
        return now + ahead_s if self._is_ending(filled, now) else None

    def _is_ending(self, filled: int, now: float) -> bool:
        left = self.length - filled
        if not 0 < left <= self._ending_share * self.length:
            return False
        before, at_s = self._first
        return left * (now - at_s) <= ENDING_S * (filled - before)

    def land(self) -> None:
        """The chunk is verified and in the store. For the receiver."""
        self.is_landed = True

    def release(self) -> None:
        """End the receiver's use: relays continue from the store if the chunk has landed, else they end. Idempotent."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
            self._changed.notify_all()
        if self._is_listed:
            self._incoming_chunks.drop(self._key, self)
        if 0 < self._filled < self.length:
            self._incoming_chunks.ended_early(self._key, self._filled)
        self._let_go()

    @contextmanager
    def piece(self, at: int, timeout_s: float) -> Iterator[memoryview | None]:
        """A piece beyond the first ``at`` bytes, never with the last byte; waits for some.

        Yields: bytes valid inside the context; empty after ``timeout_s`` without any; None at the end (``is_landed``).
        """
        if not self._is_relayed:
            self._is_relayed = True
            if self._hurry is not None:
                self._hurry(self._relayed_bytes(self.length // 2))
        with self._lock:
            if not self._is_over and self._ready(at) <= at:
                self._changed.wait(timeout_s)
            is_over = self._is_over
            ready = min(self._ready(at), at + self._relayed_bytes(at))
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

    def _relayed_bytes(self, at: int) -> int:
        """The largest piece from there while a relay waits: small at both ends, where it delays the relay."""
        is_between = TOLD_SHARE <= at / self.length < 1 - 1 / _PIECES_MIN
        return max(self.length // (_PIECES_MIN if is_between else _RELAYED_PIECES_MIN), _PIECE_BYTES_MIN)

    def _ready(self, at: int) -> int:
        return max(at, min(self._filled, self.length - 1))

    def _let_go(self) -> None:
        with self._lock:
            self._users -= 1
            is_last = self._users == 0
        if is_last:
            self._lease.release()

    def __enter__(self) -> IncomingChunk:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class IncomingChunks:
    """The arriving chunks of this host that it may relay. Thread-safe. ``post``: receives, in the receiver's thread,
    each chunk that may be requested from now on, and each of which little is left soon; must be quick. A second fetch
    of a chunk is listed if it continues after the first has ended. ``clock_ahead_s``: the time by the
    planner's clock, less that by the monotonic one.
    """

    def __init__(
        self, post: Callable[[ChunkArriving | ChunkEnding], None] = lambda event: None, *, clock_ahead_s: float = 0.0
    ) -> None:
        self.post, self.clock_ahead_s = post, clock_ahead_s
        self._lock = threading.Lock()
        self._incoming_chunks: dict[Key, IncomingChunk] = {}
        self._cut_off: Counter[DeploymentId] = Counter()

    def ended_early(self, key: Key, filled: int) -> None:
        """Of a chunk only so many bytes have come: its fetch was cancelled, or broke off."""
        with self._lock:
            self._cut_off[key[0]] += filled

    def take_cut_off(self) -> dict[DeploymentId, int]:
        """The bytes of chunks that did not come whole, by deployment, since the last call."""
        with self._lock:
            found, self._cut_off = self._cut_off, Counter()
        return dict(found)

    def begin(
        self, deployment: DeploymentId, chunk: ChunkIndex, supplier: Supplier, lease: Lease, *,
        ending_share: float = ENDING_SHARE,
    ) -> IncomingChunk:  # fmt: skip
        """A chunk will be received into ``lease``, which the result owns from now on. ``ending_share``: the largest
        share of the chunk that is left when it counts as ending; 0 when more chunks of the supplier follow it.
        """
        return IncomingChunk(self, (deployment, chunk), supplier, lease, ending_share=ending_share)

    def find(self, deployment: DeploymentId, chunk: ChunkIndex) -> IncomingChunk | None:
        """The arriving chunk that may be relayed now."""
        with self._lock:
            return self._incoming_chunks.get((deployment, chunk))

    def list(self, key: Key, incoming: IncomingChunk) -> bool:
        """Let others find it; False while another arrival of the same chunk is listed."""
        with self._lock:
            return self._incoming_chunks.setdefault(key, incoming) is incoming

    def drop(self, key: Key, incoming: IncomingChunk) -> None:
        with self._lock:
            if self._incoming_chunks.get(key) is incoming:
                del self._incoming_chunks[key]
