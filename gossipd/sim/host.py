"""One simulated host: the daemon's Planner, and adapters that take virtual time and move no bytes.

What lives here: performing commands, upload slots, what is held. What does not: time and links (``world``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from gossipd.core import events
from gossipd.core.ids import SOURCE, DeploymentId, Supplier
from gossipd.core.model import PeerView
from gossipd.sim.fabric import FabricLink, Flow
from gossipd.sim.scenario import Scenario
from gossipd.sim.traffic_model import ACKNOWLEDGEMENT_BYTES, delta_bytes, holdings_bytes, request_bytes
from gossipd.swarm.first_copies import FirstCopies
from gossipd.swarm.planner import Planner
from membership.member import NodeId
from membership.simulation import VirtualClock


@dataclass(slots=True, eq=False)
class Transfer:
    """One fetch or read under way, from the request to the last byte. ``upstream``: the transfer of the same chunk that
    this one relays. ``relays``: the transfers that relay this one; none ends before it. ``behind``: the chunk before
    this one on the connection. ``next``: the transfer after it."""

    taker: SimHost
    server: SimHost | None
    chunks: tuple[int, ...]
    asked_s: float
    behind: int | None = None
    flow: Flow | None = None
    next: Transfer | None = None
    is_told: bool = False  # announced while it comes
    is_over: bool = False  # all bytes have flowed; a relay still waits for the last bytes of its upstream
    upstream: Transfer | None = None
    relays: list[Transfer] = field(default_factory=list)

    @property
    def supplier(self) -> Supplier:
        """Who sends it."""
        return SOURCE if self.server is None else self.server.node


class Network(Protocol):
    """What a host and its membership need of the simulated world: time, other hosts, and the links between them."""

    clock: VirtualClock
    scenario: Scenario
    deployment: DeploymentId
    plan_interval_s: float
    hosts: list[SimHost]
    by_node: dict[NodeId, SimHost]
    views: dict[NodeId, PeerView]

    def delay(self, sender: SimHost, receiver: SimHost, rng: Random | None = None) -> float:
        """One way between two hosts, in seconds."""

    def send(self, sender: SimHost, peer: NodeId, event: events.Event) -> None:
        """Bring a control message to a peer."""

    def send_all(self, sender: SimHost, peers: tuple[NodeId, ...], event: events.Event) -> None:
        """Bring the same message to many."""

    def claimed(self, host: SimHost, term: int) -> None:
        """The host claims to be its rack's seed."""

    def begin(self, transfer: Transfer) -> None:
        """Bytes begin to flow."""

    def over(self, transfer: Transfer) -> None:
        """All bytes have flowed, and the server has verified them."""

    def stop(self, transfer: Transfer) -> None:
        """The transfer is cancelled; bytes that have flowed stay counted."""

    def delivered(self, host: SimHost, chunk: int) -> None:
        """The host holds a new chunk."""

    def finished(self, host: SimHost) -> None:
        """The host holds everything."""

    def lost(self, observer: SimHost, lost: SimHost) -> None:
        """Count that ``observer`` takes ``lost`` for dead."""


class SimHost:
    """A host. ``index`` is its place in ``World.hosts``."""

    def __init__(
        self, world: Network, *, index: int, node: NodeId, rack: int, planner: Planner, up: FabricLink, down: FabricLink
    ) -> None:
        self.world = world
        self.clock = world.clock
        self.index, self.node, self.rack = index, node, rack
        self.planner = planner
        self.slots = world.scenario.upload_slots
        self.first_copies = FirstCopies()
        self.up, self.down = up, down
        self.alive = True
        self.held = self.held_count = 0
        self.events: list[events.Event] = []
        self.plan_at, self.plan_earliest = float("inf"), 0.0
        self.done_s: float | None = None
        self.died_s: float | None = None
        self.control_bytes = self.membership_bytes = self.messages = 0
        self.linked: set[NodeId] = set()  # peers to which a control connection was made
        self.duplicates = 0
        self.fetching: dict[tuple[int, NodeId], Transfer] = {}
        self.arrivals: dict[int, Transfer] = {}  # chunks of which enough is here to be relayed
        self.serving: dict[Transfer, None] = {}
        self.reading: dict[Transfer, None] = {}

    # ---- the brain's loop ----------------------------------------------------------------------

    def hear(self, event: events.Event) -> None:
        """A control message has come."""
        if self.alive:
            self.control_bytes += ACKNOWLEDGEMENT_BYTES
            self.post(event)

    def post(self, event: events.Event) -> None:
        """An event for the planner, which hears it at the next plan."""
        if self.alive:
            self.events.append(event)
            if self.plan_at > self.plan_earliest:
                self._plan_by(self.clock.now)

    def _plan_by(self, when: float) -> None:
        when = max(when, self.plan_earliest, self.clock.now)
        if when < self.plan_at - 1e-9:
            self.plan_at = when
            self.clock.at(when, self.plan, when)

    def plan(self, when: float) -> None:
        """One turn of the daemon's loop."""
        if not self.alive or when != self.plan_at:
            return
        now = self.clock.now
        self.plan_at, self.plan_earliest = float("inf"), now + self.world.plan_interval_s
        heard, self.events = self.events, []
        self.planner.free_slots = self.slots - len(self.serving)
        for event in heard:
            self.planner.handle(event, now)
        self.planner.plan(now)
        for command in self.planner.drain():
            self.perform(command)
        self._plan_by(self.planner.next_deadline(now))

    def perform(self, command: events.Command) -> None:
        """What the daemon's adapters would do."""
        match command:
            case events.SendDelta():
                self._send_delta(command)
            case events.StartFetch():
                self._start_fetch(command.chunk, command.peer, command.behind)
            case events.StartSourceRead():
                self._start_read(command.chunks)
            case events.CancelFetch():
                self._cancel(command.chunk, command.peer)
            case events.SendHoldings():
                size = holdings_bytes(command.chunks)
                heard = events.HoldingsHeard(self.node, command.deployment, command.chunks, command.free_slots)
                self._send(command.peer, heard, size)
            case events.StartSubscription():
                self._send(command.peer, events.SubscribeHeard(self.node, command.deployment), request_bytes())
            case events.EndSubscription():
                self._send(command.peer, events.UnsubscribeHeard(self.node, command.deployment), request_bytes())
            case events.ProbeSource():
                probed = events.SourceProbed(command.deployment, self.world.scenario.origin is None)
                self.clock.after(self.world.scenario.source_delay_s, self.post, probed)
            case events.ClaimSeed():
                self.world.claimed(self, command.term)
            case events.FinishModel():
                self.done_s = self.clock.now
                self.world.finished(self)
            case events.LimitUploads():
                self.slots = command.slots
            case events.PreferFirstCopies():
                self.first_copies.watch(command.deployment, command.chunk_count)

    def _send(self, peer: NodeId, event: events.Event, size: int) -> None:
        self.control_bytes += size
        self.messages += 1
        self.linked.add(peer)
        self.world.send(self, peer, event)

    def _send_delta(self, command: events.SendDelta) -> None:
        size = delta_bytes(command)
        chunks = (command.added, command.dropped, command.reading)
        heard = events.DeltaHeard(self.node, command.deployment, *chunks, command.free_slots)
        self.control_bytes += size * len(command.peers)
        self.messages += len(command.peers)
        self.linked.update(command.peers)
        self.world.send_all(self, command.peers, heard)

    # ---- fetching ------------------------------------------------------------------------------

    def _start_fetch(self, chunk: int, peer: NodeId, behind: int | None) -> None:
        server = self.world.by_node[peer]
        transfer = Transfer(self, server, (chunk,), self.clock.now, behind)
        self.fetching[chunk, peer] = transfer
        if not server.alive:
            self.clock.after(self.world.scenario.evidence_s, self._fail, transfer, events.FailReason.GONE)
            return
        self.clock.after(self.world.delay(self, server), server.asked, transfer)

    def asked(self, transfer: Transfer) -> None:
        """A request has arrived here."""
        taker = transfer.taker
        if (transfer.chunks[0], self.node) not in taker.fetching or not taker.alive:
            return  # cancelled on the way
        if not self.alive:
            self.clock.after(self.world.scenario.evidence_s, taker._fail, transfer, events.FailReason.GONE)
            return
        if transfer.behind is not None:
            first = taker.fetching.get((transfer.behind, self.node))
            transfer.behind = None
            if first is not None and first in self.serving and first.next is None:
                first.next = transfer
                return
        reason, upstream = None, None
        if not self.held >> transfer.chunks[0] & 1:
            upstream = self.arrivals.get(transfer.chunks[0])
            if upstream is None or upstream.server is taker:
                reason = events.FailReason.NOT_HELD
        if reason is None and len(self.serving) >= self.slots:
            reason = events.FailReason.BUSY
        may_begin = self.first_copies.may_begin
        if reason is None and not may_begin(self.world.deployment, transfer.chunks[0], self.clock.now):
            reason = events.FailReason.BUSY
        if reason is not None:
            self.clock.after(self.world.delay(self, taker), taker._fail, transfer, reason)
            return
        if upstream is not None:
            transfer.upstream = upstream
            upstream.relays.append(transfer)
        self.serving[transfer] = None
        self.world.begin(transfer)

    def _fail(self, transfer: Transfer, reason: events.FailReason) -> None:
        assert transfer.server is not None
        chunk, peer = transfer.chunks[0], transfer.server.node
        if self.fetching.pop((chunk, peer), None) is not None:
            self._let_relays_go(transfer, has_landed=False)
            self.post(events.FetchFailed(self.world.deployment, chunk, peer, reason))

    def _cancel(self, chunk: int, peer: NodeId) -> None:
        transfer = self.fetching.pop((chunk, peer), None)
        if transfer is None:
            return
        self.world.stop(transfer)
        self._let_relays_go(transfer, has_landed=False)
        self.post(events.FetchFailed(self.world.deployment, chunk, peer, events.FailReason.CANCELLED))

    def arriving(self, transfer: Transfer) -> None:
        """Enough of a fetch or read is here for the chunk to be relayed."""
        chunk = transfer.chunks[0]
        if not self.held >> chunk & 1 and chunk not in self.arrivals:
            self.arrivals[chunk] = transfer
            self.post(events.ChunkArriving(self.world.deployment, chunk, transfer.supplier))

    def ending(self, transfer: Transfer) -> None:
        """The rest of a fetch or read is about to come."""
        self.post(events.ChunkEnding(self.world.deployment, transfer.chunks[0], transfer.supplier))

    def _let_relays_go(self, transfer: Transfer, *, has_landed: bool) -> None:
        """A fetch or read has ended: with the chunk its relays may end, without it they must fail."""
        chunk = transfer.chunks[0]
        if self.arrivals.get(chunk) is transfer:
            del self.arrivals[chunk]
        relays, transfer.relays = transfer.relays, []
        for relay in relays:
            relay.upstream = None
            if relay not in self.serving:
                continue
            if has_landed:
                if relay.is_over:
                    self.world.over(relay)
            else:
                self.world.stop(relay)
                delay_s = self.world.delay(self, relay.taker)
                self.clock.after(delay_s, relay.taker._fail, relay, events.FailReason.NOT_HELD)

    def _start_read(self, chunks: tuple[int, ...]) -> None:
        if self.world.scenario.origin is not None:
            failed = events.SourceReadFailed(self.world.deployment, chunks, events.FailReason.SOURCE)
            self.clock.after(self.world.scenario.source_delay_s, self.post, failed)
            return
        transfer = Transfer(self, None, chunks, self.clock.now)
        self.reading[transfer] = None
        self.clock.after(self.world.scenario.source_delay_s, self.world.begin, transfer)

    # ---- the end of a transfer -----------------------------------------------------------------

    def served(self, transfer: Transfer) -> None:
        """The last byte has left, or the taker is gone: the slot passes to the next request there, or is free."""
        following, transfer.next = transfer.next, None
        if self.serving.pop(transfer, self) is None and self.alive:
            if transfer.taker.alive and (transfer.chunks[0], self.node) in transfer.taker.fetching:
                self.first_copies.sent(self.world.deployment, transfer.chunks[0])
            self.first_copies.ended(self.world.deployment, transfer.chunks[0])
            if following is not None:
                self.asked(following)

    def received(self, transfer: Transfer) -> None:
        """The last byte is here, hashed and written."""
        if not self.alive:
            return
        world = self.world
        elapsed = self.clock.now - transfer.asked_s
        if transfer.server is None:
            self.reading.pop(transfer, None)
        elif self.fetching.pop((transfer.chunks[0], transfer.server.node), None) is None:
            return
        for chunk in transfer.chunks:
            if self.held >> chunk & 1:
                self.duplicates += 1
            else:
                self.held |= 1 << chunk
                self.held_count += 1
                world.delivered(self, chunk)
            self.post(
                events.ChunkStored(world.deployment, chunk, transfer.supplier, world.scenario.chunk_bytes, elapsed)
            )
        self._let_relays_go(transfer, has_landed=True)

    def peer_died(self, node: NodeId) -> None:
        """Our connections to a host are reset: every request to it fails."""
        for (_chunk, peer), transfer in list(self.fetching.items()):
            if peer == node:
                self._fail(transfer, events.FailReason.GONE)
