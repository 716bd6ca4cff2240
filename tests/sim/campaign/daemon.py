"""One simulated host: a daemon put together from the real parts, on the virtual clock.

What lives here: lives and deaths of the process, the brain's loop (``gossipd.daemon.planner_driver``), what commands
become (``executor``), how the table of members hears (``member_directory``, the real one). What does not: a
deployment's steps (``deployment_runner``), links (``plane``), fetches (``bulk``), faults.

Every action of a host goes through ``after``: it dies with the life that began it, and waits while the process is
stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from gossipd.core import events
from gossipd.core.errors import GossipdError, RemoteError
from gossipd.core.events import Command, Event, FailReason
from gossipd.core.ids import COPIED, LOCAL, SOURCE, DeploymentId
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.deployment.commands import OpenSwarm
from gossipd.deployment.events import DiskConditionChanged, SourceTroubled
from gossipd.runtime.ports import DigestMismatchError, NotHeldError, StoreWriteError
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.notices import StoreConditionChanged, StoreEvent
from gossipd.store.settings import StoreSettings
from gossipd.swarm.capabilities import NodeCapabilities
from gossipd.swarm.planner import Planner
from membership.events import Event as MembershipEvent
from membership.events import PayloadHeard
from membership.member import NodeId
from tests.gossipd.daemon.listeners import QuietListener
from tests.gossipd.store.set_clock import SetClock
from tests.sim.campaign.bulk import Bulk, recheck_quietly
from tests.sim.campaign.deployment_runner import WALL_S, DeploymentRunner, StateFiles
from tests.sim.campaign.disk import SickDisk
from tests.sim.campaign.plane import Plane

if TYPE_CHECKING:
    from tests.sim.campaign.world import World

_PLAN_INTERVAL_S = 0.5  # far above the daemon's: slow hosts, at a tenth of the price of a run
_TIMER_PLAN_S = 1.0  # least wait for a plan that no event asks for
_IDLE_PLAN_S = 2.0  # the same on a host that has everything
_STORE_LOOK_S = (
    0.5  # the store's background thread is woken when a window is due; a poll is late by a quarter on average
)
_SCRUB_S, _SCRUB_BYTES = 3.0, 4 * 64  # four chunks: a pass over both models takes a minute
_RESTART_S = 2.0  # systemd's RestartSec for a daemon that could not open its store
_SLOW_DISK_S = (0.2, 1.0)
_STORE_S = 0.002  # hash, write, hand-over


class Daemon:
    """``index`` is its place in the world. ``is_powered``: the machine runs; ``is_up``: the process does."""

    def __init__(self, world: World, index: int) -> None:
        self.world = world
        self.index = index
        self.node: NodeId = world.wires.hosts[index].node
        self.rack = world.wires.hosts[index].rack
        self.name = world.wires.hosts[index].name
        self.random = Random(f"{world.seed} {index}")
        self.disk = SickDisk(Random(f"{world.seed} {index} disk"), lambda kind: world.faults.struck(kind, index))
        self.life = 0
        self.boot_id = 0
        self.is_up = self.is_stopped = False
        self.is_powered = True
        self.has_slow_disk = False
        self.link_slowness = 1.0
        self.lie_share = 0.0
        self.secret = world.wires.secrets[world.wires.hosts[index].public]
        self.files = StateFiles()
        self._reads = 0
        self._waiting: list[tuple[int, Callable[..., None], tuple[Any, ...]]] = []

    # ---- life ----------------------------------------------------------------------------------

    def boot(self, *, join: tuple[int, ...], roster: list[Any]) -> None:
        """The process starts. A store that cannot be opened ends it; it is started again in a while."""
        self.life += 1
        self.is_up, self.is_powered = True, True
        self._waiting.clear()
        try:
            self.store = self._open_store()
        except GossipdError:
            self.is_up = False
            self.disk.killed()
            self.world.after(_RESTART_S, self._boot_again, self.life, join, roster)
            return
        self._events: list[Event] = []
        self._plan_at = math.inf
        self._plan_earliest = 0.0
        self.seed_term = 0
        self.planner = Planner(
            node=self.node, rack=self.rack, zone="zone-a", settings=self.world.settings,
            rng=Random(self.random.getrandbits(64)), name=self.name,
        )  # fmt: skip
        self.members = MemberDirectory(self.node)
        self.bulk = self.make_bulk()
        self.plane = Plane(self)
        self.deployments = self.make_runner()
        swim = self.world.wires.begin_life(self.index, join=join, roster=roster)
        self.members.begin(swim.self_record(), roster)
        self.after(_STORE_LOOK_S * self.random.uniform(0.5, 1.0), self._keep_up)
        self.after(_SCRUB_S * self.random.uniform(0.5, 1.0), self._scrub)
        self.deployments.begin()

    def make_bulk(self) -> Bulk:
        """Both sides of its fetches, for a life that begins."""
        return Bulk(self)

    def make_runner(self) -> DeploymentRunner:
        """Its deployment brain, for a life that begins."""
        return DeploymentRunner(self)

    def _boot_again(self, life: int, join: tuple[int, ...], roster: list[Any]) -> None:
        if self.life == life and not self.is_up and self.is_powered and self.world.faults.should_run(self.index):
            self.boot(join=join, roster=roster)

    def _open_store(self) -> ChunkStore:
        wires = self.world.wires
        return ChunkStore(
            self.world.store_root,
            settings=StoreSettings(reserve_bytes=0),
            on_event=self._store_reported,
            disk=self.disk,
            clock=SetClock(boot=str(self.boot_id), now=lambda: wires.now, wall=lambda: WALL_S + wires.now),
            background=False,
        )

    def die(self, *, power: bool) -> None:
        """The process is gone; with ``power`` the machine is too, and what was not synced may be."""
        self.is_up = self.is_stopped = False
        self.life += 1
        self._waiting.clear()
        if hasattr(self, "bulk"):
            self.bulk.end_all()
        self.world.storage.reads -= self._reads
        self._reads = 0
        if power:
            self.is_powered = False
            self.boot_id += 1
            self.disk = self.disk.after_power_cut()
        else:
            self.disk.killed()

    def wipe(self) -> None:
        """All state is lost: an empty disk."""
        ailments = self.disk.ailments
        self.disk = SickDisk(self.random, lambda kind: self.world.faults.struck(kind, self.index))
        self.disk.ailments = ailments
        self.files = StateFiles()

    def forget(self) -> None:
        """What DIR/state held is lost, and the models are not."""
        self.files = StateFiles()

    def stop(self) -> None:
        """SIGSTOP."""
        self.is_stopped = True

    def go_on(self) -> None:
        """SIGCONT: everything that was due happens now, in order."""
        waiting, self._waiting = self._waiting, []
        for life, action, arguments in waiting:
            self._run(life, action, arguments)

    def hear(self, event: MembershipEvent) -> None:
        """What membership says of the others."""
        self.members.hear(event, _Listener(self))

    def watch(self, peer: int) -> None:
        """Something has happened between us and that host: the next heartbeat will tell."""
        if self.is_up:
            self.plane.watch(peer)

    def after(self, delay_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Do something in a while, if this life lasts."""
        self.world.after(delay_s, self._run, self.life, action, arguments)

    def _run(self, life: int, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if life != self.life or not self.is_up:
            return
        if self.is_stopped:
            self._waiting.append((life, action, arguments))
        else:
            action(*arguments)

    # ---- the brain's loop ----------------------------------------------------------------------

    def post(self, event: Event) -> None:
        """An event for the planner."""
        self._events.append(event)
        if self._plan_at > self._plan_earliest:
            self._plan_by(self.world.now)

    def slots_changed(self, free: int) -> None:
        """The server says so."""
        self.planner.free_slots = free

    def _plan_by(self, when: float) -> None:
        when = max(when, self._plan_earliest, self.world.now)
        if when < self._plan_at - 1e-9:
            self._plan_at = when
            self.world.at(when, self._run, self.life, self._plan, (when,))

    def _plan(self, when: float) -> None:
        if when != self._plan_at:
            return
        now, oracle, planner = self.world.now, self.world.oracle, self.planner
        self._plan_at, self._plan_earliest = math.inf, now + _PLAN_INTERVAL_S
        heard, self._events = self._events, []
        for event in heard:
            if type(event) is events.ChunkStored or type(event) is events.ChunkLost:
                self.deployments.post(event)
            if type(event) is events.ChunkStored and event.supplier not in (LOCAL, COPIED):
                self.bulk.slots.note_received(event.length, event.elapsed_s)
            if type(event) is events.FetchFailed and event.reason is FailReason.CORRUPT:
                oracle.hear_corrupt(self, event)
            else:
                planner.handle(event, now)
        planner.plan(now)
        for command in planner.drain():
            oracle.commanded(self, command)
            self._perform(command)
        oracle.planned(self)
        due = planner.next_deadline(now)
        self._plan_by(max(due, now + (_IDLE_PLAN_S if self.deployments.is_idle else _TIMER_PLAN_S)))

    def _perform(self, command: Command) -> None:
        match command:
            case events.StartSubscription() | events.EndSubscription() | events.SendHoldings() | events.SendDelta():
                self.plane.hear(command)
            case events.StartFetch():
                self.bulk.start(command)
            case events.CancelFetch():
                self.bulk.cancel(command.peer, command.deployment, command.chunk)
            case events.StartSourceRead():
                self._read_source(command)
            case events.ProbeSource():
                self.probe(command.deployment)
            case events.ClaimSeed():
                self.seed_term = command.term
                wires = self.world.wires
                wires.publish_capabilities(
                    self.index, NodeCapabilities(True, command.term, signs_progress=wires.sign_progress)
                )
            case events.FinishModel():
                self.deployments.post(command)
            case events.LimitUploads():
                self.bulk.limit_uploads(command.slots)
            case events.PreferFirstCopies():
                self.bulk.first_copies.watch(command.deployment, command.chunk_count)
            case events.ReportStall():
                self.world.stalls += command.reason is not None
                self.deployments.post(command)

    # ---- external storage ----------------------------------------------------------------------

    def probe(self, deployment: DeploymentId) -> None:
        """CommandExecutor._probe."""
        self.after(0.05, self._probed, deployment)

    def _probed(self, deployment: DeploymentId) -> None:
        readable = self.world.storage.probe()
        if not readable:
            self._source_troubled(deployment)
        self.post(events.SourceProbed(deployment, readable))

    def _read_source(self, command: events.StartSourceRead) -> None:
        storage = self.world.storage
        storage.reads += 1
        self._reads += 1
        took_s = storage.read_s(len(command.chunks), self.world.now)
        for chunk in command.chunks:
            self.bulk.arriving_in(took_s, command.deployment, chunk, SOURCE)
        self.after(took_s, self._read_ended, command, self.world.now)

    def _read_ended(self, command: events.StartSourceRead, began_s: float) -> None:
        """CommandExecutor._read: each chunk is put as it comes."""
        storage, deployment = self.world.storage, command.deployment
        storage.reads -= 1
        self._reads -= 1
        model = self.world.models[deployment]
        failed: dict[FailReason, list[int]] = {}
        for chunk in command.chunks:
            body, reason = storage.give(model, chunk)
            if reason is None:
                reason = self._put_read(deployment, chunk, body, self.world.now - began_s)
            self.bulk.arrival_ended(deployment, chunk, SOURCE, has_landed=reason is None)
            if reason is not None:
                failed.setdefault(reason, []).append(chunk)
        bad = [reason for reason in failed if reason in (FailReason.SOURCE, FailReason.CORRUPT)]
        if bad:
            self._source_troubled(deployment)
        for reason, chunks in failed.items():
            self.post(events.SourceReadFailed(deployment, tuple(chunks), reason))

    def _source_troubled(self, deployment: DeploymentId) -> None:
        self.deployments.post(SourceTroubled(deployment, RemoteError("simulated", code="E_SOURCE_UNREACHABLE")))

    def _put_read(self, deployment: DeploymentId, chunk: int, body: bytes, elapsed_s: float) -> FailReason | None:
        try:
            is_new = self.store.put(deployment, chunk, memoryview(body), SOURCE, elapsed_s)
        except DigestMismatchError:
            return FailReason.CORRUPT
        except StoreWriteError:
            return FailReason.DISK
        except NotHeldError:
            return FailReason.CANCELLED
        return None if is_new else FailReason.CANCELLED

    # ---- the store -----------------------------------------------------------------------------

    def _store_reported(self, event: StoreEvent) -> None:
        if isinstance(event, events.ChunkStored):
            self.world.oracle.stored(self, event)
            self.post(event)
        elif isinstance(event, events.ChunkLost):
            self.world.oracle.lost(self, event)
            self.post(event)
        elif isinstance(event, StoreConditionChanged):
            self.after(0.0, self._disk_changed, event.condition.code)

    def _disk_changed(self, code: str) -> None:
        self.deployments.post(DiskConditionChanged(code))

    def _keep_up(self) -> None:
        """The background thread's step."""
        self.store.upkeep.step()
        self.world.oracle.committed(self)
        self.after(_STORE_LOOK_S + self.disk_wait_s(), self._keep_up)

    def _scrub(self) -> None:
        self.store.scrubber.step(_SCRUB_BYTES)
        self.after(_SCRUB_S, self._scrub)

    def recheck(self, deployment: DeploymentId, chunk: int) -> None:
        """Somebody complains, or our own file could not be read."""
        self.after(0.001, recheck_quietly, self, deployment, chunk)

    def disk_wait_s(self) -> float:
        """What a write waits for the disk."""
        if not self.has_slow_disk:
            return _STORE_S
        self.world.faults.struck("slow_disk", self.index)
        return self.random.uniform(*_SLOW_DISK_S)

    def said(self, body: bytes) -> bytes:
        """What leaves here instead of ``body``."""
        if self.lie_share and self.random.random() < self.lie_share:
            self.world.faults.struck("corrupting_peer", self.index)
            return bytes([body[0] ^ 1]) + body[1:]
        return body

    # ---- what the deployment brain wants ---------------------------------------------------------

    def open_swarm(self, command: OpenSwarm) -> None:
        """See SwarmPort."""
        manifest = command.manifest
        opened = events.DeploymentOpened(
            manifest.id, manifest.shape(), command.held, manifest.priority, manifest.targets
        )
        self.post(opened)
        self.plane.hear(opened)

    def close_swarm(self, deployment: DeploymentId) -> None:
        """See SwarmPort."""
        closed = events.DeploymentClosed(deployment)
        self.post(closed)
        self.plane.hear(closed)


class _Listener(QuietListener):
    """What a daemon's parts hear of members."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon.post)
        self._daemon = daemon

    def post(self, event: Event) -> None:
        """The sessions hear of a lost peer after the planner."""
        super().post(event)
        if isinstance(event, events.PeerLost):
            self._daemon.plane.hear(event)

    def member_changed(self, node: NodeId) -> None:
        """See MemberListener."""
        self._daemon.plane.member_changed(node)

    def ask(self, node: NodeId) -> None:
        """See MemberListener."""
        self._daemon.world.wires.ask(self._daemon.index, node)

    def roster_changed(self) -> None:
        """See MemberListener."""
        self._daemon.deployments.roster_changed()

    def payload_heard(self, event: PayloadHeard) -> None:
        """See MemberListener."""
        self._daemon.deployments.heard(event)
