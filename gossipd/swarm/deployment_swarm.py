"""One deployment on this host: what each event means to its parts, and its next fetches, reads and announcements.

What lives here: the wiring of the parts of one deployment. What does not: their rules, what is looked at a few times a
second (``maintenance``), and what deployments share (``planner``: peers, election, link).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from functools import partial
from random import Random

from msgspec.structs import replace

from gossipd.core import events
from gossipd.core.chunkset import ChunkSet
from gossipd.core.ids import COPIED, LOCAL, SOURCE, Origin, Supplier
from gossipd.core.model import PeerView
from gossipd.swarm.announcements import Announcements, told_soon
from gossipd.swarm.arrival_rates import ArrivalRates
from gossipd.swarm.availability import Availability
from gossipd.swarm.bandwidth_meter import BandwidthMeter
from gossipd.swarm.class_roles import ClassRoles
from gossipd.swarm.demand import Demand
from gossipd.swarm.doubt import FirstClaims, counted_delta, counted_holdings
from gossipd.swarm.endings import Endings
from gossipd.swarm.extra_reader import ExtraReader
from gossipd.swarm.import_window import ImportWindow
from gossipd.swarm.interests import Interests
from gossipd.swarm.link_times import LinkTimes
from gossipd.swarm.local_replica import LocalReplica
from gossipd.swarm.neighbour_subscriptions import NeighbourSubscriptions
from gossipd.swarm.origins import SPREAD_FAR, Origins
from gossipd.swarm.peers import Peers
from gossipd.swarm.pipelining import Pipelining
from gossipd.swarm.reading_start import ReadingStart
from gossipd.swarm.rendezvous import bucket_of
from gossipd.swarm.roles import Roles
from gossipd.swarm.scheduler import Scheduler
from gossipd.swarm.settings import PlannerSettings
from gossipd.swarm.slow_hosts import SlowHosts
from gossipd.swarm.source_read_planner import SourceReadPlanner
from gossipd.swarm.stall_detector import StallWatch
from gossipd.swarm.stand_in import StandIn
from gossipd.swarm.surroundings import Surroundings
from membership.member import NodeId

_SPARE_WAITS = 4 / 3  # of ``late_wait_s``: two thirds of what an importer is waited for


class DeploymentSwarm:
    """One deployment. The fields are for ``planner``, ``maintenance`` and ``hedging``."""

    def __init__(
        self, event: events.DeploymentOpened, own: PeerView, peers: Peers, link: BandwidthMeter, *,
        settings: PlannerSettings, rng: Random, now: float,
    ) -> None:  # fmt: skip
        self.deployment = event.deployment
        self.priority = event.priority
        self.name, self.version = event.name, event.version
        self.settings = settings
        self._rng = rng
        self.own = own
        self.peers, self.doubted = peers, frozenset[NodeId]()  # ``maintenance`` looks who is doubted
        size = event.shape.chunk_count
        self.first_claims, self.uncounted = FirstClaims(size), frozenset[NodeId]()
        self.replica = LocalReplica(event.deployment, event.shape, event.held, now=now, wanted=event.wanted)
        self.interests = Interests(size, self.replica.wanted.as_int())
        self.availability = Availability(size, event.held.bits)
        make = partial(Roles, own, event.targets, event.deployment, settings, shape=event.shape)
        self.class_roles = ClassRoles(make, self.interests)
        self.roles = self.class_roles.whole
        spread_far = settings.spread_far if event.shape.has_sources else min(settings.spread_far, SPREAD_FAR)
        self.demand = Demand(self.availability, replace(settings, spread_far=spread_far))
        self.origins = Origins(own.node, event.shape, is_own=event.held.is_full)
        self._unwanted = (ChunkSet.full(size) - self.replica.wanted.snapshot()).bits
        self.copies = event.copies.bits & self.replica.missing().bits if event.copies is not None else 0
        self.demand.want(self.replica.missing() - ChunkSet(size, self.copies))
        self.pipelining, self.endings = Pipelining(), Endings()
        self.scheduler = Scheduler(self.availability, self.demand, peers, self.pipelining, settings=settings, rng=rng)
        self.import_window = ImportWindow(settings.fetches_max)
        self.reader = SourceReadPlanner(own.node, event.shape, event.deployment, settings, rng)
        self.reader.rebuild(self.present())
        self.stand_in, self.extra_reader = StandIn(event.deployment, now), ExtraReader(event.deployment, now)
        self.announcements = Announcements(event.deployment, settings)
        self.subscriptions = NeighbourSubscriptions(settings)
        self._reading_start = ReadingStart(self.reader, self.subscriptions, peers, is_resumed=bool(event.held))
        self.slow_hosts = SlowHosts(settings)
        self.arrival_rates, self._far_rack_peers = ArrivalRates(own.node), frozenset[NodeId]()
        self.stall = StallWatch(settings.stall_s)
        # Chunks announced before they are here, with their suppliers; None: a peer may have been refused the chunk.
        self._promised: dict[int, Supplier | None] = {}
        self._is_writable = True  # no chunk has failed on the disk since the last one was written
        self.commands: list[events.Command] = []
        self.is_paused = self.probe_asked = self.reads_begun = False
        self.times = LinkTimes(settings, event.shape, link, peers)
        self._wanted_of: tuple[Collection[NodeId], int] = ((), -1)  # what ``_wanted_peers`` was computed of
        self._wanted_peers: set[NodeId] = set()
        self.upkeep_s, self.upkeep_version = -math.inf, -1
        if self.origins.is_own:
            self.commands.append(events.PreferFirstCopies(self.deployment, size))
        if not self.replica.missing_count:
            self.commands.append(events.FinishModel(self.deployment))

    def present(self) -> int:
        """Bits of the chunks that need not leave storage for this host."""
        return self.replica.held.as_int() | self.availability.union(but=self.uncounted) | self.copies | self._unwanted

    def pause(self, now: float, *, is_paused: bool) -> None:
        """Begin no fetch and no read from now on, or begin them again. What is under way ends by itself."""
        self.is_paused = is_paused
        self.replica.progress_s = now
        if self.stall.reported is not None:
            self.stall.reported = self.stall.named = None
            self.commands.append(events.ReportStall(self.deployment, None))

    # ---- our own chunks ------------------------------------------------------------------------

    def stored(self, event: events.ChunkStored, now: float) -> None:
        """A chunk is verified and written here."""
        chunk, supplier = event.chunk, event.supplier
        landed = self.replica.land(chunk, supplier)
        if not isinstance(supplier, Origin):
            self.pipelining.drop(supplier, chunk)
            if landed:
                self.peers.delivered(supplier, event.elapsed_s, now)
                if supplier not in self.roles.rack_peers:
                    self.import_window.arrived(event.elapsed_s)
        elif supplier is SOURCE:
            self.reader.read_ended(event.elapsed_s, self.times.chunk_time_s)
        if not self.replica.store(chunk, now):
            return
        if supplier not in (LOCAL, COPIED):
            self.arrival_rates.stored(now)
        for flight in self.replica.flights.get(chunk, ()):
            if not isinstance(flight.supplier, Origin):
                self.commands.append(events.CancelFetch(self.deployment, chunk, flight.supplier))
        self.demand.unwant(chunk)
        if self.copies:
            self.copies &= ~(1 << chunk)
        self._is_writable = True
        # A promise that is kept needs no second announcement, unless a peer may have been refused the chunk since.
        if self._promised.pop(chunk, None) != supplier:
            self._tell(chunk, supplier)
        elif supplier is SOURCE:
            is_midst = self.times.is_level and self.reader.is_midst(self.replica)
            self.announcements.hurry(self.reader.readers, is_midst=is_midst)
        self.availability.stored(chunk)
        self.reader.present[chunk] = 1
        if self.replica.wants(chunk) and not self.replica.missing_count:
            self.commands.append(events.FinishModel(self.deployment))

    def arriving(self, event: events.ChunkArriving) -> None:
        """Enough of a chunk is here for others to be sent it while the rest comes."""
        chunk, supplier = event.chunk, event.supplier
        if event.ending_at_s is not None:
            self.endings.expect(chunk, supplier, event.ending_at_s)
        is_help = self._is_writable and self.slow_hosts.may_promise(self.replica.held_count)
        is_help = is_help and (isinstance(supplier, Origin) or not self.peers.has_lied(supplier))
        if self.replica.arrives(chunk, supplier) and is_help and not self.replica.holds(chunk):
            # When a second flight of the chunk begins to come, peers of the first one may have been refused.
            self._promised[chunk] = None if chunk in self._promised else supplier
            self._tell(chunk, supplier)

    def note_endings(self, now: float) -> None:
        """Chunks of which little is left by now: the next one may be asked of the supplier that sends it."""
        for chunk, supplier in self.endings.take(now):
            if not self.replica.ends(chunk, supplier):
                continue
            if not isinstance(supplier, Origin):
                self.pipelining.add(supplier, chunk)
            # Most of one copy is here: the other one of a hedged chunk costs only bytes.
            others = [flight.supplier for flight in self.replica.flights[chunk] if not flight.is_ending]
            cancel = partial(events.CancelFetch, self.deployment, chunk)
            self.commands += [cancel(other) for other in others if not isinstance(other, Origin)]

    def is_promised(self, chunk: int) -> bool:
        """Whether rack peers may "hold" the chunk because this host has announced it before it is here."""
        return chunk in self._promised

    def _tell(self, chunk: int, supplier: Supplier) -> None:
        lacking, roles = self.availability.lacking, self.roles
        rack_peers = lacking(roles.rack_peers, chunk)
        holders = self.availability.near_count(chunk) + 1
        urgent = list(told_soon(rack_peers, holders, self.settings.early_announcers, self._rng))
        if supplier is SOURCE and self.replica.holds(chunk):  # source readers may begin their next reads
            urgent += lacking(self.reader.readers, chunk)
        bucket, roles = bucket_of(chunk), self.class_roles.of(chunk)
        # This host brought the chunk into the rack: the importers of other racks wait for it.
        if supplier not in self.roles.rack_peers or not roles.places[bucket]:
            sender = supplier if self.replica.shape.has_sources else SOURCE  # an origin sends each chunk once first
            urgent += lacking(roles.firsts_elsewhere(bucket, sender), chunk)
        self.announcements.stored(chunk, urgent)

    def chunk_lost(self, chunk: int, now: float) -> None:
        """A held chunk has rotted: this host wants it again and offers it no longer."""
        if not self.replica.lose(chunk):
            return
        self.availability.lost_here(chunk, self.roles.rack_peers - self._far_rack_peers)
        self.announcements.lost(chunk)
        if not self.replica.wants(chunk):
            return
        self.demand.want([chunk])
        self.reader.rebuild(self.present())
        self.demand.consider(chunk, now, self.times.late_wait_s)

    # ---- fetches and reads that failed ---------------------------------------------------------

    def want_again(self, chunk: int, now: float) -> None:
        """A flight has ended without its chunk."""
        if self.replica.wants(chunk) and not self.replica.holds(chunk) and chunk not in self.replica.flights:
            if chunk in self._promised:
                del self._promised[chunk]
                self.announcements.lost(chunk)
            self.demand.want([chunk])
            self.demand.consider(chunk, now, self.times.late_wait_s)

    def fetch_failed(self, chunk: int, peer: NodeId, reason: events.FailReason, now: float) -> None:
        """A fetch from a peer ended without its chunk."""
        flight = self.replica.land(chunk, peer)
        self.pipelining.drop(peer, chunk)
        if flight is None:
            return
        if reason is events.FailReason.SLOW and peer not in self.roles.rack_peers:
            self.import_window.too_slow(flight.started_s, self._importing() + 1, now)
        self.peers.failed(
            peer, reason, now, idle_s=now - self.replica.progress_s, chunk_s=self.times.chunk_time_s,
            was_silent=not flight.is_arriving,
        )  # fmt: skip
        self.stall.fetch_failed(peer, reason, now)
        if chunk in self._promised:
            self._promised[chunk] = None
        if reason is events.FailReason.DISK:
            self._is_writable = False
        if reason is events.FailReason.NOT_HELD:
            self._dropped(peer, [chunk])
        elif reason is events.FailReason.GONE:
            self.forget(peer, now)
        if reason is not events.FailReason.GONE and self.peers.is_shunned(peer, now):
            self.drop_holdings(peer, now)
        self.want_again(chunk, now)

    def read_failed(self, event: events.SourceReadFailed, now: float) -> None:
        """A read from storage ended; these chunks did not arrive."""
        self.stall.read_failed(event.reason, now)
        if event.reason is events.FailReason.DISK:
            self._is_writable = False
        if event.reason is events.FailReason.WHOLE_ONLY:
            self.reader.read_from_start(self.present(), now)
        elif event.reason is not events.FailReason.CANCELLED:
            self.reader.read_failed(now)
        for chunk in event.chunks:
            if self.replica.land(chunk, SOURCE):
                self.want_again(chunk, now)
        self.announcements.hurry(self.reader.readers)  # they leave these chunks to us while we claim them

    def probed(self, event: events.SourceProbed, now: float) -> None:
        """A probe has ended."""
        self.reader.readable = event.readable
        if event.is_whole_only:
            self.reader.read_from_start(self.present(), now)

    # ---- what peers say ------------------------------------------------------------------------

    def holdings_heard(self, event: events.HoldingsHeard, now: float) -> None:
        """A peer's complete holdings."""
        is_ours = event.chunks.size == self.replica.shape.chunk_count
        if not is_ours or not self.peers.hears(event.peer, event.free_slots, now):
            return
        before = self.availability.bits_of(event.peer)
        if event.peer in self.doubted:
            event = counted_holdings(event, self.replica.missing().bits, before, self._rng)
        self.first_claims.heard(event.peer, len(event.chunks), is_first=not before)
        self.origins.heard(event.peer, is_full=event.chunks.is_full, is_first=not before)
        if event.peer not in self.subscriptions.heard_s:  # it was not heard for a while: its claims of then are over
            self.claims_released(self.reader.forget(event.peer, now))
        self.subscriptions.heard(event.peer, now, is_news=event.chunks.bits != before)
        announcements = self.availability.replace(event.peer, event.chunks, near=self._is_near(event.peer))
        self._heard(event.peer, announcements, now)
        if lost := before & ~event.chunks.bits:
            self.reader.rebuild(self.present())
            self.consider(ChunkSet(event.chunks.size, lost), now)

    def delta_heard(self, event: events.DeltaHeard, now: float) -> None:
        """A peer's changes since its last message, and what it is reading from storage."""
        peer = event.peer
        if not self.peers.hears(peer, event.free_slots, now):
            return
        self.subscriptions.heard(peer, now)
        self.arrival_rates.heard(peer, len(event.added), now)
        if event.dropped:
            self._dropped(peer, event.dropped)
            self.consider(event.dropped, now)
        if peer in self.doubted:
            event = counted_delta(event, self.replica.missing(), self.availability.bits_of(peer), self._rng)
        if event.reading or self.reader.claims(peer):
            self.claims_released(self.reader.claimed(peer, event.reading, now))
            for chunk in event.reading:
                if not self.replica.holds(chunk):
                    self.reader.recheck_presence(chunk)
        if event.added:
            self._heard(peer, self.availability.add(peer, event.added, near=self._is_near(peer)), now)

    def _dropped(self, peer: NodeId, chunks: Collection[int]) -> None:
        """A peer does not hold these chunks (any more). A chunk without another holder must leave storage again."""
        chunks = [chunk for chunk in chunks if not self.availability.lacks(peer, chunk)]
        self.availability.drop(peer, chunks)
        if not all(map(self._is_there, chunks)):
            self.reader.rebuild(self.present())

    def consider(self, chunks: Iterable[int], now: float) -> None:
        """Judge again when these chunks may be asked for."""
        late_wait_s, wanted, consider = self.times.late_wait_s, self.demand.wanted, self.demand.consider
        for chunk in chunks:
            if chunk in wanted:
                consider(chunk, now, late_wait_s)

    def _heard(self, peer: NodeId, announcements: tuple[int, ...], now: float) -> None:
        if peer not in self.uncounted:
            self.reader.seen(announcements)
        self.consider(announcements, now)

    def claims_released(self, chunks: Collection[int]) -> None:
        """No peer says any more that it is reading these chunks: a chunk that has a holder has been read."""
        self.reader.seen(filter(self._is_there, chunks))

    def _is_there(self, chunk: int) -> bool:
        return self.replica.holds(chunk) or self.availability.has_holder(chunk, but=self.uncounted)

    def subscribe_heard(self, peer: NodeId, now: float, free_slots: int) -> None:
        """A peer subscribes: answer with all that is held or promised, unless there is no room."""
        if self.announcements.subscribe(peer):
            held = self.replica.held.snapshot() | ChunkSet.of(self.replica.shape.chunk_count, self._promised)
            self.commands.append(events.SendHoldings(peer, self.deployment, held, max(0, free_slots)))
            self.subscriptions.greeted(peer, now)

    def forget(self, peer: NodeId, now: float) -> None:
        """A peer is out of reach: its holdings do not count, and it is asked again when it is back."""
        self.announcements.unsubscribe(peer)
        self.drop_holdings(peer, now)

    def drop_holdings(self, peer: NodeId, now: float) -> None:
        """Ignore a peer's holdings while it is shunned, or its rack would wait for it. A rotten one's reads go on."""
        self.subscriptions.forget(peer)
        self.arrival_rates.forget(peer)
        if not self.peers.is_rotten(peer, now):
            self.claims_released(self.reader.forget(peer, now))
        held_something = self.availability.bits_of(peer) != 0
        self.availability.forget(peer)
        if held_something:
            self.reader.rebuild(self.present())
            self.consider([*self.demand.near, *self.demand.imports, *self.demand.own_imports], now)

    # ---- deciding ------------------------------------------------------------------------------

    def fetch_window(self) -> int:
        """How many fetches keep the link busy: more when ready chunks pile up, fewer while reads need the link."""
        ready = self.demand.ready_count()
        window = self.times.window(ready)
        if self.replica.reads:
            most = self.reader.flows_max(self.replica.missing_count, ready if self.arrival_rates.behind else 0)
            window = max(1, min(window, most - self.replica.reads))
        return window

    def spare_s(self) -> float:
        """How much sooner this host may ask for what is others' turn, because its link idles and theirs may be slower.
        Not where links are equal: a second import costs its rack's uplink."""
        idles = not self.wants_fetches and self.replica.fetches + self.replica.reads < self.times.window_min
        return _SPARE_WAITS * self.times.late_wait_s if idles and self.arrival_rates.behind else 0.0

    def plan_fetches(self, room: int, now: float) -> int:
        """Start fetches; returns how many. One that is about to end does not count, unless reads need the link. One
        that has brought nothing for long takes nothing of the link: peers that send nothing are tried side by side."""
        replica = self.replica
        under_way = replica.fetches - (0 if replica.reads else replica.ending_fetches)
        window = self.fetch_window()
        if self.arrival_rates.is_own_behind:
            window = min(window, self.times.window_behind(self.arrival_rates, self.replica))
        count = min(room, window - under_way)
        if count <= 0 and room > 0:
            count = min(room, window - under_way + replica.silent_fetches(now - self.times.silent_s))
        if count <= 0 or not replica.missing_count:
            return 0
        imports_max = self.imports_room() if self.demand.imports or self.demand.own_imports else 0
        own_max = self.demand.own_share(window, self._importing()) if self.demand.own_imports else 0
        picked = self.scheduler.pick(
            count, now, self.times.pause_s, imports_max=imports_max, own_max=min(imports_max, own_max),
            far_max=self.imports_room() if self.arrival_rates.lacks_uplinks(self.demand.ready_count()) else 0,
        )  # fmt: skip
        for chunk, node, behind in picked:
            self.start_fetch(chunk, node, now, behind=behind)
        return len(picked)

    @property
    def wants_fetches(self) -> bool:
        """Whether there are chunks that may be asked for now."""
        return not self.is_paused and bool(self.demand.ready_count())

    def leaves(self, most: int) -> int:
        """How many of ``most`` fetches lower priorities may have while this deployment reads or waits for chunks."""
        if not self.wants_fetches and not self.replica.reads:
            return most
        return min(most, self.fetch_window() - self.replica.fetches)

    def imports_room(self) -> int:
        """How many more chunks may be asked of other racks."""
        return self.import_window.room(self._importing())

    def _importing(self) -> int:
        suppliers = [flight.supplier for flights in self.replica.flights.values() for flight in flights]
        return sum(not isinstance(one, Origin) and one not in self.roles.rack_peers for one in suppliers)

    def start_fetch(self, chunk: int, node: NodeId, now: float, *, behind: int | None = None) -> None:
        """Ask one peer for one chunk."""
        self.replica.start(chunk, node, now)
        self.commands.append(events.StartFetch(self.deployment, chunk, node, self.times.fetch_timeout_s(), behind))

    def judge_rates(self, now: float) -> frozenset[NodeId]:
        """The hosts whose links are slower, this one perhaps among them. To the only quick host of a rack its rack
        peers count as holders elsewhere, or it would wait for their links."""
        # A host that wants little would pass for one with a slow link, and so would one that an origin has sent little.
        if not self.interests.is_uniform or not self.replica.shape.has_sources:
            return frozenset()
        behind = self.arrival_rates.look(self.demand.ready_count())
        near = self.roles.rack_peers
        is_only_level = not self.arrival_rates.is_own_behind and near <= behind | self.slow_hosts.others
        far = behind & near if is_only_level else frozenset()
        if far == self._far_rack_peers:
            return behind
        before, after, self._far_rack_peers = near - self._far_rack_peers, near - far, far
        for node in sorted(before ^ after):
            held = ChunkSet(self.replica.shape.chunk_count, self.availability.bits_of(node))
            self.availability.forget(node)
            self.availability.replace(node, held, near=node in after)
        if before != after:
            self.consider(list(self.demand.wanted), now)
        return behind

    def _is_near(self, node: NodeId) -> bool:
        return node in self.roles.rack_peers and node not in self._far_rack_peers

    def may_read(self) -> bool:
        """Whether this host is a source reader, or still announces reads from when it was one."""
        return self.reader.is_reader or bool(self.announcements.reading)

    def is_being_read(self, now: float) -> bool:
        """Whether this host or another reads the deployment from storage now."""
        return bool(self.replica.reads) or self.reader.is_being_read(now)

    def is_held_back(self, around: Surroundings, now: float) -> bool:
        """Whether source readers are not to read this deployment now."""
        if not self.replica.shape.has_sources or self.is_paused or not self.replica.missing_count:
            return True
        is_going_on = self.reads_begun or self.reader.is_being_read(now)
        return now < (around.reads_allowed_s if is_going_on else around.begin_allowed_s)

    def plan_reads(self, around: Surroundings, now: float, *, yields: bool) -> None:
        """Read what is this host's to read from storage; little where it ``yields`` to a higher priority."""
        if not self.is_held_back(around, now) and self._reading_start.knows_enough(self.class_roles.neighbours, now):
            self.reads_begun = True
            for run in self.reader.plan(self.replica, now, yields=yields, is_extra=self.extra_reader.is_active):
                for chunk in run:
                    self.replica.start(chunk, SOURCE, now)
                    self.demand.unwant(chunk)
                is_awaited = bool(self.announcements.subscribers)
                self.commands.append(events.StartSourceRead(self.deployment, run, is_awaited, self.reader.from_start))
        if self.replica.reads or self.announcements.reading:
            is_midst = self.times.is_level and self.reader.is_midst(self.replica)
            reading, is_end = tuple(self.replica.reading()), not self.replica.missing_count
            self.announcements.read(reading, self.reader.readers, is_midst=is_midst, is_end=is_end)

    def tell(self, free_slots: int, now: float) -> None:
        """Send the announcements that are due."""
        self.commands.extend(self.announcements.flush(now, self.times.batch_s(self.replica), free_slots))

    def subscribe(self, now: float) -> None:
        """Subscribe to neighbours while chunks are missing, and no longer."""
        neighbours = self.class_roles.neighbours if self.replica.missing_count else frozenset[NodeId]()
        if (key := (neighbours, self.peers.version)) != self._wanted_of:
            self._wanted_of, self._wanted_peers = key, self.peers.usable(neighbours, now)
        count_of, size = self.availability.count_of, self.replica.shape.chunk_count
        ask, drop = self.subscriptions.refresh(
            neighbours, self._wanted_peers, lambda node: count_of(node) == size, now,
            chunk_time_s=self.times.pause_s, mean_chunk_s=self.replica.mean_chunk_s(now),
        )  # fmt: skip
        self.commands += [events.StartSubscription(node, self.deployment) for node in ask]
        self.commands += [events.EndSubscription(node, self.deployment) for node in drop]

    def next_deadline(self, now: float) -> float:
        """When a plan has something to do that neither an event nor a tick announces."""
        deadline = self.endings.next_s
        if (announcements := self.announcements.next_deadline(self.times.batch_s(self.replica))) is not None:
            deadline = min(deadline, announcements)
        if (turn := self.demand.next_turn()) is not None and turn < deadline:
            deadline = turn
        # No event says that a busy peer is worth another request.
        if self.scheduler.all_busy and self.wants_fetches:
            deadline = min(deadline, now + max(0.005, self.times.pause_s / 2))
        return deadline
