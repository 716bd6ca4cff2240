"""The deployment brain of one simulated host, turned on the virtual clock: the real one, with real signatures.

What lives here: what ``gossipd.daemon.deployment_driver`` and ``deployment_executor`` do with threads and files, and
what an operator orders. What does not: any decision about a deployment.

Files of the state directory are written whole or not at all, and fail with the host's disk. A pull takes a moment and
brings what the peer sends, which a liar alters.
"""

from __future__ import annotations

import errno
import math
from contextlib import suppress
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from gossipd.core.errors import GossipdError
from gossipd.core.events import DeploymentPaused, ProbeSource
from gossipd.core.ids import DeploymentId
from gossipd.daemon.cluster_roster import ClusterRoster
from gossipd.daemon.deployment_executor import failure_of
from gossipd.daemon.state_dir import StateWriteError
from gossipd.deployment import commands, events
from gossipd.deployment.brain import DeploymentBrain
from gossipd.deployment.context import BrainContext, DeploymentSettings, HostIdentity
from gossipd.deployment.events import Failure
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.deployment.statement import Statement, Verb, sign_statement
from gossipd.deployment.statement_file import register_from_bytes, snapshot
from gossipd.deployment.statement_store import StatementStore
from gossipd.identity.cancel_rights import DEFAULT_ROLES
from gossipd.runtime.ports import NotHeldError
from membership.events import PayloadHeard, PayloadKind
from tests.sim.campaign.model import opened

if TYPE_CHECKING:
    from tests.sim.campaign.daemon import Daemon

WALL_S = 1_000_000.0
"""The world's wall clock when a run begins."""
_PULL_S = 0.01
_VERIFY_S = 0.001
_SAVE_S = 1.0  # StateSaver's look
_SETTINGS = DeploymentSettings(orphan_uptime_s=10.0)  # a run lasts a minute or two


class StateFiles:
    """What DIR/state holds; it outlives a life of the process, and a wipe makes a new one."""

    def __init__(self) -> None:
        self.envelopes: dict[DeploymentId, bytes] = {}
        self.statements = b""


class DeploymentRunner:
    """One per life of a host."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._world = daemon.world
        files = daemon.files
        self.statements = register_from_bytes(files.statements) if files.statements else StatementStore()
        self._kept_revision = self.statements.revision
        self._is_saving = False
        self._pulls: set[int] = set()
        self._requests = 0
        self.answers: dict[int, commands.Answer] = {}
        self._due_s = math.inf
        settings = SimpleNamespace(clients=(), may_cancel=DEFAULT_ROLES)
        self.roster = ClusterRoster(daemon.members, cast(Any, settings))
        self.progress = ClusterProgress()
        context = BrainContext(
            identity=HostIdentity(daemon.node, daemon.name, daemon.rack, daemon.secret), statements=self.statements,
            roster=self.roster, progress=self.progress, settings=_SETTINGS,
            complete_before=frozenset(one.deployment for one in daemon.store.models() if one.is_published),
        )  # fmt: skip
        self._brain = DeploymentBrain(context, Random(daemon.random.getrandbits(64)))
        self.records = self._brain.lifecycle

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not any(record.is_live for record in self.records)

    def chunk_count_of(self, deployment: DeploymentId) -> int | None:
        """Of an open deployment."""
        record = self.records.get(deployment)
        if record is None or record.manifest is None or not record.is_open:
            return None
        return record.manifest.chunk_count

    # ---- in ------------------------------------------------------------------------------------

    def begin(self) -> None:
        """At start: what was removed is deleted, and what was believed in the last run is acted on."""
        for model in self._daemon.store.models():
            if self.statements.is_removed(model.deployment) and model.name:
                self._call(self._daemon.store.remove, model.name, model.version)
        self.post(events.DaemonStarted())

    def post(self, event: events.DeploymentEvent) -> None:
        """As DeploymentDriver.post."""
        self._brain.handle(event, self._world.now, WALL_S + self._world.now)
        self._carry_out()

    def heard(self, event: PayloadHeard) -> None:
        """A statement from gossip; of progress nothing is told here."""
        if event.kind is PayloadKind.STATEMENT:
            self.post(events.StatementHeard(event.payload, event.key, event.forwarder))

    def roster_changed(self) -> None:
        """As the daemon hears it."""
        self.post(events.RosterChanged())

    def order(self, kind: Any, *fields: Any) -> int:
        """An operator's order; its answer comes into ``answers``."""
        self._requests += 1
        request = self._requests
        self.post(kind(request, *fields))
        return request

    def drop(self, deployment: DeploymentId) -> int:
        """An operator puts the manifest into the inbox."""
        envelope = self._world.models[deployment].manifest.envelope
        return self.order(events.ManifestDropped, envelope, "a.manifest")

    def announce(self, statement: Statement, envelope: bytes | None) -> None:
        """What a host that keeps no rule does: tell a statement, and have its manifest for those who ask."""
        if envelope is not None:
            self._daemon.files.envelopes[statement.deployment] = envelope
        self._tell(statement.deployment, statement.rank, statement.encode())

    def sign(self, deployment: DeploymentId, verb: Verb = Verb.DEPLOY) -> Statement:
        """A statement of this host's, of epoch 1."""
        size = len(self._world.models[deployment].manifest.envelope)
        return sign_statement(
            self._daemon.secret, deployment, epoch=1, verb=verb, manifest_bytes=size, now_s=WALL_S + self._world.now
        )

    # ---- time ----------------------------------------------------------------------------------

    def _carry_out(self) -> None:
        while queue := self._brain.drain():
            for command in queue:
                self._perform(command)
        due_s = self._brain.next_deadline()
        if due_s < self._due_s:
            self._due_s = due_s
            self._daemon.after(max(0.0, due_s - self._world.now), self._tick, due_s)
        if self.statements.revision != self._kept_revision and not self._is_saving:
            self._is_saving = True
            self._daemon.after(_SAVE_S, self._save)

    def _tick(self, due_s: float) -> None:
        if due_s != self._due_s:
            return
        self._due_s = math.inf
        self._brain.tick(self._world.now, WALL_S + self._world.now)
        self._carry_out()

    def _save(self) -> None:
        """As StateSaver does."""
        self._is_saving = False
        try:
            self._write_statements(*snapshot(self.statements))
        except StateWriteError:
            self._is_saving = True
            self._daemon.after(_SAVE_S, self._save)

    # ---- out -----------------------------------------------------------------------------------

    def _perform(self, command: commands.DeploymentCommand) -> None:
        daemon = self._daemon
        match command:
            case commands.TellStatement(statement):
                self._tell(statement.deployment, statement.rank, statement.encode())
            case commands.OpenSwarm():
                self._world.oracle.swarm_opened(daemon, command)
                daemon.open_swarm(command)
            case commands.CloseSwarm(deployment):
                daemon.close_swarm(deployment)
            case commands.PauseSwarm(deployment, is_paused):
                daemon.post(DeploymentPaused(deployment, is_paused))
            case commands.JudgeStatements():
                daemon.after(0.0, self._judge_again)
            case commands.Answer(request):
                self.answers[request] = command
            case commands.RecordAudit(kind, fields):
                self._world.faults.audited(daemon.index, kind, fields)
            case commands.RecordLog():
                pass
            case ProbeSource(deployment):
                daemon.probe(deployment)
            case commands.AbandonWork(work):
                if work in self._pulls:
                    self._pulls.discard(work)
                    daemon.after(0.0, self.post, events.WorkAbandoned(work))
            case _:
                self._begin_work(command)

    def _tell(self, deployment: DeploymentId, rank: int, wire: bytes) -> None:
        wires = self._world.wires
        wires.swim(self._daemon.index).publish(PayloadKind.STATEMENT, bytes(deployment), rank, wire, wires.now)
        self._daemon.after(0.0, wires.flush, self._daemon.index)

    def _judge_again(self) -> None:
        wires = self._world.wires
        wires.swim(self._daemon.index).judge_again(wires.now)
        self._daemon.after(0.0, wires.flush, self._daemon.index)

    def _begin_work(self, work: Any) -> None:
        daemon = self._daemon
        if isinstance(work, commands.PullManifest):
            self._pulls.add(work.work)
            daemon.after(_PULL_S, self._pull, work)
        elif isinstance(work, commands.OpenManifest):
            daemon.after(_VERIFY_S, self._end, work)
        elif isinstance(work, commands.ReadManifest):
            daemon.after(0.0, self._end, work)
        else:
            daemon.after(daemon.disk_wait_s(), self._end, work)

    def _kept_envelope(self, deployment: DeploymentId) -> bytes | None:
        kept = self._daemon.files.envelopes.get(deployment)
        if kept is None:
            with suppress(NotHeldError):
                return self._daemon.store.manifest_bytes(deployment)
        return kept

    def _pull(self, work: commands.PullManifest) -> None:
        if work.work not in self._pulls:
            return
        self._pulls.discard(work.work)
        peer = self._world.daemons[self._world.index_of[work.peer]]
        envelope = None
        if peer.is_up and not peer.is_stopped and self._world.wires.is_whole(self._daemon.index, peer.index):
            envelope = peer.files.envelopes.get(work.deployment)
        self.post(events.EnvelopeFound(work.work, envelope and peer.said(envelope)))

    def _end(self, work: Any) -> None:
        try:
            ended = self._ended(work)
        except GossipdError as error:
            ended = events.WorkFailed(work.work, failure_of(error), error)
        self.post(ended)
        self._world.oracle.committed(self._daemon)

    def _ended(self, work: Any) -> events.WorkEnded:
        """As DeploymentExecutor.carry_out."""
        store, oracle = self._daemon.store, self._world.oracle
        match work:
            case commands.ReadManifest(number, deployment):
                return events.EnvelopeFound(number, self._kept_envelope(deployment))
            case commands.OpenManifest(number, envelope, announced):
                return opened(number, envelope, announced)
            case commands.KeepManifest(_, manifest):
                oracle.manifest_accepted(self._daemon, manifest)
                self._write()
                self._daemon.files.envelopes[manifest.id] = manifest.envelope
            case commands.KeepStatements(_, kept, revision):
                self._write_statements(kept, revision)
            case commands.ReserveSpace(number, manifest):
                held = store.open(manifest)
                oracle.opened(self._daemon, manifest.id, held)
                is_published = store.is_published(manifest.id)
                if held.is_full and is_published:
                    oracle.published(self._daemon, manifest.id)
                return events.SpaceReserved(number, held, is_published)
            case commands.PublishModel(_, deployment):
                store.finish(deployment)
                oracle.published(self._daemon, deployment)
            case commands.PointCurrent(_, name, avoided):
                store.avoid_versions(name, avoided)
            case commands.DeleteModel(_, deployment, even_published):
                store.abandon(deployment, even_published=even_published)
                oracle.deleted(self._daemon, deployment)
            case commands.RemoveModel(_, name, version):
                oracle.deleted(self._daemon, store.remove(name, version))
        return events.WorkDone(work.work)

    def _call(self, call: Any, *arguments: Any) -> None:
        try:
            self._world.oracle.deleted(self._daemon, call(*arguments))
        except GossipdError as error:
            assert failure_of(error) in (Failure.DISK, Failure.GONE)

    def _write(self) -> None:
        try:
            self._daemon.disk.before("write", 0)
        except OSError as error:
            assert error.errno in (errno.EIO, errno.ENOSPC)
            raise StateWriteError(f"state cannot be written: {error.strerror}") from error

    def _write_statements(self, kept: bytes, revision: int) -> None:
        if revision > self._kept_revision:
            self._write()
            self._daemon.files.statements = kept
            self._kept_revision = revision
