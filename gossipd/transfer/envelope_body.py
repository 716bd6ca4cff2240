"""A signed envelope as it arrives: memory that grows with what came, as nothing proves that there is one of that size.

What lives here: the bytes of all envelopes under way, and giving up one that cannot end in time. What does not: the
request and its reply (``client``), and whose pull goes first (``deployment.unproven``).

The size is what gossip told, and a member may tell what it likes. So envelopes take no buffer of the pool that chunks
need: two announced ones of 50 MiB would hold all of it for as long as a pull may last. A small envelope always has
room; what is beyond is counted, for all peers and for each, so that one cannot take all. Where there is no room left
the pull ends, and is tried again: a wait would hold what it has.
"""

from __future__ import annotations

import threading
import time
from collections import Counter

from gossipd.runtime.rate_limit import RateLimit
from gossipd.transfer import errors
from gossipd.transfer.channel import Channel
from gossipd.transfer.settings import MANIFEST_BYTES_MAX
from membership.member import NodeId

PIECE_BYTES = 128 * 1024
SMALL_BYTES = 1024 * 1024  # of each envelope that need no room; as many as there are pulls at once
IN_ALL_BYTES, PER_PEER_BYTES = 2 * MANIFEST_BYTES_MAX, MANIFEST_BYTES_MAX
_JUDGED_SHARE = 4  # after that part of its time a body has a rate


class EnvelopeRoom:
    """Counts the bytes of envelopes beyond their first. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: Counter[NodeId] = Counter()

    def take(self, node: NodeId, count: int) -> None:
        """Raises FetchCancelledError: others have the room. Retry: later."""
        with self._lock:
            if self._taken.total() + count > IN_ALL_BYTES or self._taken[node] + count > PER_PEER_BYTES:
                raise errors.FetchCancelledError("other manifests take the memory for manifests", code="E_POOL")
            self._taken[node] += count

    def give_back(self, node: NodeId, count: int) -> None:
        """What ``take`` gave."""
        with self._lock:
            self._taken[node] -= count
            if not self._taken[node]:
                del self._taken[node]


def receive_envelope(
    channel: Channel, size: int, deadline: float, *, node: NodeId, room: EnvelopeRoom, throttle: RateLimit
) -> bytes:  # fmt: skip
    """The body of a reply that promised ``size`` bytes, by ``deadline`` on the monotonic clock. Raises TransferError,
    DisconnectedError."""
    body, taken, began = bytearray(), 0, time.monotonic()
    try:
        while len(body) < size:
            piece = bytearray(min(PIECE_BYTES, size - len(body)))
            if beyond := max(0, len(body) + len(piece) - SMALL_BYTES) - taken:
                room.take(node, beyond)
                taken += beyond
            channel.receive_body(memoryview(piece), throttle)
            body += piece
            _check_pace(len(body) / size, began, deadline, time.monotonic())
        return bytes(body)
    finally:
        if taken:
            room.give_back(node, taken)


def _check_pace(share: float, began: float, deadline: float, now: float) -> None:
    """``share``: of the body that is here. At half the pace that it needs it does not end in time."""
    spent = (now - began) / max(deadline - began, 1e-9)
    if spent > 1 / _JUDGED_SHARE and share < spent / 2:
        raise errors.PeerSlowError(f"{share:.0%} of a manifest came in {now - began:.0f} s; it cannot end in time")
