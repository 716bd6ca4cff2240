"""Which addresses open connections without end and never say who they are: a decision by counts, without sockets.

What lives here: counting for each address, and for how long its new connections are to be dropped. What does not: the
places of connections (``pending_connections``), and the dropping (``connection_filter``). Pure.

Whatever a port does with a stranger's connection, to end it makes the stranger open the next one at once, and each
costs an accept and a thread or a session. Dropped in the kernel, it costs a few instructions, and the stranger's own
kernel waits for one, two, four seconds between its attempts. A connection fails when it ends before its peer has shown
a key that is known, by whichever side. The caller counts none of a member's address: who shares one with a flood gets
in. Rejected: a set of silent connections that are kept, as a stranger who says one byte now and then is not silent;
TCP_DEFER_ACCEPT for the same reason, and as its queue in the kernel is one for strangers and members.
"""

from __future__ import annotations

import math

PORT_FAILURES_MAX = 100
"""More failures within ``WINDOW_S``, of all addresses together, are a flood. As many cost a hundredth of a processor; a
load balancer's probes and hosts with a wrong key make fewer."""
ADDRESS_FAILURES_MAX = 8
"""Who makes more of them in a flood is a part of it: not a client that tries again with a wrong key."""
WINDOW_S = 10.0
DROP_S = 30.0
"""How long new connections of the address are dropped. Longer costs an address that is wronged more."""
DROPPED_MAX = 128
"""Addresses that are dropped at once; the kernel compares each. A flood from more is bounded by its places alone."""
COUNTED_MAX = 1024
"""Addresses whose failures are counted in one window."""


class FloodingAddresses:
    """Of one port. Not thread-safe. Times are monotonic seconds. ``count``: addresses dropped since the start."""

    def __init__(self) -> None:
        self.count = 0
        self._since = -math.inf  # when the present window began
        self._total = 0
        self._failures: dict[str, int] = {}
        self._until: dict[str, float] = {}  # the next to be let in first

    @property
    def is_counting(self) -> bool:
        """Whether ``authenticated`` can make a difference."""
        return bool(self._failures)

    def failed(self, address: str, now: float) -> None:
        """A connection from this address of no member has ended without authentication."""
        if now - self._since > WINDOW_S:
            self._since, self._total = now, 0
            self._failures.clear()
        if address in self._until:
            return  # it came before the address was dropped
        self._total += 1
        failures = self._failures.get(address, 0) + 1
        if failures <= ADDRESS_FAILURES_MAX or self._total <= PORT_FAILURES_MAX or len(self._until) >= DROPPED_MAX:
            if failures > 1 or len(self._failures) < COUNTED_MAX:
                self._failures[address] = failures
            return
        del self._failures[address]
        self._until[address] = now + DROP_S
        self.count += 1

    def authenticated(self, address: str) -> None:
        """A connection from this address has shown a key that is known: many may share the address."""
        self._failures.pop(address, None)

    def dropped(self, now: float) -> tuple[str, ...]:
        """Addresses whose new connections are to be dropped now."""
        while self._until and next(iter(self._until.values())) <= now:
            del self._until[next(iter(self._until))]
        return tuple(self._until)

    def next_deadline(self) -> float:
        """When ``dropped`` must be asked again without a new connection."""
        return next(iter(self._until.values()), math.inf)
