"""Which hosts are so far behind in one deployment that nobody should wait for them, this host among them.

What lives here: the verdict, from how many chunks each is known to hold. What does not: what follows from it, which is
that a slow host has no duties (``roles``), claims no seat (``planner``), is asked only for what no other holds
(``scheduler``), and does not promise what is still on its way to it (``deployment_swarm``).

A slow host that relays is worse than one that does not: with a quarter of the rate and as many fetches as the others
each chunk is on its way for four times as long, and who takes the promise waits for it (1,000 hosts, 200 chunks, 3 % of
them slow: the last healthy host took 1.067 of its time without them, simulated).

What a host was heard to hold is compared with what we held when we heard it, as news may be ``news_lazy_s`` old: in
that time 150 chunks of 16 MiB come over 10 Gbit/s. Compared with what is held now, healthy hosts were slow in the eyes
of some and not of others, whose lines then differed, so that nobody imported (50 hosts in three racks, 200 such chunks:
7.1 instead of 3.3 s, simulated; with up to 48 hosts, where everybody hears everything, it did no harm). Who says
nothing at all is judged by what we held two lazy news ago.

Only who listens to a host knows how much it holds, and who has no duties may be listened to by nobody; so a verdict
stands until the host is heard to have caught up. Without that a slow host became a reader, was heard to be slow, was no
reader any more, was not heard any more and became a reader again, every second; and each time the order of the others
changed, who waited for each other's news (250 hosts with eight slow ones: the last three chunks left storage one after
the other, 28 chunk times late; simulated). Rejected: to judge by the time that fetches take as well. It was a little
better in two simulations (29.5 for 32.5 and 23.7 for 24.0 chunk times behind), but on a full uplink everybody behind it
would be slow, which is an argument and was not measured.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from statistics import median

from gossipd.swarm.availability import Availability
from gossipd.swarm.settings import PlannerSettings
from gossipd.swarm.subscriptions import Subscriptions
from membership.member import NodeId


class SlowHosts:
    """The verdicts of one host on one deployment; ``look`` renews them."""

    def __init__(self, settings: PlannerSettings) -> None:
        self._settings = settings
        self.others: frozenset[NodeId] = frozenset()
        self.is_own = False
        """Whether this host is one: half of its rack mates are that far ahead."""
        self._unheard = settings.lag_chunks  # so many may be under way to a healthy host, or news of them to us
        self._counted_s: list[float] = []  # when we held ...
        self._counts: list[int] = []  # ... so much
        self._rack_peers_held = 0.0  # by half of the rack mates; 0 when that says nothing

    def look(
        self, availability: Availability, listened: Subscriptions, rack_peers: Collection[NodeId], *,
        held: int, missing: int, chunk_time_s: float, now: float,
    ) -> None:  # fmt: skip
        """Judge anew.

        Args:
            listened: only what comes from peers that are listened to is fresh.
            held: chunks that this host holds; ``missing``: those that it does not.
            chunk_time_s: what one chunk takes on a healthy host's link.
        """
        settings = self._settings
        self._unheard = min(settings.lag_chunks, settings.behind_chunks + int(2 * settings.news_lazy_s / chunk_time_s))
        count_of, heard = availability.count_of, listened.heard_s
        self._count(held, now)
        floor, patient_s = self._floor(held), now - 2 * settings.news_lazy_s
        behind = [node for node in heard if count_of(node) < floor]
        self.others = frozenset(
            [node for node in behind if count_of(node) < self._floor(self._held_at(max(heard[node], patient_s)))]
            + [node for node in self.others if node not in heard]
        )
        counts = [count_of(node) for node in rack_peers if node in heard] if missing else []
        self._rack_peers_held = median(counts) if len(counts) >= 2 else 0.0
        self.is_own = held < self._floor(self._rack_peers_held)

    def _count(self, held: int, now: float) -> None:
        if not self._counts or self._counts[-1] != held:
            self._counted_s.append(now)
            self._counts.append(held)
        old = bisect_right(self._counted_s, now - 2 * self._settings.news_lazy_s) - 1
        if old > 0:
            del self._counted_s[:old], self._counts[:old]

    def _held_at(self, when: float) -> int:
        """By this host; the oldest that is remembered for what was before."""
        return self._counts[max(0, bisect_right(self._counted_s, when) - 1)]

    def _floor(self, held: float) -> float:
        return self._settings.lag_share * held - self._unheard

    def may_promise(self, held: int) -> bool:
        """Whether a host that holds so much by now is as good a relay as its mates."""
        return held >= self._rack_peers_held - self._settings.behind_chunks
