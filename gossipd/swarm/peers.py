"""What this host knows of each other host, whatever the deployment: is it a member, can we reach it, is it fast.

What lives here: who the members are, one record per peer that this host has had to do with, and the rules by which
data-plane evidence changes it. What does not: what a peer holds (``availability``).

Of ten thousand members a host deals with a hundred, so that a record is made when it is first asked for; the members'
views are a mapping that the ten thousand planners of a simulation share until one of them has to change it.

Two tiers that never overwrite each other: ``member`` is the cluster's verdict, ``reachable`` is our own
evidence about this pair, within a second. Fetches and duties want both.
"""

from __future__ import annotations

from random import Random

from gossipd.core.events import FailReason
from gossipd.core.model import PeerView
from gossipd.swarm.settings import PlannerSettings
from membership.member import NodeId

_GONE_S = 1.0  # a host that restarts is back in 1 to 3 s; doubles with each failure in a row
_PENALTY_S_MAX = 60.0
# The sender re-hashes and drops what it was blamed for within a second; a liar reaches the maximum in five lies.
# Longer costs the rack: mates import again what a host with one rotten chunk holds (30 s: 1.11 copies for 1.0).
_CORRUPT_S = 2.0
_SMOOTH = 0.25  # weight of the newest of about the last four samples
_RECORDS_SPARE = 64  # with so many records more than twice the members, those of who is no member any more go
_SLOW_RATIO = 2.0  # equal peers differ by less under load (simulator: p99 of elapsed is 2.2 x the median)


class Peer:
    """One other host. Fields are read by the schedulers, changed only here and in ``Peers``."""

    __slots__ = ("asked", "elapsed_s", "failures", "free", "free_at", "member", "reachable", "shunned_until", "view")

    def __init__(self, view: PeerView, free: int) -> None:
        self.view = view
        self.member = True
        self.reachable = True
        self.free = free  # upload slots it has free, as far as we know
        self.free_at = 0.0  # when it said so
        self.asked = 0  # our fetches in flight from it
        self.elapsed_s = 0.0  # what a fetch from it takes, smoothed; 0 when unknown
        self.failures = 0
        self.shunned_until = 0.0

    def usable(self, now: float) -> bool:
        """May be asked, and may have duties."""
        return self.member and self.reachable and self.shunned_until <= now


class Peers:
    """All other hosts, by node."""

    def __init__(self, settings: PlannerSettings, rng: Random, own: NodeId | None = None) -> None:
        self._settings = settings
        self._rng = rng
        self._own = own
        self._views: dict[NodeId, PeerView] = {}
        self._views_are_shared = False
        self._peers: dict[NodeId, Peer] = {}
        self.version = 0  # changes whenever duties may move
        self._shunned_until = 0.0  # when the next peer stops being shunned; 0 when none is
        self.slots_most = settings.slots_assumed  # the most free slots that any peer has told
        self.usual_s = 0.0  # what a fetch takes, over all peers, smoothed

    def get(self, node: NodeId) -> Peer | None:
        """The record; also of a peer that is no member any more, for a while."""
        peer = self._peers.get(node)
        if peer is None and (view := self._views.get(node)) is not None and node != self._own:
            peer = self._peers[node] = Peer(view, self._settings.slots_assumed)
        return peer

    def members(self) -> list[PeerView]:
        """What the members say of themselves; this host is none of them."""
        return [view for view in self._views.values() if view.node != self._own]

    def unusable(self, now: float) -> set[NodeId]:
        """Members and others that may not be asked and have no duties."""
        return {node for node, peer in self._peers.items() if not peer.usable(now)}

    @property
    def _count(self) -> int:
        return len(self._views) - (self._own in self._views)

    def are_all_unusable(self, now: float) -> bool:
        """There are members, and none that may be asked. By the records alone, since it is asked often where nothing
        comes: to look at all members took two fifths of a simulation of 10,000 hosts."""
        return 0 < self._count <= sum(node in self._views for node in self.unusable(now))

    def adopt(self, views: dict[NodeId, PeerView]) -> list[NodeId]:
        """These are the members, and nobody else is; returns who was one and is none any more.

        The mapping is copied before it is changed here.
        """
        gone = sorted(node for node in self._views if node not in views)
        self._views, self._views_are_shared = views, True
        self.version += 1
        for node, peer in self._peers.items():
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
        """A member record was heard; True when it is new or back."""
        before = self._views.get(view.node)
        if before == view:
            return False
        self._unshared_views()[view.node] = view
        self.version += 1
        peer = self._peers.get(view.node)
        if peer is not None:
            peer.view, peer.member = view, True
            if before is None:
                self._forgive(peer)
        return before is None

    def lost(self, node: NodeId) -> None:
        """The cluster's verdict."""
        if node not in self._views:
            return
        del self._unshared_views()[node]
        self.version += 1
        if (peer := self._peers.get(node)) is not None:
            peer.member = False
        if len(self._peers) > 2 * len(self._views) + _RECORDS_SPARE:
            self._peers = {node: peer for node, peer in self._peers.items() if peer.member}

    def reached(self, node: NodeId, reachable: bool) -> bool:
        """Evidence about our own connection; True when it came back."""
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
        """The peer said something, and how many uploads it could begin; False while it is not asked for what it did,
        and what it says does not count."""
        peer = self.get(node)
        if peer is None:
            return True
        if peer.shunned_until > now:
            return False
        peer.free, peer.free_at = free, now
        self.slots_most = max(self.slots_most, free)
        return True

    def started(self, peer: Peer) -> None:
        """We ask it for a chunk."""
        peer.asked += 1
        peer.free -= 1

    def released(self, node: NodeId) -> None:
        """We gave up a fetch from it, and will not hear how it ends."""
        if (peer := self._peers.get(node)) is not None:
            peer.asked = max(0, peer.asked - 1)

    def delivered(self, node: NodeId, elapsed_s: float) -> None:
        """A fetch from it ended well."""
        peer = self.get(node)
        if peer is None:
            return
        peer.asked = max(0, peer.asked - 1)
        peer.free += 1
        peer.failures = 0
        peer.elapsed_s += (elapsed_s - peer.elapsed_s) * _SMOOTH if peer.elapsed_s else elapsed_s
        self.usual_s += (elapsed_s - self.usual_s) * _SMOOTH / 4 if self.usual_s else elapsed_s

    def failed(self, node: NodeId, reason: FailReason, now: float) -> None:
        """A fetch from it ended without a chunk."""
        peer = self.get(node)
        if peer is None:
            return
        peer.asked = max(0, peer.asked - 1)
        if reason is FailReason.BUSY:
            peer.free, peer.free_at = 0, now
            return
        peer.free += 1
        base = {FailReason.GONE: _GONE_S, FailReason.REFUSED: _GONE_S, FailReason.CORRUPT: _CORRUPT_S}.get(reason)
        if base is None:
            return
        peer.failures += 1
        pause = min(_PENALTY_S_MAX, base * 2 ** min(peer.failures - 1, 6))
        peer.shunned_until = now + pause * self._rng.uniform(0.75, 1.25)
        self._shunned_until = min(self._shunned_until or peer.shunned_until, peer.shunned_until)
        self.version += 1

    def expire(self, now: float) -> None:
        """Let peers be asked again whose time of being shunned is over."""
        if self._shunned_until and self._shunned_until <= now:
            self.version += 1
            self._shunned_until = min(
                (peer.shunned_until for peer in self._peers.values() if peer.shunned_until > now), default=0.0
            )

    def slow_s(self) -> float:
        """What a fetch takes from a slow peer, at least."""
        return _SLOW_RATIO * self.usual_s if self.usual_s else float("inf")
