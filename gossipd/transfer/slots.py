"""Upload slots: how many bodies are sent at once, in total and per peer.

What lives here: counting, and an estimate of when a slot will be free. What does not: queueing, as there is none.

Rejected: a blind queue, because asking elsewhere lost less in simulation; a queue with one place, because it gains
little where a chunk takes as long as a question and delays large clusters where it takes longer.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

from membership.member import NodeId

_SMOOTHING = 0.2  # weight of the newest upload's duration: some ten uploads are remembered
RETRY_AFTER_S_MAX = 5.0


class UploadSlots:
    """``acquire`` never waits. Thread-safe, as ``on_change`` must be: it is told the free slots after each change."""

    def __init__(self, slots: int, slots_per_peer: int, *, on_change: Callable[[int], None] = lambda _: None) -> None:
        self._slots = slots
        self._slots_per_peer = slots_per_peer
        self._on_change = on_change
        self._lock = threading.Lock()
        self.busy = 0
        self._by_peer: Counter[NodeId] = Counter()
        self._upload_s = 0.0

    @property
    def free(self) -> int:
        return max(0, self._slots - self.busy)

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

    def acquire(self, node: NodeId) -> bool:
        """Take a slot for ``node``; False if it can have none."""
        with self._lock:
            own = self._by_peer[node]
            if self.busy >= self._slots or own >= self._slots_per_peer:
                return False
            self.busy += 1
            self._by_peer[node] += 1
            free = self.free
        self._on_change(free)
        return True

    def release(self, node: NodeId, started: float) -> None:
        """Give a slot back; ``started`` is the monotonic time at which it was taken."""
        elapsed = time.monotonic() - started
        with self._lock:
            self._by_peer[node] -= 1
            if not self._by_peer[node]:
                del self._by_peer[node]
            self.busy -= 1
            self._upload_s += _SMOOTHING * (elapsed - self._upload_s)
            free = self.free
        self._on_change(free)
