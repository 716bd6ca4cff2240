"""Counters seen from each sender, so that a datagram counts once.

Per sender: boot number, highest counter, and one bit for each of the 256 before it (DTLS uses 64; a busy sender
reorders more here). An older boot is refused, a newer one starts afresh. The table is bounded and drops the sender that
was added first. A datagram that then counts twice is harmless: it is idempotent, and acks match our own numbers.
"""

from __future__ import annotations

from collections import OrderedDict

from membership.member import NodeId

_WINDOW = 256
_BITS = (1 << _WINDOW) - 1


class ReplayWindows:
    """One window per sender."""

    def __init__(self, senders_max: int) -> None:
        self._senders_max = senders_max
        self._seen: OrderedDict[NodeId, tuple[int, int, int]] = OrderedDict()

    def is_fresh(self, node: NodeId, boot: int, counter: int) -> bool:
        """True once per (node, boot, counter), which it notes."""
        known = self._seen.get(node)
        if known is None:
            self._seen[node] = (boot, counter, 1)
            if len(self._seen) > self._senders_max:
                self._seen.popitem(last=False)
            return True
        last_boot, top, bits = known
        if boot != last_boot:
            if boot < last_boot:
                return False
            self._seen[node] = (boot, counter, 1)
            return True
        ahead = counter - top
        if ahead > 0:
            self._seen[node] = (boot, counter, (bits << ahead | 1) & _BITS if ahead < _WINDOW else 1)
            return True
        bit = 1 << -ahead
        if -ahead >= _WINDOW or bits & bit:
            return False
        self._seen[node] = (boot, top, bits | bit)
        return True

    def __len__(self) -> int:
        return len(self._seen)
