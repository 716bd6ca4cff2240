"""Picks fetches: pairs of a chunk that may be asked for and the holder to ask.

What lives here: the choice. What does not: which chunks may be asked for (``demand``), what is in flight
(``local_replica``).

Imports go first, because a rack waits for them; among them and among the rest the rarest of a sample wins:
with fresh availability and a small backlog that is within a point of newest-first in homogeneous clusters,
and newest-first loses a third when 3 % of hosts are slow (simulated). Of the holders the one
with the shortest expected wait is asked: its busy slots times how slow it has been, ours counted. A peer with no
free slot is left alone until it says otherwise or a few chunk times have passed. Rejected: choosing the peer
first and then the chunk (rare chunks wait behind popular peers), and queueing at busy peers (blind queues cost
10 to 15 % of efficiency). What follows a fetch that is about to end (``pipelining``) is no such queue: it
waits for our own upload there, whose slot is its own unless another is quicker, and so is asked for before anything
else, but of slow peers.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from gossipd.swarm.availability import Availability
from gossipd.swarm.demand import Demand, IndexedSet
from gossipd.swarm.peers import Peer, Peers
from gossipd.swarm.pipelining import Pipelining
from gossipd.swarm.settings import PlannerSettings
from membership.member import NodeId

_SAMPLE = 12  # rarest of 8 to 32 differ by a tenth of a point (simulated)
_STALE_CHUNK_TIMES = 0.75  # a slot of a busy peer frees within about that when it serves some at a time
_STALE_S_MAX = 4.0  # of large chunks on slow links; with 0.5 each host asked in vain ten times a second
_FOLLOW_COST = 0.5  # less than any other: up to 1.5 is as good, 3 is worse by half a point (simulated lab)
# Of the last chunks each is asked for where a slot is free: what they would follow may be slow, and nothing else is
# left to do meanwhile. A chunk time less for the last of sixteen hosts; with 14 no difference (simulated lab).
_LAST_CHUNKS = 4
_GOOD_COST = 2.2  # nothing of ours in flight there, and most slots free: looking further gains less than a slot


class Pick(NamedTuple):
    """One fetch to begin."""

    chunk: int
    node: NodeId
    behind: int | None
    """The chunk whose fetch from there is about to end, and which it follows."""


class Scheduler:
    """Chooses for one deployment. Changes nothing but the peers' count of what we ask of them, and ``pipelining``."""

    def __init__(
        self, availability: Availability, demand: Demand, peers: Peers, pipelining: Pipelining, *,
        settings: PlannerSettings, rng: Random,
    ) -> None:  # fmt: skip
        self._availability = availability
        self._demand = demand
        self._peers = peers
        self._pipelining = pipelining
        self._settings = settings
        self._rng = rng
        self.asked_max = settings.fetches_per_peer_max
        """Most fetches in flight from one peer."""
        self.slow: frozenset[NodeId] = frozenset()
        """Who is asked only for what no other peer holds."""
        self.all_busy = False
        """Whether the last pick ended because no holder had a free slot."""

    def pick(self, count: int, now: float, chunk_time_s: float, *, imports_max: int) -> list[Pick]:
        """At most ``count`` fetches; the peers know of them, ``demand`` does not yet.

        Args:
            chunk_time_s: what one chunk takes on this host's link.
            imports_max: most of them from other racks.
        """
        picked: list[Pick] = []
        self.all_busy = False
        stale_s = min(_STALE_S_MAX, _STALE_CHUNK_TIMES * chunk_time_s)
        imports, ready = self._demand.imports, self._demand.near
        for chunks, near, most in ((imports, False, min(count, imports_max)), (ready, True, count)):
            while len(picked) < most and len(chunks):
                choice = self._pick_one(chunks, near=near, now=now, stale_s=stale_s)
                if choice is None:
                    self.all_busy = True
                    break
                picked.append(choice)
                self._demand.unwant(choice.chunk)
        return picked

    def _pick_one(self, chunks: IndexedSet, *, near: bool, now: float, stale_s: float) -> Pick | None:
        sample = chunks.sample(_SAMPLE, self._rng)
        lists = self._availability.near if near else self._availability.far
        if len(sample) > 1:
            rng = self._rng.random
            sample = [chunk for _, _, chunk in sorted([(len(lists.get(chunk, ())), rng(), chunk) for chunk in sample])]
        may_follow = len(self._demand.wanted) > _LAST_CHUNKS
        best: tuple[float, int, Peer] | None = None
        for place, chunk in enumerate(sample):
            holders = self._availability.near_holders(chunk) if near else self._availability.far_holders(chunk)
            found = self.supplier(holders, now, stale_s, may_follow=may_follow)
            if found is not None:
                cost = found[0] + place * self._settings.rarity_weight
                if best is None or cost < best[0]:
                    best = (cost, chunk, found[1])
                    if cost < _GOOD_COST:
                        break
        if best is None:
            return None
        self._peers.started(best[2])
        node = best[2].view.node
        return Pick(best[1], node, self._pipelining.take(node) if may_follow else None)

    def supplier(
        self, holders: list[NodeId], now: float, stale_s: float, *, but: NodeId | None = None, may_follow: bool = False
    ) -> tuple[float, Peer] | None:
        """The holder with the shortest expected wait, and that; None when all are busy, shunned or out of reach.

        Args:
            may_follow: ask rather where one of our fetches is about to end.

        While one that is not slow can be waited for, no slow one is asked: it has free slots because nobody asks it.
        """
        if self.slow and not self.slow.isdisjoint(holders):
            get = self._peers.get
            others = [node for node in holders if node != but and node not in self.slow]
            quick = [node for node in others if (one := get(node)) and one.usable(now)]
            holders = quick or holders
        best: Peer | None = None
        best_cost = 0.0
        rng = self._rng.random
        asked_max, weight = self.asked_max, self._settings.busy_weight
        slots, slow_s = self._peers.slots_most, self._peers.slow_s()
        get, pipelining = self._peers.get, self._pipelining
        for node in holders:
            peer = get(node)
            if peer is None:
                continue
            if may_follow and node in pipelining and peer.elapsed_s <= slow_s and peer.usable(now):
                cost = _FOLLOW_COST * rng()
                if best is None or cost < best_cost:
                    best, best_cost = peer, cost
                continue
            if peer.asked >= asked_max:
                continue
            free = peer.free
            if free <= 0:
                if now - peer.free_at < stale_s * (0.5 + rng()):
                    continue
                free = 0
            if node == but or not peer.usable(now):
                continue
            cost = peer.asked + 1 + (weight * (slots - free) if free < slots else 0.0)
            if peer.elapsed_s > slow_s:
                cost *= peer.elapsed_s / self._peers.usual_s
            cost += rng()
            if best is None or cost < best_cost:
                best, best_cost = peer, cost
        return None if best is None else (best_cost, best)
