"""One host of a cluster with liars: it tells its progress as a daemon does, and judges words as a daemon does.

What lives here: the daemon's own rules and its publisher of progress on the virtual clock; what liars do with chunks.
What does not: what liars say (``words``).

Liars of four sorts beside their words: one claims to have every chunk and never sends one, one claims so again and
again, gives each host one chunk in a while and refuses all else, one sends wrong bytes, one reads so slowly that it
would hold every slot of every host.
"""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from gossipd.core import events
from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import Command, FailReason
from gossipd.core.ids import DeploymentId
from gossipd.core.model import PeerView
from gossipd.daemon.gossip_rules import GossipRules
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.daemon.progress_publisher import ProgressPublisher
from gossipd.deployment.cluster_clock import ClusterClock
from gossipd.deployment.progress_record import ProgressFormatError
from gossipd.deployment.states import FINAL
from gossipd.transfer.settings import BulkSettings
from membership.events import PayloadHeard, PayloadKind
from membership.member import NodeId
from tests.sim.campaign.bulk import Bulk, Fetch
from tests.sim.campaign.daemon import Daemon
from tests.sim.campaign.deployment_runner import WALL_S, DeploymentRunner
from tests.sim.campaign.model import CHUNK_BYTES

if TYPE_CHECKING:
    from tests.sim.liars.world import LiarWorld

STALL, CORRUPT, SLOW, TRICKLE = "stall", "corrupt", "slow", "trickle"
CHUNK_SORTS = (STALL, CORRUPT, SLOW, TRICKLE)
_SETTINGS = BulkSettings()
_PUBLISHER_TURN_S = 0.5
_SLOW_HOSTS = 20  # that a slow reader asks each second
_CLAIM_AGAIN_S = 0.25
_TRICKLE_S = 2.5  # between two chunks to one host
_SLOW_S = 256.0  # a chunk of 16 MiB at the least rate that is not cut


class TellingRunner(DeploymentRunner):
    """With progress, which a host signs, and with the daemon's judgement of every word."""

    def __init__(self, daemon: LiarDaemon) -> None:
        super().__init__(daemon)
        wires = daemon.world.wires
        wires.rules = SimulatedGossipRules(self, daemon)
        self._publisher = ProgressPublisher(
            table=self.progress, lifecycle=self.records, store=daemon.store, chunk_access=cast(Any, None),
            directory=daemon.members, roster=self.roster, secret=daemon.secret,
            membership_host=cast(Any, self), clock=ClusterClock(),
        )  # fmt: skip
        daemon.after(_PUBLISHER_TURN_S * daemon.random.random(), self._look)

    def heard(self, event: PayloadHeard) -> None:
        """As the daemon does."""
        if event.kind is not PayloadKind.PROGRESS:
            super().heard(event)
            return
        try:
            told = self._publisher.heard(event.key, event.version, event.payload)
        except ProgressFormatError:
            return
        if told is not None:
            self.post(told)

    def _look(self) -> None:
        self._publisher.tell_due(self._world.now)
        self._daemon.after(_PUBLISHER_TURN_S, self._look)

    def slowness(self) -> int:
        """As ``MembershipHost``, in whose place this stands."""
        wires = self._world.wires
        return wires.swim(self._daemon.index).slowness(wires.now)

    def publish_progress(self, key: bytes, version: int, payload: bytes) -> None:
        """Likewise."""
        wires = self._world.wires
        wires.swim(self._daemon.index).publish(PayloadKind.PROGRESS, key, version, payload, wires.now)
        self._daemon.after(0.0, wires.flush, self._daemon.index)


class SimulatedGossipRules(GossipRules):
    """The daemon's, on the virtual clock; boot numbers are those of the simulated membership, in milliseconds."""

    def __init__(self, runner: TellingRunner, daemon: LiarDaemon) -> None:
        world = daemon.world
        clocks = SimpleNamespace(wall_s=lambda: WALL_S + world.now, monotonic_s=lambda: world.now)
        super().__init__(
            runner.statements, runner.roster, runner.progress, cast(Any, None), daemon, clocks=clocks
        )  # fmt: skip
        self._latest_boot = world.latest_boot

    def latest_boot(self) -> int:
        """See HostRules."""
        return self._latest_boot()


class LiarBulk(Bulk):
    """As the campaign's, and tells its slots how quick uploads were; a staller never answers."""

    upload_bytes = CHUNK_BYTES

    def __init__(self, daemon: LiarDaemon) -> None:
        super().__init__(daemon)
        self._trickled_s: dict[NodeId, float] = {}

    def slot_began_s(self, fetch: Fetch) -> float:
        """On the virtual clock."""
        return fetch.began_s

    def asked(self, fetch: Fetch) -> None:
        """A request is here."""
        if cast("LiarDaemon", self._daemon).lies == STALL and fetch.taker.bulk.fetches.get(fetch.key) is fetch:
            fetch.taker.after(_SETTINGS.stall_s, fetch.taker.bulk._fail, fetch, FailReason.SLOW)
            self._world.oracle.looked["stalled"] += 1
            return
        if cast("LiarDaemon", self._daemon).lies == TRICKLE and fetch.taker.bulk.fetches.get(fetch.key) is fetch:
            now, taker = self._world.now, fetch.taker
            if now - self._trickled_s.get(taker.node, -_TRICKLE_S) < _TRICKLE_S:
                taker.after(self._world.delay(), taker.bulk._fail, fetch, FailReason.NOT_HELD)
                self._world.oracle.looked["trickled"] += 1
                return
            self._trickled_s[taker.node] = now
        super().asked(fetch)

    def release(self, fetch: Fetch) -> None:
        """The connection has ended, or the taker has hung up."""
        if self._daemon.bulk is self and self._daemon.life == fetch.server_life and fetch.body:
            self.slots.note_upload(fetch.taker.node, len(fetch.body), fetch.began_s)
        super().release(fetch)

    def read_slowly(self, node: NodeId, size: int) -> None:
        """A slow reader asks for a chunk; what comes of it."""
        looked, now = self._world.oracle.looked, self._world.now
        is_served = self.slots.acquire(node, size)
        looked["slow reads served" if is_served else "slow reads refused"] += 1
        if is_served:
            self._daemon.after(_SLOW_S, self._read_slowly_ended, node, size, now)

    def _read_slowly_ended(self, node: NodeId, size: int, began_s: float) -> None:
        self.slots.note_upload(node, size, began_s)
        self.slots.release(node, began_s)


class LiarDaemon(Daemon):
    """``lies``: what it does with chunks when it is a liar; else empty."""

    world: LiarWorld

    def __init__(self, world: LiarWorld, index: int) -> None:
        super().__init__(world, index)
        self.lies = ""
        self.refused: Counter[str] = Counter()
        self._claims: dict[tuple[NodeId, DeploymentId], events.SendHoldings] = {}

    def make_bulk(self) -> Bulk:
        return LiarBulk(self)

    def make_runner(self) -> DeploymentRunner:
        return TellingRunner(self)

    def acquaint(self, everybody: MemberDirectory, views: dict[NodeId, PeerView]) -> None:
        """It knows all of them; what it changes of that is its own."""
        members = self.members
        members.records, members._by_curve = everybody.records.copy(), everybody._by_curve.copy()
        members._addresses, members._live = everybody._addresses.copy(), everybody._live - {self.node}
        members._answered = members._live.copy()  # as membership believes after ``adopt_view``
        members.revision += 1
        self.post(events.MembersSeen(views))
        self.deployments.roster_changed()

    def word_refused(self, signer: bytes | None, code: str) -> None:
        """See Refusals."""
        self.refused[code] += 1

    def begin_to_lie(self) -> None:
        """From now on."""
        if self.lies == CORRUPT:
            self.lie_share = 1.0
        elif self.lies == SLOW:
            self.after(self.random.random(), self._read_slowly)
        elif self.lies == TRICKLE:
            self.after(self.random.random(), self._claim_again)

    def _perform(self, command: Command) -> None:
        if self.lies in (STALL, TRICKLE) and isinstance(command, events.SendHoldings):
            command = replace(command, chunks=ChunkSet.full(command.chunks.size))
            self._claims[command.peer, command.deployment] = command
        if self.lies in (STALL, TRICKLE) and isinstance(command, events.SendDelta):
            command = replace(command, added=(), dropped=(), free_slots=_SETTINGS.slots)
        super()._perform(command)

    def _claim_again(self) -> None:
        """What it refused it has after all, if one believes it."""
        for claim in list(self._claims.values()):
            if self.world.is_lying:
                super()._perform(replace(claim, free_slots=_SETTINGS.slots))
        self.after(_CLAIM_AGAIN_S, self._claim_again)

    def _read_slowly(self) -> None:
        world = self.world
        if world.is_lying and any(record.state not in FINAL for record in self.deployments.records):
            for index in self.random.sample(world.honest, min(_SLOW_HOSTS, len(world.honest))):
                bulk = cast(LiarBulk, world.daemons[index].bulk)
                for _ in range(_SETTINGS.slots_per_peer):
                    bulk.read_slowly(self.node, CHUNK_BYTES)
        self.after(1.0, self._read_slowly)
