"""What this host knows of each other host, for all deployments: is it a member, can this host reach it, is it fast.

What lives here: the members, a record for each peer that this host has dealt with, and the rules by which data-plane
evidence changes the record. What does not: what a peer holds (``availability``).

A record is made when it is first asked for, because of ten thousand members a host deals with a hundred. The members'
views are one mapping that the planners of a simulation share until one of them has to change it.

Two judgements that never overwrite each other: ``member`` is the cluster's verdict, ``reachable`` is this host's own
evidence about the pair, within a second. Fetches and roles need both.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from gossipd.core.events import FailReason
from gossipd.core.model import PeerView
from gossipd.swarm.settings import PlannerSettings
from membership.member import NodeId

_GONE_S = 1.0  # a host that restarts is back in 1 to 3 s; doubles with each failure in a row
_PENALTY_S_MAX = 60.0
# The sender re-hashes the chunk and drops it within a second; a liar reaches the maximum in five lies. Longer costs the
# rack: its hosts import again what a host with one rotten chunk holds.
_CORRUPT_S = 2.0
_SMOOTH = 0.25  # weight of the newest of about the last four samples
_RECORDS_SPARE = 64  # records above twice the number of members; then those of former members are dropped
_SLOW_RATIO = 2.0  # equal peers differ by less under load (simulated: the p99 of a fetch is 2.2 times the median)


class Peer:
    """One other host. Schedulers read the fields; only this class and ``Peers`` change them."""

    __slots__ = ("asked", "elapsed_s", "failures", "free", "free_at", "member", "reachable", "shunned_until", "view")

    def __init__(self, view: PeerView, free: int) -> None:
        self.view = view
        self.member = True
        self.reachable = True
        self.free = free  # free upload slots of the peer, as far as is known
        self.free_at = 0.0  # when the peer told them
        self.asked = 0  # our fetches in flight from it
        self.elapsed_s = 0.0  # seconds that a fetch from the peer takes, smoothed; 0 when unknown
        self.failures = 0
        self.shunned_until = 0.0

    def usable(self, now: float) -> bool:
        """Whether the peer may be asked and may have roles."""
        return self.member and self.reachable and self.shunned_until <= now


class Peers:
    """All other hosts, by node."""

    def __init__(self, settings: PlannerSettings, rng: Random, own: NodeId | None = None) -> None:
        self._settings = settings
        self._rng = rng
        self._own = own
        self._views: dict[NodeId, PeerView] = {}
        self._views_are_shared = False
        self.records: dict[NodeId, Peer] = {}
        """Those made so far; no caller changes the mapping."""
        self.version = 0  # changes whenever roles may move
        self._shunned_until = 0.0  # when the next peer stops being shunned; 0 when none is
        self.slots_most = settings.slots_assumed  # most free slots that any peer has told
        self.usual_s = 0.0  # seconds that a fetch takes, over all peers, smoothed

    def get(self, node: NodeId) -> Peer | None:
        """The record of a peer; for a while also of a former member."""
        peer = self.records.get(node)
        if peer is None and (view := self._views.get(node)) is not None and node != self._own:
            peer = self.records[node] = Peer(view, self._settings.slots_assumed)
        return peer

    def members(self) -> list[PeerView]:
        """What the members say of themselves, without this host."""
        return [view for view in self._views.values() if view.node != self._own]

    def unusable(self, now: float) -> set[NodeId]:
        """Hosts that may not be asked and have no roles."""
        return {node for node, peer in self.records.items() if not peer.usable(now)}

    def usable(self, nodes: Iterable[NodeId], now: float) -> set[NodeId]:
        """Those of the nodes that are members and may be asked."""
        known, found = self.records, set()
        for node in nodes:
            peer = known.get(node) or self.get(node)
            if peer is not None and peer.shunned_until <= now and peer.member and peer.reachable:
                found.add(node)
        return found

    def are_all_unusable(self, now: float) -> bool:
        """Whether there are members and none may be asked. Reads the records only: they are few, and calls are many."""
        count = len(self._views) - (self._own in self._views)
        return 0 < count <= sum(node in self._views for node in self.unusable(now))

    def adopt(self, views: dict[NodeId, PeerView]) -> list[NodeId]:
        """These are all the members; returns the former ones. The mapping is copied before this class changes it."""
        gone = sorted(node for node in self._views if node not in views)
        self._views, self._views_are_shared = views, True
        self.version += 1
        for node, peer in self.records.items():
            if (view := views.get(node)) is None:
                peer.member = False
                continue
            if not peer.member:
                self._forgive(peer)
            peer.view, peer.member = view, True
        return gone

    def _unshared_views(self) -> dict[NodeId, PeerView]:
        if self._views_are_shared:
            self._views, self._views_are_shared = dict(self._views), False
        return self._views

    def seen(self, view: PeerView) -> bool:
        """A member record was heard; True when the member is new or back."""
        before = self._views.get(view.node)
        if before == view:
            return False
        self._unshared_views()[view.node] = view
        self.version += 1
        peer = self.records.get(view.node)
        if peer is not None:
            peer.view, peer.member = view, True
            if before is None:
                self._forgive(peer)
        return before is None

    def lost(self, node: NodeId) -> None:
        """The cluster's verdict: the node is no member any more."""
        if node not in self._views:
            return
        del self._unshared_views()[node]
        self.version += 1
        if (peer := self.records.get(node)) is not None:
            peer.member = False
        if len(self.records) > 2 * len(self._views) + _RECORDS_SPARE:
            self.records = {node: peer for node, peer in self.records.items() if peer.member}

    def reached(self, node: NodeId, reachable: bool) -> bool:
        """Evidence about our own connection; True when the peer came back."""
        peer = self.get(node)
        if peer is None or (peer.reachable == reachable and not peer.shunned_until):
            return False
        came_back = reachable and not peer.reachable
        peer.reachable = reachable
        if reachable:
            self._forgive(peer)
        self.version += 1
        return came_back

    def _forgive(self, peer: Peer) -> None:
        peer.failures, peer.shunned_until, peer.reachable = 0, 0.0, True
        peer.free, peer.free_at = self._settings.slots_assumed, 0.0

    def hears(self, node: NodeId, free: int, now: float) -> bool:
        """A peer's message tells its free upload slots. False while the peer is shunned: its message is ignored."""
        peer = self.get(node)
        if peer is None:
            return True
        if peer.shunned_until > now:
            return False
        peer.free, peer.free_at = free, now
        self.slots_most = max(self.slots_most, free)
        return True

    def started(self, peer: Peer) -> None:
        """This host asks the peer for a chunk."""
        peer.asked += 1
        peer.free -= 1

    def released(self, node: NodeId) -> None:
        """This host gave up a fetch from the peer and will not hear how it ends."""
        if (peer := self.records.get(node)) is not None:
            peer.asked = max(0, peer.asked - 1)

    def delivered(self, node: NodeId, elapsed_s: float) -> None:
        """A fetch from the peer delivered its chunk."""
        peer = self.get(node)
        if peer is None:
            return
        peer.asked = max(0, peer.asked - 1)
        peer.free += 1
        peer.failures = 0
        peer.elapsed_s += (elapsed_s - peer.elapsed_s) * _SMOOTH if peer.elapsed_s else elapsed_s
        self.usual_s += (elapsed_s - self.usual_s) * _SMOOTH / 4 if self.usual_s else elapsed_s

    def failed(self, node: NodeId, reason: FailReason, now: float) -> None:
        """A fetch from the peer ended without its chunk."""
        peer = self.get(node)
        if peer is None:
            return
        peer.asked = max(0, peer.asked - 1)
        if reason is FailReason.BUSY:
            peer.free, peer.free_at = 0, now
            return
        peer.free += 1
        # Only these reasons speak against the peer itself.
        base = {FailReason.GONE: _GONE_S, FailReason.REFUSED: _GONE_S, FailReason.CORRUPT: _CORRUPT_S}.get(reason)
        if base is None:
            return
        peer.failures += 1
        pause = min(_PENALTY_S_MAX, base * 2 ** min(peer.failures - 1, 6))
        peer.shunned_until = now + pause * self._rng.uniform(0.75, 1.25)
        self._shunned_until = min(self._shunned_until or peer.shunned_until, peer.shunned_until)
        self.version += 1

    def expire(self, now: float) -> None:
        """Note that the pause of a shunned peer is over, so that roles are computed again."""
        if self._shunned_until and self._shunned_until <= now:
            self.version += 1
            later = (peer.shunned_until for peer in self.records.values() if peer.shunned_until > now)
            self._shunned_until = min(later, default=0.0)

    def slow_s(self) -> float:
        """The least seconds that a fetch from a slow peer takes."""
        return _SLOW_RATIO * self.usual_s if self.usual_s else float("inf")
