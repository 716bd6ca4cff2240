"""The entry of the swarm brain: what deployments share, their priorities, and the plan that each turn makes.

What lives here: routing of events to their deployments, what deployments share (peers, election, link, the budget of
fetches), and the order of a plan. What does not: rules about chunks (``deployment_swarm`` and its parts), any I/O.

A daemon drives it in one task::

    planner.handle(event, now)      # for each event, in the order they happened; records, decides nothing
    planner.plan(now)               # after a batch of events, or when next_deadline has come
    for command in planner.drain(): perform(command)
    wait for an event, or until planner.next_deadline(now)

* ``now`` is a monotonic clock in seconds that never goes back.
* First ``PeerSeen`` for each other member (again when its record changes), or ``MembersSeen`` with all of them, then
  ``DeploymentOpened``. ``set_own`` tells that our ability to read sources has changed.
* ``StartFetch`` ends in exactly one ``ChunkStored`` (supplier: that peer) or ``FetchFailed``. ``StartSourceRead`` ends,
  for each of its chunks, in a ``ChunkStored`` (supplier: SOURCE) or a place in ``SourceReadFailed``.
  ``ChunkArriving``, ``ChunkEnding`` and, of a read, ``SourceReadMoves`` may come before either, more than once. After
  ``CancelFetch`` the same holds: ``FetchFailed`` may say CANCELLED, and a ``ChunkStored`` that was quicker is welcome.
* ``ProbeSource`` ends in ``SourceProbed``. One read begins at once, the others after True. After False another host's
  source reader covers, and the daemon probes again now and then without being asked.
* ``HoldingsHeard`` replaces what was known of a peer and may come at any time; ``DeltaHeard`` adds to it. The sessions
  notice a gap in a peer's numbers, its new boot, and a question without an answer, and ask again; a ``HoldingsHeard``
  answers.
* ``PeerWantHeard`` replaces what was known of a peer's want, and may come at any time while the deployment is open.
* ``SubscribeHeard`` comes for deployments that are open here; the sessions keep those that come earlier until then.
* ``PeerReachable(False)`` is for evidence (a connection refused, reset or silent): roles move at once.
  ``PeerReachable(True)`` takes it back. ``PeerLost`` is the cluster's verdict.
* After ``FinishModel`` the deployment keeps serving until ``DeploymentClosed``.

Priorities. Deployments of higher priority go first, on this host's link and on storage's, and none starves. Rejected:
weights, because a publisher with priority 9 wants the model there first. Uploads ignore priorities, fetches do not.

* Fetches: while a deployment has chunks to ask for, or reads storage here, those of lower priority share what its
  window leaves. Of one priority, the deployment with the fewest fetches gets the next. Each may always have one.
  But of one name the newest version goes first: an older one asks only while the newer has nothing to ask for, or
  nobody to ask, because a host that replaces another resumes from the newest.
* Reads: while any host reads a deployment, each one of lower priority has one extent being read in the whole cluster.
  Deployments of one priority have a full window each.
"""

from __future__ import annotations

import math
from itertools import groupby
from random import Random
from typing import TypeAlias

from msgspec.structs import replace

from gossipd.core import events
from gossipd.core.chunkset import ChunkSet
from gossipd.core.ids import COPIED, LOCAL, DeploymentId, Origin
from gossipd.core.model import PeerView
from gossipd.core.sketch import KnownHoldings
from gossipd.swarm.bandwidth_meter import BandwidthMeter
from gossipd.swarm.deployment_swarm import DeploymentSwarm
from gossipd.swarm.hedging import hedge
from gossipd.swarm.maintenance import (
    give_up_lost,
    is_outpaced,
    reads_of,
    refresh_roles,
    report_stall,
    uploads_likely,
    want_copies,
)
from gossipd.swarm.open_deployments import OpenDeployments
from gossipd.swarm.peers import Peers
from gossipd.swarm.seed_election import Election
from gossipd.swarm.settings import PlannerSettings
from gossipd.swarm.statistics import PlannerStatistics, SwarmStatistics
from gossipd.swarm.surroundings import Surroundings
from membership.member import NodeId

_PeerEvent: TypeAlias = (
    events.PeerSeen | events.PeerLost | events.PeerReachable | events.MembersSeen | events.IsolationChanged
)
_TICK_S = 0.25  # where no deployment is open; then its chunk time decides
# While nothing is missing here and nobody has told or asked anything; at multiples of the clock, when others look too.
_REST_AFTER_S, _REST_TICK_S = 5.0, 1.0
_UPKEEP_S = 0.5  # lags and silences grow over seconds; a change of the members is looked at after ``_roles_kept_s``
_ROLES_PER_S, _RACK_COST = 2_000, 4  # hosts whose roles are computed in a second; a rack costs as much as four
# When a member comes or goes, the roles of every deployment follow. So many are computed in a tick, reckoned in hosts,
# of deployments that are complete here and of others; the rest keep their old roles until one of the next ticks.
_UPKEEP_HOSTS, _POSTPONED_S = 2_000, 0.05
_FIRST_COST = 4  # nothing is known of any rack then
_LATE_KEPT = 0.8  # per tick: what was late a second ago is likely to be so again
_WINDOW_SMOOTH = 0.1  # per tick: the window follows within ten


class Planner:
    """See the module's docstring. One task owns it."""

    def __init__(
        self, *, node: NodeId, rack: str, zone: str = "", settings: PlannerSettings, rng: Random,
        name: str = "", can_read_sources: bool = True,
    ) -> None:  # fmt: skip
        settings.validate()
        self.settings = settings
        self._rng = rng
        self._own = PeerView(node, rack, zone, can_read_sources, 0, name)
        self._may_read_extra = True
        self._peers = Peers(settings, rng, node, rack)
        self._link = BandwidthMeter()
        self._election = Election(self._own, settings)
        self._deployments = OpenDeployments()
        self.free_slots = settings.slots_assumed
        """Uploads that this host could begin now: its caller sets it before a turn, and no turn is taken for it."""
        self._commands: list[events.Command] = []
        self._window = float(settings.fetches_min)
        self._slots = 0
        self._tick_s = -math.inf
        self._tick_interval_s = _TICK_S
        self._heard_s, self._is_resting = -math.inf, False
        self._event_count = self._plan_count = 0
        self._late_s = 0.0  # how much later than due this host acts, of late
        self._surroundings = self._around(0.0)

    def set_own(self, *, can_read_sources: bool, may_read_extra: bool = True) -> None:
        """Whether this host may read external storage at all, and so may become a seed; and whether it may read beside
        the seeds where they are slow (``extra_reader``)."""
        self._may_read_extra = may_read_extra
        self._own = replace(self._own, can_read_sources=can_read_sources)
        self._election.own = self._own
        self._tick_s = -math.inf

    # ---- events --------------------------------------------------------------------------------

    def handle(self, event: events.Event, now: float) -> None:
        """Note one event. An event of a deployment that is not open here is no error: it may come late."""
        self._heard_s = now
        self._event_count += 1
        if self._is_resting:
            self._is_resting, self._tick_s = False, -math.inf
        if isinstance(event, events.DeltaHeard):  # most events are deltas
            if (swarm := self._woken(event.deployment, now)) is not None:
                swarm.delta_heard(event, now)
        elif isinstance(event, _PeerEvent):
            self._peer_changed(event, now)
        elif isinstance(event, events.DeploymentOpened):
            if event.deployment not in self._deployments:
                self._open(event, now)
        else:
            if isinstance(event, events.ChunkStored) and event.supplier not in (LOCAL, COPIED):
                self._link.received(event.length, now)
            swarm = self._woken(event.deployment, now)
            if swarm is not None and isinstance(event, events.DeploymentPaused):
                swarm.pause(now, is_paused=event.is_paused)
            elif swarm is not None and isinstance(event, events.PeerWantHeard):
                swarm.interests.heard(event.peer, event.wanted)
                swarm.upkeep_version = -1  # looked at in the next tick
            elif swarm is not None:
                self._hear(swarm, event, now)

    def _woken(self, deployment: DeploymentId, now: float) -> DeploymentSwarm | None:
        """The deployment of an event; after a rest its roles are looked at in the next plan."""
        if self._deployments.is_at_rest(deployment):
            self._tick_s = -math.inf
        return self._deployments.woken(deployment, now)

    def _hear(self, swarm: DeploymentSwarm, event: events.Event, now: float) -> None:
        match event:
            case events.ChunkStored():
                swarm.stored(event, now)
            case events.ChunkArriving():
                swarm.arriving(event)
            case events.ChunkEnding():
                swarm.endings.expect(event.chunk, event.supplier, event.at_s)
            case events.SourceReadMoves():
                swarm.replica.moves(event.chunk, now)
            case events.FetchFailed():
                swarm.fetch_failed(event.chunk, event.peer, event.reason, now)
            case events.HoldingsHeard():
                swarm.holdings_heard(event, now)
            case events.SubscribeHeard():
                swarm.subscribe_heard(event.peer, now, self.free_slots)
            case events.UnsubscribeHeard():
                swarm.announcements.unsubscribe(event.peer)
            case events.SourceReadFailed():
                swarm.read_failed(event, now)
            case events.SourceProbed():
                swarm.probed(event, now)
            case events.ChunkLost():
                swarm.chunk_lost(event.chunk, now)
            case events.DeploymentClosed():
                self._close(swarm)

    def _open(self, event: events.DeploymentOpened, now: float) -> None:
        swarm = DeploymentSwarm(
            event, self._own, self._peers, self._link, settings=self.settings, rng=self._rng, now=now
        )
        self._deployments.open(swarm, now)
        self._take_commands(swarm)
        self._tick_s = -math.inf

    def _close(self, swarm: DeploymentSwarm) -> None:
        self._deployments.close(swarm)
        for chunk, flights in swarm.replica.flights.items():
            for flight in flights:
                if not isinstance(flight.supplier, Origin):
                    self._commands.append(events.CancelFetch(swarm.deployment, chunk, flight.supplier))
                    self._peers.released(flight.supplier)

    def _peer_changed(self, event: _PeerEvent, now: float) -> None:
        self._tick_s = -math.inf
        if isinstance(event, events.PeerSeen):
            if event.peer.node != self._own.node:
                self._peers.seen(event.peer, has_answered=event.has_answered)
        elif isinstance(event, events.MembersSeen):
            for node in self._peers.adopt(event.peers):
                self._forget(node, now)
        elif isinstance(event, events.IsolationChanged):
            self._election.isolated = event.isolated
        elif isinstance(event, events.PeerLost):
            self._peers.lost(event.node)
            self._forget(event.node, now)
        else:
            self._peers.reached(event.node, event.reachable)
            if not event.reachable:
                self._forget(event.node, now)

    def _forget(self, node: NodeId, now: float) -> None:
        for swarm in self._deployments.told_who_is_lost:
            swarm.forget(node, now)

    # ---- deciding ------------------------------------------------------------------------------

    def plan(self, now: float) -> None:
        """Decide; the commands wait for ``drain``."""
        self._plan_count += 1
        if now >= self._tick_due_s():
            self._tick(now)
            self._surroundings = self._around(now)
        swarms = self._planned()
        read_priority = -1  # the highest priority among deployments that are being read
        for swarm in swarms:
            swarm.note_endings(now)
            swarm.times.measure()
            if swarm.may_read():
                swarm.plan_reads(self._surroundings, now, yields=swarm.priority < read_priority)
                if read_priority < 0 and swarm.is_being_read(now):
                    read_priority = swarm.priority
            swarm.demand.take_turns(now + swarm.spare_s())
        # Reads come first: a read takes its part of the link, and the fetch window shrinks by it.
        self._plan_fetches(swarms, now)
        for swarm in swarms:
            swarm.tell(self.free_slots, now)
        for swarm in self._deployments.busy:  # an answer needs no roles
            self._take_commands(swarm)
        self._link.expects(sum([len(swarm.replica.flights) for swarm in swarms]), now)

    def _take_commands(self, swarm: DeploymentSwarm) -> None:
        if swarm.commands:
            self._commands += swarm.commands
            swarm.commands = []

    def _plan_fetches(self, swarms: list[DeploymentSwarm], now: float) -> None:
        """Begin fetches from the highest priority to the lowest, see the module's docstring."""
        most = self._fetches_max()  # fetches that deployments of this priority and lower ones may have
        if len(swarms) == 1:
            _share_fetches(swarms, most - swarms[0].replica.fetches, now)
            return
        under_way = sum(swarm.replica.fetches for swarm in swarms)
        for _, group in groupby(swarms, key=lambda swarm: swarm.priority):
            equals = list(group)
            before = sum(swarm.replica.fetches for swarm in equals)
            room = most - under_way
            newest = newest_of_names(equals)
            room -= _share_fetches([swarm for swarm in equals if swarm in newest], room, now)
            _share_fetches([swarm for swarm in equals if swarm not in newest and _may_ask(swarm, newest)], room, now)
            under_way -= before
            most = max(0, most - sum(swarm.replica.fetches for swarm in equals))
            for swarm in equals:
                most = swarm.leaves(most)

    def _tick_due_s(self) -> float:
        due_s, claim_s = self._tick_s + self._tick_interval_s, self._election.next_deadline()
        return due_s if claim_s is None else min(due_s, claim_s)

    def _fetches_max(self) -> int:
        """Fetches of all deployments together; fewer on a link so slow, or limited so low, that each fetch would only
        drip."""
        most = self.settings.fetches_max
        return min(most, max(1, int(self._link.rate / self.settings.fetch_rate_min))) if self._link.rate else most

    def _around(self, now: float) -> Surroundings:
        election = self._election
        return Surroundings(
            self._own,
            election.seeds,
            election.begin_allowed_s(now),
            election.reads_allowed_s(now),
            self._may_read_extra,
        )

    def _tick(self, now: float) -> None:
        late_s = now - self._tick_due_s() if self._tick_s > -math.inf else 0.0
        self._late_s = max(late_s, _LATE_KEPT * self._late_s)
        self._tick_s = now
        self._deployments.settle(now)
        busy = self._deployments.busy
        self._tick_interval_s = min((swarm.times.tick_interval_s for swarm in busy), default=_TICK_S)
        wanting = [swarm for swarm in busy if swarm.replica.missing_count]
        if not wanting and now >= self._heard_s + _REST_AFTER_S:
            self._is_resting, self._tick_interval_s = True, _REST_TICK_S - now % _REST_TICK_S
        self._peers.expire(now)
        # A slow host must not be a seed: every rack would wait for the chunks that it reads.
        if any(swarm.slow_hosts.is_own or is_outpaced(swarm) for swarm in busy):
            self._election.give_up(now)
        self._election.sources_fail = bool(wanting) and all(swarm.reader.readable is False for swarm in wanting)
        term = self._election.decide(self._peers, now)
        if term is not None:
            self._own = replace(self._own, seed_term=term)
            self._commands.append(events.ClaimSeed(term))
        around = self._around(now)
        self._limit_uploads()
        self._keep_up(around, now)
        room = self.settings.fetches_max + 1 - sum(swarm.replica.fetches for swarm in busy)
        is_alone: bool | None = None  # looked at when it is asked for first: it costs a look at every peer
        for swarm in busy:
            room -= hedge(swarm, room, now, late_s=self._late_s)
            if swarm.stall.reported or now - swarm.replica.progress_s >= self.settings.stall_s:
                is_alone = self._is_alone(around, now) if is_alone is None else is_alone
                report_stall(swarm, alone=is_alone, reads=sum(reads_of(one) for one in busy), now=now)

    def _keep_up(self, around: Surroundings, now: float) -> None:
        """Look at the roles of deployments again, first of those that have waited longest: where more is due than a
        tick may take, the same few would be looked at in each, and others never."""
        left = dict.fromkeys((True, False), max(1, _UPKEEP_HOSTS // (self._peers.count + 1)))
        for swarm in sorted(self._deployments.busy, key=lambda one: one.upkeep_s):
            pause_s = _UPKEEP_S if self._peers.version == swarm.upkeep_version else self._roles_kept_s(swarm)
            if now < swarm.upkeep_s + pause_s:
                continue
            is_wanting = swarm.replica.missing_count > 0
            if not left[is_wanting]:
                self._tick_interval_s = _POSTPONED_S
                continue
            cost = 1 if swarm.roles.racks else _FIRST_COST
            swarm.upkeep_s, swarm.upkeep_version = now, self._peers.version
            if refresh_roles(swarm, around, now):
                left[is_wanting] = max(0, left[is_wanting] - cost)
            swarm.subscribe(now)
            give_up_lost(swarm, now)
            want_copies(swarm, now)

    def _roles_kept_s(self, swarm: DeploymentSwarm) -> float:
        """How long the roles of a deployment stay though members have changed: nearly nothing in a small cluster. While
        a large one starts, or a liar makes up members in racks of their own, each tick would compute all roles."""
        return min(_UPKEEP_S, (self._peers.count + _RACK_COST * len(swarm.roles.racks)) / _ROLES_PER_S)

    def _planned(self) -> list[DeploymentSwarm]:
        """The deployments that have had roles, by priority; before that nothing is decided for one."""
        return [swarm for swarm in self._deployments.busy if swarm.upkeep_s > -math.inf]

    def _is_alone(self, around: Surroundings, now: float) -> bool:
        """No peer is usable though there are members, or reading waits until the view has settled."""
        if self._election.isolated or now < around.begin_allowed_s:
            return True
        return self._peers.are_all_unusable(now)

    def _limit_uploads(self) -> None:
        """Offer as many upload slots as others are likely to have fetches in flight, and the slots between two uploads.
        After an upload ends its slot stays idle for about ``handling_s / 2``, until a peer hears of it and asks: a
        chunk time where chunks are small, nothing where they are large. Rejected: a constant factor for both, because
        it costs efficiency where chunks are large; our own window alone, because a host that is ahead of its rack needs
        few fetches while the whole rack asks it."""
        if not (swarms := self._deployments.busy):
            return  # as it was: one that nobody asks for may be asked for soon
        window = max(max(swarm.fetch_window(), uploads_likely(swarm)) for swarm in swarms)
        self._window += (max(window, self.settings.fetches_min) - self._window) * _WINDOW_SMOOTH
        between = self.settings.handling_s / 2 / min(swarm.times.chunk_time_s for swarm in swarms)
        slots = min(self.settings.slots_max, max(self.settings.slots_min, round(self._window + between)))
        if slots != self._slots:
            self._slots = slots
            self._commands.append(events.LimitUploads(slots))

    def drain(self) -> list[events.Command]:
        """The commands since the last call, in order."""
        commands, self._commands = self._commands, []
        return commands

    def next_deadline(self, now: float) -> float:
        """When ``plan`` must be called though no event has come; may be in the past."""
        deadline = self._tick_due_s() if self._deployments else min(now + 1.0, self._tick_due_s())
        for swarm in self._planned():
            deadline = min(deadline, swarm.next_deadline(now))
        return deadline

    def chunk_time_s(self) -> float:
        """What one of the smallest chunks in flight takes on this host's link; 0 when none is, or that is not known."""
        if not self._link.rate:
            return 0.0
        return min((swarm.times.chunk_time_s for swarm in self._deployments.busy if swarm.replica.flights), default=0.0)

    def listens_to(self, node: NodeId) -> bool:
        """Whether some deployment has a subscription at that node, and so a connection to it."""
        return any(node in swarm.subscriptions for swarm in self._deployments.busy)

    def holdings(self, deployment: DeploymentId, node: NodeId) -> KnownHoldings | None:
        """What this host has of a deployment, or what a neighbour has announced to it; None where neither is known."""
        if (swarm := self._deployments.get(deployment)) is None:
            return None
        if node == self._own.node:
            return KnownHoldings(swarm.replica.held.snapshot(), swarm.replica.wanted.snapshot(), None)
        heard_s = swarm.subscriptions.heard_s.get(node)
        if heard_s is None or not swarm.availability.count_of(node):
            return None
        held = ChunkSet(swarm.availability.size, swarm.availability.bits_of(node))
        return KnownHoldings(held, swarm.interests.of(node), heard_s)

    @property
    def seeds(self) -> frozenset[NodeId]:
        """The seeds of all racks, as this host sees them."""
        return self._election.seeds

    def statistics(self) -> PlannerStatistics:
        """A frozen snapshot for status and metrics."""
        election, heard, plans = self._election, self._event_count, self._plan_count
        swarms = {swarm.deployment: _statistics_of(swarm) for swarm in self._deployments}
        return PlannerStatistics(election.term, heard, plans, election.seeds, swarms)


def _statistics_of(swarm: DeploymentSwarm) -> SwarmStatistics:
    replica, (one_copy, served) = swarm.replica, _copies_known(swarm)
    return SwarmStatistics(
        state=replica.state.value,
        chunks_held=replica.held_count,
        chunks_total=replica.shape.chunk_count,
        fetches=replica.fetches,
        reads=replica.reads,
        duplicate_chunks=replica.duplicate_chunks,
        neighbours=len(swarm.class_roles.neighbours),
        subscribers=len(swarm.announcements.subscribers),
        readers=swarm.reader.readers,
        stall=swarm.stall.reported,
        one_copy=one_copy,
        served=served,
    )


def _copies_known(swarm: DeploymentSwarm) -> tuple[bool, frozenset[NodeId]]:
    """Whether a holder of every chunk is known, and the hosts that want a part of which that is so."""
    if swarm.interests.is_uniform:
        return 0 not in swarm.reader.present, frozenset()
    replica, size = swarm.replica, swarm.replica.shape.chunk_count
    known = swarm.copies | swarm.availability.union() & ~ChunkSet.of(size, swarm.reader.claimed_chunks).bits
    known |= replica.held.as_int()
    served = swarm.interests.served_by(known)
    if replica.wanted.count < size and not replica.wanted.as_int() & ~known:
        served |= {swarm.own.node}
    return known.bit_count() == size, served


def newest_of_names(swarms: list[DeploymentSwarm]) -> set[DeploymentSwarm]:
    """For each name the highest version that has something to ask for, or, where none has, all."""
    highest: dict[str, int] = {}
    for swarm in swarms:
        if swarm.wants_fetches:
            highest[swarm.name] = max(swarm.version, highest.get(swarm.name, -1))
    return {swarm for swarm in swarms if not swarm.name or swarm.version >= highest.get(swarm.name, -1)}


def _may_ask(older: DeploymentSwarm, newest: set[DeploymentSwarm]) -> bool:
    """Whether no newer version of its name has a fetch under way, so that it would only wait."""
    return not any(one.name == older.name and one.version > older.version and one.replica.fetches for one in newest)


def _share_fetches(swarms: list[DeploymentSwarm], room: int, now: float) -> int:
    """Begin fetches of deployments of one priority, each for the one that has fewest; of a single one all at once.
    Returns how many were begun."""
    before = room
    able = [swarm for swarm in swarms if swarm.wants_fetches and (room > 0 or not swarm.replica.fetches)]
    if len(swarms) == 1:
        return able[0].plan_fetches(max(1, room), now) if able else 0
    while able:
        swarm = min(able, key=lambda one: one.replica.fetches)
        if room <= 0 and swarm.replica.fetches:
            break
        begun = swarm.plan_fetches(1, now)
        room -= begun
        if not begun or not swarm.wants_fetches:
            able.remove(swarm)
    return before - room
