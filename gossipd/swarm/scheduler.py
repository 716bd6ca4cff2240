"""Picks fetches: pairs of a chunk that may be asked for and the holder to ask.

What lives here: the choice. What does not: which chunks may be asked for (``demand``), flights (``local_replica``).

Imports for which the rack waits go first, then a share of those that nobody else there wants; of a sample the rarest
chunk goes before the others. Rejected: newest first, because it loses a third when a few hosts are slow. Of its holders
the one with the shortest expected wait is asked: its busy slots, our own requests counted, times its slowness. A peer
without a free slot is left alone until it tells of one or about a chunk time has passed. Rejected: choosing the peer
before the chunk, because rare chunks wait behind popular peers; queueing at busy peers, because blind queues cost
efficiency. Pipelined requests are no blind queue: they inherit the upload slot of a fetch that is about to end, and are
tried first, except at slow peers.

A host of a slower link asks rack peers like it first. Rejected: to ask such hosts of other racks too, because each
chunk would enter a rack twice, and no host sees what its rack's uplink can bear.
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

_SAMPLE = 12  # samples of 8 to 32 do equally well
_STALE_CHUNK_TIMES = 0.75  # a peer that serves several uploads at a time frees a slot within about that
_STALE_S_MAX = 4.0  # for large chunks on slow links; less asks busy peers in vain
_FOLLOW_COST = 0.5  # less than any other cost
# The last chunks are asked for where a slot is free, and never pipelined: the fetch before may be slow, and nothing
# else is left to do meanwhile.
_LAST_CHUNKS = 4
_QUICK_COST = 1.0  # to a host of a slower link, as one more of its fetches there would; 1 to 5 do nearly equally well
_DOUBTED_COST = 10.0  # to one that sends nothing, which is idle therefore: more than to any other with a free slot
_GOOD_COST = 2.2  # nothing of ours in flight there, and most slots free: a better holder would gain less than a slot


class Pick(NamedTuple):
    """One fetch to begin."""

    chunk: int
    node: NodeId
    behind: int | None
    """The chunk after which this one is requested, on the same connection, because its fetch is about to end."""


class Scheduler:
    """Chooses for one deployment. Changes only the peers' counts of our requests, ``pipelining`` and ``demand``."""

    def __init__(
        self, availability: Availability, demand: Demand, peers: Peers, pipelining: Pipelining, *,
        settings: PlannerSettings, rng: Random,
    ) -> None:  # fmt: skip
        self._availability = availability
        self._demand = demand
        self._peers = peers
        self._pipelining = pipelining
        self._planner_settings = settings
        self._rng = rng
        self.asked_max = settings.fetches_per_peer_max
        """Most fetches in flight from one peer."""
        self.slow: frozenset[NodeId] = frozenset()
        """Peers that are asked only for chunks that no other peer holds."""
        self.equals: frozenset[NodeId] = frozenset()
        """Where this host's link is much slower than others': the rack peers whose links are like it. They are asked
        first, and only they one fetch after another, because quick hosts wait for the uplinks of the others."""
        self.behind: frozenset[NodeId] = frozenset()
        """Peers whose links are slow: of other racks' they are not asked for what rack peers hold."""
        self.all_busy = False
        """Whether the last pick ended because no holder had a free slot."""

    def pick(
        self, count: int, now: float, chunk_time_s: float, *, imports_max: int, own_max: int = 0, far_max: int = 0
    ) -> list[Pick]:  # fmt: skip
        """At most ``count`` fetches; ``peers`` counts them as begun, and ``demand`` no longer offers them.
        ``chunk_time_s``: what one chunk takes on this host's link. ``imports_max``: most of them from other racks;
        ``own_max``: most of these for this host alone. ``far_max``: most fetches from other racks of what busy rack
        peers hold; each is a second import."""
        picked: list[Pick] = []
        self.all_busy = False
        stale_s = min(_STALE_S_MAX, _STALE_CHUNK_TIMES * chunk_time_s)
        demand = self._demand
        for chunks, near, room in (
            (demand.imports, False, imports_max), (demand.own_imports, False, own_max), (demand.near, True, count)
        ):  # fmt: skip
            most = min(count, len(picked) + room)
            while len(picked) < most and len(chunks):
                choice = self._pick_one(chunks, near=near, now=now, stale_s=stale_s)
                if choice is None:
                    self.all_busy = True
                    break
                picked.append(choice)
                self._demand.unwant(choice.chunk)
        most = min(count, len(picked) + far_max)
        while self.all_busy and len(picked) < most and len(demand.near):
            choice = self._pick_one(demand.near, near=False, now=now, stale_s=stale_s, but=self.behind)
            if choice is None:
                break
            picked.append(choice)
            self._demand.unwant(choice.chunk)
        return picked

    def _pick_one(
        self, chunks: IndexedSet, *, near: bool, now: float, stale_s: float, but: frozenset[NodeId] = frozenset()
    ) -> Pick | None:  # fmt: skip
        sample = chunks.sample(_SAMPLE, self._rng)
        lists = self._availability.near if near else self._availability.far
        if len(sample) > 1:
            rng = self._rng.random
            sample = [chunk for _, _, chunk in sorted([(len(lists.get(chunk, ())), rng(), chunk) for chunk in sample])]
        # Rarest first; the random number breaks ties, or all hosts would ask for the same chunk.
        may_follow = len(self._demand.wanted) > _LAST_CHUNKS
        best: tuple[float, int, Peer] | None = None
        for place, chunk in enumerate(sample):
            holders = self._availability.near_holders(chunk) if near else self._availability.far_holders(chunk)
            if but:
                holders = [one for one in holders if one not in but]
            found = self.supplier(holders, now, stale_s, may_follow=may_follow)
            if found is not None:
                cost = found[0] + place * self._planner_settings.rarity_weight
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
        """The holder with the shortest expected wait, and that wait; None when all are busy, shunned or out of reach.
        ``but``: a holder that is not asked. ``may_follow``: prefer a peer from which a fetch is about to end. No slow
        holder is asked while another can be waited for: it has free slots because no host asks it."""
        if self.slow and not self.slow.isdisjoint(holders):
            get = self._peers.get
            others = [node for node in holders if node != but and node not in self.slow]
            quick = [node for node in others if (one := get(node)) and one.usable(now)]
            holders = quick or holders
        best: Peer | None = None
        best_cost = 0.0
        rng = self._rng.random
        asked_max, weight, equals = self.asked_max, self._planner_settings.busy_weight, self.equals
        slots, slow_s = self._peers.slots_most, self._peers.slow_s()
        doubted = self._peers.doubted
        known, following = self._peers.records, self._pipelining.chunks if may_follow else ()
        for node in holders:
            peer = known.get(node) or self._peers.get(node)
            if peer is None:
                continue
            more = _QUICK_COST if equals and node not in equals else 0.0
            if node in following and not more and peer.elapsed_s <= slow_s and peer.usable(now):
                cost = _FOLLOW_COST * rng()
                if best is None or cost < best_cost:
                    best, best_cost = peer, cost
                continue
            if peer.asked >= asked_max:
                continue
            free = peer.free
            if free <= 0:
                # The draw spreads the retries of the hosts that were refused together.
                if now - peer.free_at < stale_s * (0.5 + rng()):
                    continue
                free = 0
            if node == but or peer.shunned_until > now or not peer.member or not peer.reachable:
                continue
            cost = peer.asked + 1 + (weight * (slots - free) if free < slots else 0.0)
            if peer.elapsed_s > slow_s:
                cost *= peer.elapsed_s / self._peers.usual_s
            cost += more + rng() + (_DOUBTED_COST if node in doubted else 0.0)
            if best is None or cost < best_cost:
                best, best_cost = peer, cost
        return None if best is None else (best_cost, best)
