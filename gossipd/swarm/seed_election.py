"""Elects the seeds of each rack by sticky claims on member records, without an election round.

Theory of operation. A candidate is a member of the rack that can read sources. While a rack has its seeds nothing
happens: a better candidate that joins moves no seed. When the rack lacks one, each candidate waits ``claim_rank_s``
times its rank in the rendezvous order and claims the term after the highest it has seen. Of two claims the higher term
wins, then the order; a surplus seed gives up when it hears of the others. A host gives its claim up when membership
calls it isolated (a seed that is cut off reads a second copy) or when it can read no source; a host that has fallen far
behind gives up too and does not claim again for a while. No clocks are compared. An election guards cost, never
correctness. Source: Redis Sentinel's terms.

Sources are judged together: only a host that can read none of them gives up, because a manifest whose source no host
can read must cost no other deployment its seeds.

How many. A seed's uplink gives the first copies of what it reads. The only seed of a cluster must give each chunk away
exactly once, with nothing to spare, and every request that it answers twice delays a first copy; four to eight seeds in
all remove that. At most half of a rack are seeds, because the others' first copies need room on the uplinks.

A member that has never spoken to this host may be made up: its claim takes no seat, and its rack does not count. It may
still be waited for, a little, as a candidate.
"""

from __future__ import annotations

import math

from gossipd.core.model import PeerView
from gossipd.swarm.capabilities import SEED_TERM_MAX
from gossipd.swarm.peers import Peers
from gossipd.swarm.rendezvous import scores
from gossipd.swarm.settings import PlannerSettings
from membership.member import NodeId

_SALT = b"gossipd seeds 1"
_SEEDS_OF_FEW_RACKS = 7  # of all racks: seven in one, three in each of two, two in each of three, else one each
_WAITING_MOST = 20  # candidates before this host that it waits for: a member may make up hundreds
_CALM_HOLDS = 10  # times ``quorum_hold_s`` between two holds: made-up racks may vanish again and again
# Claims travel by gossip, in rounds whose number grows with the logarithm of the members': a tenth of
# ``seeds_stable_s``, which is for 1,000, for each doubling, and at least what ranks and a slow start take in a small
# cluster. A host that knows no other has yet to find them.
_STABLE_DOUBLINGS, _STABLE_SHARE_MIN = 10, 1 / 3
_UNSETTLED_MOST = 10  # times ``seeds_stable_s``: longer than a cluster takes to start


class Election:
    """This host's part in its rack's election, and the seeds that it sees in all racks."""

    def __init__(self, own: PeerView, settings: PlannerSettings) -> None:
        self.own = own
        self._planner_settings = settings
        self.term = 0
        self._term_seen = 0
        self._vacant_s: float | None = None  # since when this host has waited for a free slot, or last heard of a claim
        self._rival_count = 0
        self._held_down_until = -math.inf
        self.isolated = False
        self.sources_fail = False
        """Whether no deployment that lacks chunks has a source that this host can read."""
        self._views_version = -1
        self._rack_peers: list[PeerView] = []
        self._claimants: frozenset[NodeId] = frozenset()
        self._racks = 1
        self._stable_s = settings.seeds_stable_s
        self._settled: frozenset[NodeId] = frozenset()  # who claimed when the claims had last been the same for a while
        self.seeds: frozenset[NodeId] = frozenset()
        self.seeds_changed_s = -math.inf
        self._unsettled_s = -math.inf  # since when no two changes of the seeds have been ``_stable_s`` apart
        self._racks_seen: list[tuple[float, int]] = []
        self._hold_until = -math.inf

    def give_up(self, now: float) -> None:
        """Drop the claim and make no other for a while; takes effect at the next ``decide``."""
        self._held_down_until = now + self._planner_settings.claim_hold_down_s

    def decide(self, peers: Peers, now: float) -> int | None:
        """The new term for our member record (0 gives the claim up), or None when the record need not change."""
        self._look_again(peers)
        self._term_seen = max(self._term_seen, self.term)
        rivals = [view for view in self._rack_peers if view.node in self._claimants]
        seats = self._seats()
        before = self.term
        able = self._is_able(now)
        if self.term and (not able or sum(self._beats(view) for view in rivals) >= seats):
            self.term = 0
        if self.term or len(rivals) >= seats or not able:
            self._vacant_s = None
        elif self._vacant_s is None or len(rivals) != self._rival_count:
            self._vacant_s = now  # the next candidate may have claimed already: hear of it first
        self._rival_count = len(rivals)
        if (due_s := self.next_deadline()) is not None and now >= due_s:
            # A rack peer may have claimed the last term there is: then the rendezvous order decides among equals.
            self.term = min(self._term_seen + 1, SEED_TERM_MAX)
            self._vacant_s = None
        self._settle(now)
        return self.term if self.term != before else None

    def _is_able(self, now: float) -> bool:
        reads = self.own.can_read_sources and not self.sources_fail
        return reads and not self.isolated and now >= self._held_down_until

    def _beats(self, rival: PeerView) -> bool:
        mine = (self.term, scores(self.own.node, _SALT, 1))
        return (rival.seed_term, scores(rival.node, _SALT, 1)) > mine

    def _seats(self) -> int:
        """The number of seeds that this rack should have."""
        candidates = sum(view.can_read_sources for view in self._rack_peers) + self.own.can_read_sources
        return max(1, min(_SEEDS_OF_FEW_RACKS // self._racks, candidates // 2))

    def _place(self) -> int:
        """How many candidates without a claim stand before this host in the rendezvous order."""
        own = scores(self.own.node, _SALT, 1)
        waiting = (view for view in self._rack_peers if view.can_read_sources and not view.seed_term)
        return min(_WAITING_MOST, sum(1 for view in waiting if scores(view.node, _SALT, 1) > own))

    def next_deadline(self) -> float | None:
        """When ``decide`` has something to do though nothing was heard."""
        if self._vacant_s is None:
            return None
        return self._vacant_s + self._place() * self._planner_settings.claim_rank_s

    def _look_again(self, peers: Peers) -> None:
        """Read the members' records if they have changed; there may be 10,000 of them."""
        if self._views_version == peers.views_version:
            return
        self._views_version = peers.views_version
        views = peers.members()
        self._rack_peers = [view for view in views if view.rack == self.own.rack]
        heard = peers.members(heard=True)
        self._claimants = frozenset(view.node for view in heard if view.seed_term > 0)
        self._racks = len({view.rack for view in heard} | {self.own.rack})
        share = math.log2(1 + len(heard)) / _STABLE_DOUBLINGS if heard else 1.0
        self._stable_s = self._planner_settings.seeds_stable_s * min(1.0, max(_STABLE_SHARE_MIN, share))
        terms = [view.seed_term for view in self._rack_peers if view.node in self._claimants]
        self._term_seen = max([self._term_seen, self.term, *terms])

    def _settle(self, now: float) -> None:
        seeds = self._claimants | {self.own.node} if self.term else self._claimants
        if seeds != self.seeds:
            self.seeds = seeds
            if now >= self.seeds_changed_s + self._stable_s:
                self._unsettled_s = now
            self.seeds_changed_s = now
        if now >= self._settled_s():
            self._settled = seeds
        # When more than half of the racks vanish within the window, the network is cut: so many do not die together.
        racks = self._racks
        if not self._racks_seen or self._racks_seen[-1][1] != racks:
            self._racks_seen.append((now, racks))
        oldest = now - self._planner_settings.quorum_window_s
        while len(self._racks_seen) > 1 and self._racks_seen[1][0] <= oldest:
            self._racks_seen.pop(0)
        most = max(count for _, count in self._racks_seen)
        calm_since = self._hold_until + _CALM_HOLDS * self._planner_settings.quorum_hold_s
        if racks * 2 < most and now >= calm_since:
            self._hold_until = now + self._planner_settings.quorum_hold_s
            self._racks_seen = [(now, racks)]

    def _settled_s(self) -> float:
        """From when on the claims count as settled: they must have been the same for a while, but a member that changes
        its claim again and again is not waited for."""
        most_s = _UNSETTLED_MOST * self._planner_settings.seeds_stable_s
        return min(self.seeds_changed_s + self._stable_s, self._unsettled_s + most_s)

    def begin_allowed_s(self, now: float) -> float:
        """From when the first read of a deployment may begin: when there are seeds that all hosts know. Others that
        claim meanwhile are not waited for, or one member that claims and lets go again and again would hold up every
        deployment."""
        allowed_s = self.reads_allowed_s(now)
        return allowed_s if self._settled & self.seeds else max(self._settled_s(), allowed_s)

    def reads_allowed_s(self, now: float) -> float:
        """From when a deployment whose reads have begun may go on; new owners wait besides (``read_grace_s``)."""
        return now + self._planner_settings.seeds_stable_s if self.isolated else self._hold_until
