"""A simulated cluster: hosts, messages, transfers and faults on one virtual clock.

What lives here: everything between the hosts. What does not: the clock (``membership.simulation``), what a host decides
(its Planner) or does (``host``). A relay flows at its fair rate and ends no earlier than its upstream; that it cannot
overtake the upstream on the way is not modelled.

Deterministic: the order of scheduling breaks ties on the heap, and every draw is from a seeded Random: one for the
world and one for membership, so that deaths change nothing before the first of them.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Sequence
from hashlib import blake2b
from random import Random

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import (
    ClaimSeed,
    DeploymentOpened,
    Event,
    MembersSeen,
    PeerLost,
    PeerReachable,
    PeerSeen,
    PeerWantHeard,
)
from gossipd.core.ids import DeploymentId
from gossipd.core.model import PeerView, Shape
from gossipd.core.timing import ENDING_S, ENDING_SHARE, READ_ENDING_SHARE
from gossipd.manifest.chunk_layout import extent_chunks
from gossipd.runtime.turn_interval import TurnInterval
from gossipd.sim.course import Course
from gossipd.sim.death_verdicts import Verdicts
from gossipd.sim.fabric import Fabric, FabricLink, Flow
from gossipd.sim.host import SimHost, Transfer
from gossipd.sim.membership import Membership
from gossipd.sim.scenario import Kill, Scenario
from gossipd.sim.traffic_model import ControlSent, control_sent
from gossipd.swarm.planner import Planner
from membership.member import NodeId
from membership.simulation import VirtualClock

_RECOMPUTE_PER_CHUNK_TIME = 20
_PLANS_PER_CHUNK_TIME = 10  # at most, where a daemon rests for less than that; more changes nothing
_CLAIM_SPREAD_S = 0.5  # a record with a new claim reaches all hosts within some gossip rounds


class World:
    """One run. ``run`` plays it to the end."""

    def __init__(
        self, scenario: Scenario, *, settled: bool = True, keep_arrivals: bool = False,
        keep_course: bool = False, on_progress: Callable[[int], None] | None = None,
        wants: Sequence[ChunkSet] | None = None,
    ) -> None:  # fmt: skip
        """``settled``: seeds are elected before the deployment opens. ``keep_arrivals``: remember every delivery, for a
        picture. ``keep_course``: what each host had and from where, for a report. ``on_progress``: is told each per
        cent of all deliveries. ``wants``: what each host wants, known to all of them; None: everything."""
        self.scenario = scenario
        self._wants = wants
        self._deliveries = sum(map(len, wants)) if wants else scenario.chunks * scenario.hosts
        self._on_progress = on_progress
        self._percent_done = 0
        self.arrivals: list[tuple[float, int, int]] | None = [] if keep_arrivals else None
        self.course = Course(scenario.hosts, scenario.chunks, scenario.chunk_bytes) if keep_course else None
        self.slowed: list[int] = []
        self.clock = VirtualClock()
        self.deployment = DeploymentId(blake2b(b"simulated %d" % scenario.rng, digest_size=32).digest())
        self._rng = Random(scenario.rng)
        self.fabric = Fabric()
        self._quantum_s = scenario.chunk_time_s / _RECOMPUTE_PER_CHUNK_TIME
        rests = TurnInterval()
        rests.chunk_time_s = scenario.chunk_time_s
        self.plan_interval_s = max(rests.rest_s, scenario.chunk_time_s / _PLANS_PER_CHUNK_TIME)
        self._boundary_s: float | None = None
        self.external_link = self.fabric.add_link(scenario.external)
        per_rack = scenario.hosts / scenario.racks
        uplink = per_rack * scenario.link / scenario.oversubscription
        self.rack_up = [self.fabric.add_link(uplink) for _ in range(scenario.racks)]
        self.rack_down = [self.fabric.add_link(uplink) for _ in range(scenario.racks)]
        self.hosts = [self._make_host(index) for index in range(scenario.hosts)]
        self.by_node = {host.node: host for host in self.hosts}
        self.views = {host.node: self._view(host, 0) for host in self.hosts}
        self._apply_slowdowns()
        self.delivered_count = 0
        self.first_copy_s: list[float | None] = [None] * scenario.chunks
        self.entered = [0] * scenario.racks  # chunks that entered a rack from outside
        self.external_chunks = 0
        self.timeline: list[list[float]] = [[] for _ in self.hosts]
        self._kills = sorted(scenario.kills, key=lambda kill: kill.progress)
        self.unfinished = scenario.hosts
        self._healthy_unfinished = scenario.hosts - len(set(self.slowed))
        self.control_sent: ControlSent | None = None
        self.verdict_waits_s = array("d")  # for each living host and each dead one: from the death to the verdict
        self.false_deaths = 0
        self._greet(settled)
        self._membership: Membership | None = None
        if scenario.kills and scenario.hosts <= scenario.membership_hosts_max:
            self._membership = Membership(self, Random(f"{scenario.rng} membership"))
        self._verdicts = Verdicts(scenario.hosts, Random(f"{scenario.rng} verdicts"))

    def _make_host(self, index: int) -> SimHost:
        scenario = self.scenario
        rack = index * scenario.racks // scenario.hosts
        node = NodeId(blake2b(b"host %d %d" % (index, scenario.rng), digest_size=16).digest())
        planner = Planner(
            node=node, rack=f"rack-{rack}", settings=scenario.settings, rng=Random(f"{scenario.rng} {index}"),
            name=f"host-{index}",
        )  # fmt: skip
        up, down = self.fabric.add_link(scenario.link), self.fabric.add_link(scenario.link)
        return SimHost(self, index=index, node=node, rack=rack, planner=planner, up=up, down=down)

    def _view(self, host: SimHost, term: int) -> PeerView:
        return PeerView(host.node, f"rack-{host.rack}", "", True, term, f"host-{host.index}")

    def _apply_slowdowns(self) -> None:
        for slow in self.scenario.slowdowns:
            chosen = [self.hosts[slow.host]] if slow.host is not None else []
            chosen += self._rng.sample(self.hosts, round(slow.share * len(self.hosts)))
            for host in chosen:
                self.slowed.append(host.index)
                for link in (host.up, host.down):
                    link.capacity = link.free = self.scenario.link * slow.factor

    def _greet(self, settled: bool) -> None:
        """The members know each other and seeds are elected before time 0; then the deployment opens on all hosts."""
        scenario = self.scenario
        early = self.clock.now = -10.0 if settled else 0.0
        for host in self.hosts:
            host.planner.handle(MembersSeen(self.views), early)
        if settled:
            self._elect(early)
        self.clock.now = 0.0
        size, chunk_bytes = scenario.chunks, scenario.chunk_bytes
        shape = Shape(
            size, chunk_bytes, scenario.size, extent_chunks(scenario.size, chunk_bytes), scenario.origin is None
        )
        for host in self.hosts:
            wanted = self._wants[host.index] if self._wants is not None else None
            held = ChunkSet.full(size) if host.index == scenario.origin else ChunkSet(size)
            host.held, host.held_count = held.bits, len(held)
            host.post(DeploymentOpened(self.deployment, shape, held, wanted=wanted))
            for other, want in zip(self.hosts, self._wants or (), strict=False):
                if other is not host:
                    host.post(PeerWantHeard(other.node, self.deployment, want))

    def _elect(self, early: float) -> None:
        """The next candidate of a rack claims at once, and all hosts hear of it before the one after it claims."""
        step_s = self.scenario.settings.claim_rank_s
        now, quiet_s = early, 0.0
        while quiet_s < 2 * step_s:
            claims: dict[NodeId, PeerView] = {}
            for host in self.hosts:
                host.planner.plan(now)
                for command in host.planner.drain():
                    assert isinstance(command, ClaimSeed)
                    claims[host.node] = self._view(host, command.term)
            if claims:
                self.views = self.views | claims  # another mapping: the planners keep theirs
                for host in self.hosts:
                    host.planner.handle(MembersSeen(self.views), now)
            quiet_s = 0.0 if claims else quiet_s + step_s
            now += step_s
        assert now + self.scenario.settings.seeds_stable_s < 0.0, "the seeds are settled before the deployment opens"

    # ---- time ----------------------------------------------------------------------------------

    def run(self, *, limit_s: float | None = None) -> None:
        """Play until every living host is done, or ``limit_s``. Without the collector of cycles: it would look at the
        whole cluster again and again, a fifth of the time, and the simulation drops its objects by count."""
        end = limit_s if limit_s is not None else 50 * self.scenario.bound_s + 60
        step, is_collecting = self.clock.step, gc.isenabled()
        gc.disable()
        try:
            while self.unfinished and step(end):
                pass
        finally:
            if is_collecting:
                gc.enable()

    # ---- messages ------------------------------------------------------------------------------

    def delay(self, sender: SimHost, receiver: SimHost, rng: Random | None = None) -> float:
        """One way, with the queues of the two ports as full as the ports are busy."""
        scenario = self.scenario
        queue = max(0.0, sender.up.busy() - 0.8) + max(0.0, receiver.down.busy() - 0.8)
        return scenario.delay_s * (0.5 + (rng or self._rng).random()) + scenario.queue_s * 5 * queue

    def send(self, sender: SimHost, peer: NodeId, event: Event) -> None:
        """A control message; in order per pair, because delays change slowly against the spacing of messages."""
        receiver = self.by_node[peer]
        if receiver.alive:
            self.clock.after(self.delay(sender, receiver), receiver.hear, event)

    def send_all(self, sender: SimHost, peers: tuple[NodeId, ...], event: Event) -> None:
        """Send one message to many. Where queues are short one delay serves for all of them: one event, not forty."""
        if self.scenario.queue_s > self._quantum_s:
            for peer in peers:
                self.send(sender, peer, event)
        else:
            self.clock.after(self.delay(sender, sender), self._heard_by_all, peers, event)

    def _heard_by_all(self, peers: tuple[NodeId, ...], event: Event) -> None:
        for peer in peers:
            self.by_node[peer].hear(event)

    def claimed(self, host: SimHost, term: int) -> None:
        """A record with a claim spreads by gossip. One that a newer has replaced spreads no further: by its incarnation
        hosts that have the newer one drop it."""
        view = self._view(host, term)
        self.views = self.views | {host.node: view}
        if self._membership is not None:
            self._membership.claim(view)
            return
        for other in self.hosts:
            if other is not host:
                self.clock.after(self._rng.random() * _CLAIM_SPREAD_S, self._hear_record, other, view)

    def _hear_record(self, host: SimHost, view: PeerView) -> None:
        if self.views[view.node] is view:
            host.post(PeerSeen(view))

    # ---- transfers -----------------------------------------------------------------------------

    def begin(self, transfer: Transfer) -> None:
        """Bytes begin to flow."""
        taker, server = transfer.taker, transfer.server
        if not taker.alive:
            return
        if server is None:
            links: tuple[FabricLink, ...] = (self.external_link, self.rack_down[taker.rack], taker.down)
        elif server.rack == taker.rack:
            links = (server.up, taker.down)
        else:
            links = (server.up, self.rack_up[server.rack], self.rack_down[taker.rack], taker.down)
        length = len(transfer.chunks) * self.scenario.chunk_bytes
        is_relayable = len(transfer.chunks) == 1  # the chunks of one read arrive one by one
        told_at = (1.0 - self.scenario.told_share) * length if is_relayable else 0.0
        flow = Flow(transfer, links, length, self.clock.now, told_at=told_at)
        transfer.flow = flow
        self.fabric.begin(flow)
        if self._boundary_s is None:
            self._boundary_s = self.clock.now
            self.clock.at(self.clock.now, self._boundary)
        elif flow.rate > 0:
            end = self.clock.now + flow.remaining / flow.rate
            if end < self._boundary_s:
                self.clock.at(end, self._flow_ended, flow)

    def _boundary(self) -> None:
        if not self.fabric.flows:
            self._boundary_s = None
            return
        until = self._boundary_s = self.clock.now + self._quantum_s
        ending, told = self.fabric.recompute(self.clock.now, until)
        for end, flow in ending:
            self.clock.at(end, self._flow_ended, flow)
        for flow in told:
            transfer = flow.key
            assert isinstance(transfer, Transfer)
            if transfer.is_told:
                transfer.taker.ending(transfer)
            else:
                transfer.is_told = True
                transfer.taker.arriving(transfer)
                share = READ_ENDING_SHARE if transfer.server is None else ENDING_SHARE
                flow.told_at = min(share * flow.length, ENDING_S * flow.rate)
        self.clock.at(until, self._boundary)

    def _flow_ended(self, flow: Flow) -> None:
        if flow not in self.fabric.flows:
            return
        transfer = flow.key
        assert isinstance(transfer, Transfer)
        self._end_flow(transfer)
        if transfer.upstream is None:
            self.over(transfer)
        else:
            transfer.is_over = True

    def over(self, transfer: Transfer) -> None:
        """All bytes have flowed, and the server has verified them."""
        taker, server = transfer.taker, transfer.server
        wait = self.scenario.store_s
        if self.course is not None:
            self.course.carried(transfer)
        if server is None:
            self.external_chunks += len(transfer.chunks)
            self.entered[taker.rack] += len(transfer.chunks)
        else:
            server.served(transfer)
            wait += self.delay(server, taker)
            if server.rack != taker.rack:
                self.entered[taker.rack] += 1
        self.clock.after(wait, taker.received, transfer)

    def stop(self, transfer: Transfer) -> None:
        """The transfer is cancelled; bytes that have flowed stay counted."""
        self._end_flow(transfer)
        if transfer.server is not None:
            transfer.server.served(transfer)

    def _end_flow(self, transfer: Transfer) -> None:
        if transfer.flow is not None:
            self.fabric.end(transfer.flow)
            transfer.flow = None  # each refers to the other: a cycle that only the collector would find

    # ---- progress and faults -------------------------------------------------------------------

    def delivered(self, host: SimHost, chunk: int) -> None:
        """A host holds a new chunk."""
        self.delivered_count += 1
        if self.delivered_count * 100 >= (self._percent_done + 1) * self._deliveries:
            self._percent_done += 1
            if self._on_progress is not None:
                self._on_progress(self._percent_done)
        self.timeline[host.index].append(self.clock.now)
        if self.arrivals is not None:
            self.arrivals.append((self.clock.now, host.index, chunk))
        if self.course is not None:
            self.course.tell(host, self.clock.now)
        if self.first_copy_s[chunk] is None:
            self.first_copy_s[chunk] = self.clock.now
        while self._kills and self.delivered_count >= self._kills[0].progress * self._deliveries:
            self._kill(self._kills.pop(0))

    def finished(self, host: SimHost) -> None:
        """A host is done or dead. With the last healthy host the figures of control end: the slow go on alone."""
        self.unfinished -= 1
        if host.index not in self.slowed:
            self._healthy_unfinished -= 1
            if not self._healthy_unfinished:
                self.control_sent = self.control_until_now()

    def control_until_now(self) -> ControlSent:
        """What the living hosts have sent so far, on average."""
        living = [host for host in self.hosts if host.alive]
        messages = sum(host.control_bytes for host in living)
        links = sum(self.by_node[peer].alive for host in living for peer in host.linked)
        membership = sum(host.membership_bytes for host in living) if self._membership is not None else None
        return control_sent(self.clock.now, len(living), messages=messages, links=links, membership=membership)

    def _kill(self, kill: Kill) -> None:
        living = [host for host in self.hosts if host.alive]
        chosen: list[SimHost] = []
        if kill.host is not None:
            chosen.append(self.hosts[kill.host])
        if kill.seed:
            chosen += [host for host in living if self.views[host.node].seed_term][:1]
        chosen += self._rng.sample(living, round(kill.share * len(self.hosts)))
        chosen = [host for host in dict.fromkeys(chosen) if host.alive]
        for host in chosen:
            self._die(host)
        if self._membership is None:
            self._draw_verdicts(chosen)

    def _die(self, host: SimHost) -> None:
        host.alive = False
        host.died_s = self.clock.now
        if self.course is not None:
            self.course.tell(host, self.clock.now)
        if host.done_s is None:
            self.finished(host)
        for transfer in [*host.serving, *host.reading, *host.fetching.values()]:
            self._end_flow(transfer)
        for transfer in host.fetching.values():
            if transfer.server is not None:
                transfer.server.served(transfer)
        scenario = self.scenario
        for other in self.hosts:
            if other.alive:
                self.clock.after(scenario.evidence_s * (0.5 + self._rng.random()), self._evidence, other, host)

    def _draw_verdicts(self, dead: list[SimHost]) -> None:
        living = [host for host in self.hosts if host.alive]
        for host, waits_s in zip(dead, self._verdicts.draw(len(dead)), strict=True):
            for other, wait_s in zip(living, waits_s, strict=False):  # the waits have no end
                self.clock.after(wait_s, self._sentence, other, host)

    def _sentence(self, observer: SimHost, dead: SimHost) -> None:
        if observer.alive:
            self.lost(observer, dead)
            observer.post(PeerLost(dead.node))

    def lost(self, observer: SimHost, lost: SimHost) -> None:
        """Membership has told ``observer`` that ``lost`` is dead."""
        if lost.died_s is None:
            self.false_deaths += 1
        else:
            self.verdict_waits_s.append(self.clock.now - lost.died_s)

    def _evidence(self, observer: SimHost, dead: SimHost) -> None:
        """Only a host with a connection to the dead one notices before membership does."""
        if observer.planner.listens_to(dead.node):
            observer.post(PeerReachable(dead.node, False))
        observer.peer_died(dead.node)
