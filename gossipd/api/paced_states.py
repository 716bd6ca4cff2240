"""The pace at which states of hosts become events: a thousand hosts begin, and end, within the same seconds.

What lives here: which of them may be told now, and which wait. What does not: what is told (``daemon.event_feed``).

At most ``PER_S`` a second are told after a burst of ``BURST``, which a hundred hosts do not fill. What somebody must
cure, and what has ended, goes first. Of a host that says more while it waits only the latest is told, in the place of
the first: so a reader ends with the state of every host, and the number that waits is bounded. Rejected: dropping
ordinary states in large clusters, because a reader could not tell a host that began from one that did not.
"""

from __future__ import annotations

from msgspec import Struct, field

from gossipd.api.events import HostStateEvent

BURST, PER_S = 250, 15.0  # under 20 a second over any minute, with room for events of other types
WAITING_MAX = 10_000  # of hosts and deployments; the ring keeps as many
_ENDED = frozenset({"complete", "failed", "cancelled", "expired", "removed", "evicted"})


class PacedStates(Struct):
    """One owner; times are seconds of one clock."""

    _waiting: tuple[dict[tuple[str, str], HostStateEvent], ...] = field(default_factory=lambda: ({}, {}, {}))
    """What must be cured; what has ended; the rest."""
    _allowed: float = BURST
    _at_s: float = 0.0

    def offer(self, event: HostStateEvent) -> None:
        """A host tells another state. It comes out of ``take``, unless a later one of that host does."""
        key = event.host, event.deployment
        lane = 0 if event.reason else 1 if event.state in _ENDED else 2
        for one in self._waiting:
            if key in one and one is not self._waiting[lane]:
                del one[key]
        if key in self._waiting[lane] or self.count < WAITING_MAX:
            self._waiting[lane][key] = event

    @property
    def count(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiting))

    def take(self, now: float) -> list[HostStateEvent]:
        """What may be told now."""
        self._allowed = min(float(BURST), self._allowed + max(0.0, now - self._at_s) * PER_S)
        self._at_s = now
        told = []
        for lane in self._waiting:
            while lane and self._allowed >= 1.0:
                self._allowed -= 1.0
                told.append(lane.pop(next(iter(lane))))
        return told
