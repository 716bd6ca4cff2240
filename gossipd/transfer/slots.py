"""Upload slots: how many bodies go out at once, in all and per peer.

What lives here: counting, and an estimate of when one will be free. What does not: queueing; there is none, since a
blind queue lost more in simulation than asking elsewhere. Also rejected: one place to wait in.
Where a chunk takes as long as a question it spares half of the refusals and a third of a point (16 hosts, chunks of
42 ms, simulated); where it takes longer, 250 hosts are 3 to 6 chunk times later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from membership.member import NodeId

_SMOOTHING = 0.2  # weight of the newest upload's duration: some ten uploads are remembered
RETRY_AFTER_S_MAX = 5.0


class UploadSlots:
    """``acquire`` never waits. Thread-safe.

    Args:
        on_change: called with the number of free slots after every change, from any thread; must be quick.
    """

    def __init__(self, slots: int, slots_per_peer: int, *, on_change: Callable[[int], None] | None = None) -> None:
        self._slots = slots
        self._slots_per_peer = slots_per_peer
        self._on_change = on_change
        self._lock = threading.Lock()
        self._busy = 0
        self._by_peer: dict[NodeId, int] = {}
        self._upload_s = 0.0

    @property
    def free(self) -> int:
        """Uploads that could begin now."""
        return max(0, self._slots - self._busy)

    @property
    def busy(self) -> int:
        """Uploads under way."""
        return self._busy

    @property
    def retry_after_s(self) -> float:
        """When a slot is likely to be free: uploads that last ``t`` end every ``t / slots``."""
        return min(self._upload_s / self._slots, RETRY_AFTER_S_MAX)

    def resize(self, slots: int) -> None:
        """From now on so many at once; those under way go on. ``slots`` is at least 1."""
        with self._lock:
            self._slots = slots
            free = max(0, slots - self._busy)
        if self._on_change is not None:
            self._on_change(free)

    def acquire(self, node: NodeId) -> bool:
        """Take a slot for ``node``; False if there is none for it."""
        with self._lock:
            own = self._by_peer.get(node, 0)
            if self._busy >= self._slots or own >= self._slots_per_peer:
                return False
            self._busy += 1
            self._by_peer[node] = own + 1
            free = max(0, self._slots - self._busy)
        if self._on_change is not None:
            self._on_change(free)
        return True

    def release(self, node: NodeId, started: float) -> None:
        """Give a slot back; ``started`` is the monotonic time at which it was taken."""
        elapsed = time.monotonic() - started
        with self._lock:
            own = self._by_peer[node] - 1
            if own:
                self._by_peer[node] = own
            else:
                del self._by_peer[node]
            self._busy -= 1
            self._upload_s += _SMOOTHING * (elapsed - self._upload_s)
            free = max(0, self._slots - self._busy)
        if self._on_change is not None:
            self._on_change(free)
