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
from gossipd.swarm.unheard_members import UnheardMembers
from membership.member import NodeId

_GONE_S = 1.0  # a host that restarts is back in 1 to 3 s; doubles with each failure in a row
_PENALTY_S_MAX = 60.0
# The sender re-hashes the chunk and drops it within a second; a liar reaches the maximum in five lies, of which the
# first, if they were under way together, are one. Longer costs the rack: its hosts import again what a host with one
# rotten chunk holds.
_CORRUPT_S = 2.0
# A peer that says that it has chunks, and sends none, would keep them from being read from storage. Slow fetches may be
# the network's fault, and most are while no peer delivers. A peer at its limit refuses many, which harms nobody
# while chunks come from others: it is left alone when none has come, either.
_BARREN_S = 2.0
_SLOW_MOST, _SLOW_MOST_ALL = 2, 6  # fetches that were too slow, while another peer delivered, and while none did
_SLOW_AT_ONCE_S = 1.0  # those that end together count once
_REFUSED_MOST, _REFUSED_S = 8, 30.0  # fetches that were refused, without one in between, and for how long at least
# Or for so many usual fetches, where it is known what one takes: five rounds of a rack of 40 through eight slots.
_REFUSED_USUALS, _REFUSED_S_MIN = 24, 6.0
# Refusals of what it has told that it holds, beyond those that its deliveries pay for: a peer that gives one chunk now
# and then, and tells again and again that it has all, would else keep a whole rack waiting for it. Being busy weighs
# little: a peer with few slots refuses each host of a large rack several times for each chunk.
_DEBT_MOST, _DEBT_KEPT, _DEBT_PAID, _DEBT_BUSY = 64.0, 256.0, 16.0, 0.125
_IDLE_S, _IDLE_USUALS = 3.0, 4.0  # without a chunk from anywhere meanwhile: this long, and so many usual fetches
_SMOOTH = 0.25  # weight of the newest of about the last four samples
_RECORDS_SPARE = 64  # records above twice the number of members; then those of former members are dropped
_SLOW_RATIO = 2.0  # equal peers differ by less under load (simulated: the p99 of a fetch is 2.2 times the median)


class Peer:
    """One other host. Schedulers read the fields; only this class and ``Peers`` change them."""

    __slots__ = (
        "asked", "barren_since", "debt", "debt_since", "departure", "elapsed_s", "failures", "free", "free_at",
        "has_delivered", "has_lied", "is_rotten", "member", "reachable", "refused", "shunned_until", "slow", "slow_at",
        "view",
    )  # fmt: skip

    def __init__(self, view: PeerView, free: int, departure: int) -> None:
        self.view = view
        self.departure = departure  # the number of its last one, or of the last of all when the record was made
        self.member = True
        self.reachable = True
        self.free = free  # free upload slots of the peer, as far as is known
        self.free_at = 0.0  # when the peer told them
        self.asked = 0  # our fetches in flight from it
        self.elapsed_s = 0.0  # seconds that a fetch from the peer takes, smoothed; 0 when unknown
        self.failures = 0
        self.shunned_until = 0.0
        self.has_delivered = False  # one of our fetches from it has brought its chunk
        self.has_lied = False  # it sent wrong bytes or none; a new connection changes nothing of that
        self.is_rotten = False  # it is shunned for the first bad chunk since its last delivery, as a rotten disk sends
        self.slow = self.refused = 0  # fetches from it since its last delivery that were too slow, or refused
        self.debt = self.debt_since = 0.0  # refusals that no delivery has paid for, and since when there are some
        self.barren_since = self.slow_at = 0.0  # when the first of them failed, and the last that was too slow

    def usable(self, now: float) -> bool:
        """Whether the peer may be asked and may have roles."""
        return self.member and self.reachable and self.shunned_until <= now

    def count_barren(self, reason: FailReason, now: float) -> bool:
        """Count a fetch from it that brought nothing; False where that says nothing of the peer."""
        if not self.slow and not self.refused:
            self.barren_since = now
        if reason is FailReason.SLOW:
            if now - self.slow_at < _SLOW_AT_ONCE_S and self.slow:
                return False
            self.slow, self.slow_at = self.slow + 1, now
        elif reason in (FailReason.BUSY, FailReason.NOT_HELD):
            self.refused += 1
            self._owes(_DEBT_BUSY if reason is FailReason.BUSY else 1.0, now)
        else:
            return False
        return True

    def _owes(self, amount: float, now: float) -> None:
        if not self.debt:
            self.debt_since = now
        self.debt = min(_DEBT_KEPT, self.debt + amount)

    def is_owing(self, now: float) -> bool:
        """Whether it has refused far more than it gave, for some time; those asked together count once."""
        is_asked = self.shunned_until <= now
        return self.debt >= _DEBT_MOST and is_asked and now - self.debt_since >= _REFUSED_S_MIN

    def brought(self) -> bool:
        """A fetch from it has brought its chunk. Whether nothing speaks against it any more."""
        self.has_delivered, self.debt = True, max(0.0, self.debt - _DEBT_PAID)
        self.slow = self.refused = 0
        if not self.debt:
            self.failures, self.has_lied = 0, False
        return not self.debt


class Peers:
    """All other hosts, by node."""

    def __init__(self, settings: PlannerSettings, rng: Random, own: NodeId | None = None, rack: str = "") -> None:
        self._planner_settings = settings
        self._rng = rng
        self._own, self._own_rack = own, rack
        self._views: dict[NodeId, PeerView] = {}
        self._views_are_shared, self._unheard = False, UnheardMembers()
        self.records: dict[NodeId, Peer] = {}
        """Those made so far; no caller changes the mapping."""
        self.version = 0  # changes whenever roles may move
        self.departures = 0  # how often a peer ceased to be a member, or to be reachable
        self.views_version = 0  # changes with what members say of themselves, and when one comes, answers or goes
        self._shunned_until = 0.0  # when the next peer stops being shunned; 0 when none is
        self.slots_most = settings.slots_assumed  # most free slots that any peer has told
        self.usual_s = 0.0  # seconds that a fetch takes, over all peers, smoothed
        self._delivered_s = float("-inf")  # when any peer delivered last
        self.doubted: frozenset[NodeId] = frozenset()
        """Peers that brought nothing, or wrong bytes, of what they were asked, and nothing good since: what they claim
        counts for little (``doubt``), also after a pause, or few would be waited for again and again."""

    def get(self, node: NodeId) -> Peer | None:
        """The record of a peer; for a while also of a former member."""
        peer = self.records.get(node)
        if peer is None and (view := self._views.get(node)) is not None and node != self._own:
            peer = self.records[node] = Peer(view, self._planner_settings.slots_assumed, self.departures)
        return peer

    @property
    def count(self) -> int:
        """How many members there are."""
        return len(self._views)

    def members(self, *, heard: bool = False) -> list[PeerView]:
        """What members say of themselves: the others that may have roles, or, with ``heard``, that have spoken here."""
        out = self._unheard.all if heard else self._unheard.without_roles(self._views, self._own_rack)
        return [view for node, view in self._views.items() if node != self._own and node not in out]

    def unusable(self, now: float) -> set[NodeId]:
        """Hosts that may not be asked and have no roles."""
        return {node for node, peer in self.records.items() if not peer.usable(now)}

    def is_rotten(self, node: NodeId, now: float) -> bool:
        """Whether the peer is shunned for one bad chunk only. It reads it back; what it reads from storage goes on, and
        would come twice if others took it over. A second lie ends that: a liar would keep its share from all."""
        peer = self.records.get(node)
        return peer is not None and peer.is_rotten and peer.member and peer.reachable and peer.shunned_until > now

    def usable(self, nodes: Iterable[NodeId], now: float) -> set[NodeId]:
        """The nodes of these that are members and may be asked."""
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
        self._views, self._views_are_shared, self._unheard = views, True, UnheardMembers()
        self._views_changed()
        for node, peer in self.records.items():
            if (view := views.get(node)) is None:
                self._departs(peer)
                peer.member = False
                continue
            if not peer.member:
                self._forgive(peer)
            peer.view, peer.member = view, True
        return gone

    def _views_changed(self) -> None:
        self.version += 1
        self.views_version += 1

    def _unshared_views(self) -> dict[NodeId, PeerView]:
        if self._views_are_shared:
            self._views, self._views_are_shared = dict(self._views), False
        return self._views

    def seen(self, view: PeerView, *, has_answered: bool = True) -> bool:
        """A member record was heard, or a member; True when the member is new or back."""
        before = self._views.get(view.node)
        if self._unheard.note(view.node, has_answered=has_answered):
            self._views_changed()
        if before == view:
            return False
        self._unshared_views()[view.node] = view
        self._views_changed()
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
        self._unheard.drop(node)
        self._views_changed()
        if (peer := self.records.get(node)) is not None:
            self._departs(peer)
            peer.member = False
        if len(self.records) > 2 * len(self._views) + _RECORDS_SPARE:
            self.records = {node: peer for node, peer in self.records.items() if peer.member}
            self.doubted = self.doubted.intersection(self.records)

    def reached(self, node: NodeId, reachable: bool) -> bool:
        """Evidence about our own connection; True when the peer came back."""
        peer = self.get(node)
        if peer is None or (peer.reachable == reachable and not peer.shunned_until):
            return False
        came_back, peer.reachable = reachable and not peer.reachable, reachable
        self.views_version += self._unheard.reached(node, reachable=reachable)
        if reachable:
            self._forgive(peer)
        else:
            self._departs(peer)
        self.version += 1
        return came_back

    def _departs(self, peer: Peer) -> None:
        self.departures += 1
        peer.departure = self.departures

    def _forgive(self, peer: Peer) -> None:
        """It is back. What it failed at as a liar stays until it delivers: connections and lives cost it nothing."""
        peer.reachable = True
        if not peer.has_lied:
            peer.failures, peer.shunned_until = 0, 0.0
        peer.free, peer.free_at = self._planner_settings.slots_assumed, 0.0

    def hears(self, node: NodeId, free: int, now: float) -> bool:
        """A peer's message tells its free slots. False while it may not be asked: nothing takes back what it says."""
        peer = self.get(node)
        if peer is None:
            return True
        if not peer.usable(now):
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

    def delivered(self, node: NodeId, elapsed_s: float, now: float) -> None:
        """A fetch from the peer delivered its chunk."""
        peer = self.get(node)
        if peer is None:
            return
        peer.asked = max(0, peer.asked - 1)
        peer.free += 1
        self._delivered_s = now
        if peer.brought() and node in self.doubted:
            self.doubted -= {node}
            self.version += 1
        peer.elapsed_s += (elapsed_s - peer.elapsed_s) * _SMOOTH if peer.elapsed_s else elapsed_s
        self.usual_s += (elapsed_s - self.usual_s) * _SMOOTH / 4 if self.usual_s else elapsed_s

    def failed(
        self, node: NodeId, reason: FailReason, now: float, *, idle_s: float = 0.0, chunk_s: float = 0.0,
        was_silent: bool = False,
    ) -> None:  # fmt: skip
        """A fetch from the peer ended without its chunk. ``idle_s``: for how long its deployment has got no chunk.
        ``chunk_s``: what a chunk takes on this host's link. ``was_silent``: not even its beginning has come."""
        peer = self.get(node)
        if peer is None:
            return
        peer.asked = max(0, peer.asked - 1)
        if reason is FailReason.BUSY:
            peer.free, peer.free_at = 0, now
        else:
            peer.free += 1
        # Only these reasons speak against the peer itself.
        base = {FailReason.GONE: _GONE_S, FailReason.REFUSED: _GONE_S, FailReason.CORRUPT: _CORRUPT_S}.get(reason)
        if base is None and self._is_barren(peer, reason, now, idle_s, chunk_s):
            base = _BARREN_S
        # More trials of a peer that begins with nothing would make a rack wait for storage in proportion to such peers.
        if peer.slow >= _SLOW_MOST or (reason is FailReason.SLOW and was_silent and not peer.has_delivered):
            self._doubt(node)
        is_same_lie = peer.is_rotten and reason is FailReason.CORRUPT and peer.shunned_until > now
        if base is None or is_same_lie:
            return
        peer.has_lied = peer.has_lied or base != _GONE_S
        peer.failures += 1
        peer.is_rotten = reason is FailReason.CORRUPT and peer.failures == 1 and peer.has_delivered
        if base != _GONE_S and not peer.is_rotten:
            self._doubt(node)
        pause = min(_PENALTY_S_MAX, base * 2 ** min(peer.failures - 1, 6))
        peer.shunned_until = now + pause * self._rng.uniform(0.75, 1.25)
        self._shunned_until = min(self._shunned_until or peer.shunned_until, peer.shunned_until)
        self.version += 1

    def _doubt(self, node: NodeId) -> None:
        if node not in self.doubted:
            self.doubted |= {node}
            self.version += 1

    def _is_barren(self, peer: Peer, reason: FailReason, now: float, idle_s: float, chunk_s: float) -> bool:
        """Count a fetch that brought nothing; whether there have been too many without one that did."""
        if not peer.count_barren(reason, now):
            return False
        is_idle = idle_s >= max(_IDLE_S, _IDLE_USUALS * self.usual_s)
        refused_s = _REFUSED_S
        if self.usual_s:
            refused_s = min(refused_s, max(_REFUSED_S_MIN, _REFUSED_USUALS * max(self.usual_s, chunk_s)))
        is_refusing = peer.refused >= _REFUSED_MOST and now - peer.barren_since >= refused_s and is_idle
        slow_most = _SLOW_MOST if self._delivered_s > peer.barren_since else _SLOW_MOST_ALL  # while others deliver
        return peer.slow >= slow_most or is_refusing or peer.is_owing(now)

    def has_lied(self, node: NodeId) -> bool:
        """Whether the peer has sent wrong bytes, or none, and nothing good since."""
        peer = self.records.get(node)
        return peer is not None and peer.has_lied

    def is_shunned(self, node: NodeId, now: float) -> bool:
        """Whether the peer is left alone for a while."""
        peer = self.records.get(node)
        return peer is not None and peer.shunned_until > now

    def expire(self, now: float) -> None:
        """Note that the pause of a shunned peer is over, so that roles are computed again."""
        if self._shunned_until and self._shunned_until <= now:
            self.version += 1
            later = (peer.shunned_until for peer in self.records.values() if peer.shunned_until > now)
            self._shunned_until = min(later, default=0.0)

    def slow_s(self) -> float:
        """The least seconds that a fetch from a slow peer takes."""
        return _SLOW_RATIO * self.usual_s if self.usual_s else float("inf")
