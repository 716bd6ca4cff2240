"""Which hosts are so far behind in one deployment that no host should wait for them, this host among them.

What lives here: the verdict, from the number of chunks that each host is known to hold. What does not: the
consequences. A slow host has no roles (``roles``), gives up its claim (``planner``), is asked only for what no other
host holds (``scheduler``; but for those of a ``useful`` uplink, see ``arrival_rates``), and promises no chunk before it
is here (``deployment_swarm``), or peers wait for its link.

What a host was heard to hold is compared with what this host held at that moment, because a delta may be
``news_lazy_s`` old; older ones are short of fewer than ``behind_chunks``. Rejected: comparing with what is held now,
because hosts then disagree about who is slow, their preference lists differ, and no host imports. A silent host is
compared with what this host held two lazy rounds ago.

A verdict stands until the host is heard to have caught up, because a host without roles may have no listener; else it
would become a source reader, be heard to be slow, lose role and listeners, and become a reader again, and all
preference lists would change each time. Rejected: judging by fetch times, because a full uplink makes all slow.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection

from gossipd.core.median import median
from gossipd.swarm.availability import Availability
from gossipd.swarm.neighbour_subscriptions import NeighbourSubscriptions
from gossipd.swarm.settings import PlannerSettings
from membership.member import NodeId


class SlowHosts:
    """The verdicts of one host on one deployment; ``look`` updates them."""

    def __init__(self, settings: PlannerSettings) -> None:
        self._planner_settings = settings
        self.others: frozenset[NodeId] = frozenset()
        self.is_own = False
        """Whether this host is slow: half of its rack peers are that far ahead."""
        self._unheard = settings.lag_chunks  # chunks under way to a healthy host, or told by a delta that is
        self._counted_s: list[float] = []  # times at which ``_counts`` changed
        self._counts: list[int] = []  # chunks held from then on
        self._rack_peers_held = 0.0  # median of the rack peers; 0 when too few are known

    def look(
        self, availability: Availability, listened: NeighbourSubscriptions, rack_peers: Collection[NodeId], *,
        held: int, missing: int, chunk_time_s: float, now: float,
    ) -> None:  # fmt: skip
        """Judge all hosts.

        Args:
            listened: only what comes from peers that this host listens to is fresh.
            held: chunks that this host holds; ``missing``: those that it does not.
            chunk_time_s: what one chunk takes on a healthy host's link.
        """
        settings = self._planner_settings
        self._unheard = min(settings.lag_chunks, settings.behind_chunks + int(2 * settings.news_lazy_s / chunk_time_s))
        counts, heard = availability.counts, listened.heard_s
        self._count(held, now)
        floor, patient_s = self._floor(held), now - 2 * settings.news_lazy_s
        behind = [node for node in heard if counts.get(node, 0) < floor] if floor > 0 else []
        self.others = frozenset(
            [node for node in behind if counts.get(node, 0) < self._floor(self._held_at(max(heard[node], patient_s)))]
            + [node for node in self.others if node not in heard]
        )
        known = [counts.get(node, 0) for node in rack_peers if node in heard] if missing else []
        self._rack_peers_held = median(known) if len(known) >= 2 else 0.0
        self.is_own = held < self._floor(self._rack_peers_held)

    def _count(self, held: int, now: float) -> None:
        if not self._counts or self._counts[-1] != held:
            self._counted_s.append(now)
            self._counts.append(held)
        old = bisect_right(self._counted_s, now - 2 * self._planner_settings.news_lazy_s) - 1
        if old > 0:
            del self._counted_s[:old], self._counts[:old]

    def _held_at(self, when: float) -> int:
        """Chunks that this host held at a time; for times before its memory, the oldest count."""
        return self._counts[max(0, bisect_right(self._counted_s, when) - 1)]

    def _floor(self, held: float) -> float:
        return self._planner_settings.lag_share * held - self._unheard

    def may_promise(self, held: int) -> bool:
        """Whether a host that holds this many chunks is as good a relay as its rack peers."""
        return held >= self._rack_peers_held - self._planner_settings.behind_chunks
