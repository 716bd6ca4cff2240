"""Upload slots: how many bodies are sent at once, in total and per peer.

What lives here: counting, and an estimate of when a slot will be free. What does not: queueing, as there is none.

Slots are there so that each upload is quick. One that takes far longer than others' takes little of the link, and its
slot is lent to another: few members that read slowly would else hold every slot of every host.

Rejected: a blind queue, because asking elsewhere lost less in simulation; a queue with one place, because it gains
little where a chunk takes as long as a question and delays large clusters where it takes longer.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from gossipd.core.median import median
from membership.member import NodeId

# An upload this long, at so small a share of the median rate of other peers, is slow: its peer has one slot for a
# while, so that few slow readers cannot hold every slot. Relative, because on a slow network every upload is slow; the
# median, because each peer has one vote in it.
SLOW_S, SLOW_SHARE, SLOW_MEMORY_S = 3.0, 1 / 8, 60.0
# Its slot is lent sooner, because that says nothing against the peer: soonest that of a peer which has not yet read an
# upload to its end, as each slow reader is at first.
LENT_S, UNPROVEN_SHARE = 1.0, 1 / 2
# Before a host has sent anything, the rate at which it receives stands for the median. While that is not known, either,
# an upload this long is slow. So many slots are lent then as there are; then one at a time, when all uploads are that
# long, until one ends: more slow readers than slots would else close a host that has sent nothing.
UNKNOWN_S = 10.0
RATES_MAX = 1024
_SMOOTHING = 0.2  # weight of the newest upload's duration: some ten uploads are remembered
RETRY_AFTER_S_MAX = 5.0


class _Upload(NamedTuple):
    """``length`` is not known of what is no body."""

    length: int | None
    started: float


class UploadSlots:
    """``acquire`` never waits. Thread-safe, as ``on_change`` must be: it is told the free slots after each change."""

    def __init__(self, slots: int, slots_per_peer: int, *, on_change: Callable[[int], None] = lambda _: None) -> None:
        self._slots = slots
        self._slots_per_peer = slots_per_peer
        self._on_change = on_change
        self._lock = threading.Lock()
        self.busy = 0
        self._by_peer: dict[NodeId, list[_Upload]] = {}
        self._lent = 0
        self._upload_s = 0.0
        self._rates: OrderedDict[NodeId, float] = OrderedDict()
        self._receiving_rate = 0.0  # bytes/s of one chunk that comes here; 0 while unknown
        self._slow: dict[NodeId, float] = {}

    @property
    def free(self) -> int:
        return max(0, self._slots - self.busy + self._lent)

    @property
    def retry_after_s(self) -> float:
        """When a slot is likely to be free: uploads that last ``t`` end every ``t / slots``."""
        return min(self._upload_s / self._slots, RETRY_AFTER_S_MAX)

    def resize(self, slots: int) -> None:
        """Set the number of slots, at least 1; uploads in progress continue."""
        with self._lock:
            self._slots = slots
            free = self.free
        self._on_change(free)

    def acquire(self, node: NodeId, length: int | None = None) -> bool:
        """Take a slot for ``node``, which asks for a body of that length; False if it can have none."""
        now = time.monotonic()
        with self._lock:
            own = self._by_peer.get(node, [])
            self._lent = self._slow_count(now)
            is_slow = bool(own) and (self._is_slow(node) or self._slow_of((node,), now) > 0)
            # Of the last half, a peer that has not yet read an upload to its end may have one: else slow readers would
            # hold every slot until each of them is known.
            is_ample = node in self._rates or 2 * self.free >= self._slots
            most = self._slots_per_peer if is_ample else 1
            if not self.free or len(own) >= most or is_slow:
                return False
            self.busy += 1
            self._by_peer[node] = [*own, _Upload(length, now)]
            free = self.free
        self._on_change(free)
        return True

    def release(self, node: NodeId, started: float) -> None:
        """Give a slot back; ``started`` is the monotonic time at which it was taken."""
        elapsed = time.monotonic() - started
        with self._lock:
            own = self._by_peer[node]
            own.remove(min(own, key=lambda one: abs(one.started - started)))
            if not own:
                del self._by_peer[node]
            self.busy -= 1
            self._lent = self._slow_count(time.monotonic())
            self._upload_s += _SMOOTHING * (elapsed - self._upload_s)
            free = self.free
        self._on_change(free)

    def note_upload(self, node: NodeId, byte_count: int, started: float) -> None:
        """A chunk of ours went to ``node``, or was cut because it read too slowly (0 bytes)."""
        now = time.monotonic()
        elapsed = now - started
        with self._lock:
            self._rates.pop(node, None)
            is_long = elapsed >= SLOW_S and bool(self._rates)
            if is_long and byte_count < SLOW_SHARE * median(self._rates.values()) * elapsed:
                self._slow[node] = now + SLOW_MEMORY_S
            self._rates[node] = byte_count / max(elapsed, 1e-6)
            if len(self._rates) > RATES_MAX:
                self._slow.pop(self._rates.popitem(last=False)[0], None)

    def note_received(self, byte_count: int, elapsed_s: float) -> None:
        """A chunk has come here. Only the latest counts, and only before this host has sent one."""
        self._receiving_rate = byte_count / max(elapsed_s, 1e-6)

    def _usual_rate(self) -> float:
        return median(self._rates.values()) if self._rates else self._receiving_rate

    def _slow_count(self, now: float) -> int:
        """Uploads whose slots are lent."""
        count = self._slow_of(self._by_peer, now)
        if count < self._slots or self._rates or self._receiving_rate:
            return count
        return max(self._slots, count - self._slots + 1) if count == self.busy else self._slots

    def _slow_of(self, nodes: Iterable[NodeId], now: float) -> int:
        """How many uploads of these peers take far longer than others' do."""
        old = [
            (SLOW_SHARE if node in self._rates else UNPROVEN_SHARE, one.length, now - one.started)
            for node in nodes
            for one in self._by_peer[node]
            if now - one.started >= LENT_S
        ]
        if not old:
            return 0
        if not (usual_rate := self._usual_rate()):
            return sum(length is not None and elapsed >= UNKNOWN_S for _, length, elapsed in old)
        return sum(length is not None and length < share * usual_rate * elapsed for share, length, elapsed in old)

    def _is_slow(self, node: NodeId) -> bool:
        return self._slow.get(node, 0.0) > time.monotonic()
