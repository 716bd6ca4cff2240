"""A deployment brain on a host that is played by a script: disks, peers and the store are dictionaries.

What lives here: ``ScriptedHost``. What does not: rules of any kind; each piece of work is answered at once unless the
test holds it back or has it fail.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from random import Random
from typing import Any, TypeVar

from gossipd.core.chunkset import ChunkSet
from gossipd.core.errors import GossipdError
from gossipd.core.ids import DeploymentId
from gossipd.deployment import commands, events
from gossipd.deployment.brain import DeploymentBrain
from gossipd.deployment.cluster_clock import ClusterClock
from gossipd.deployment.commands import DeploymentCommand
from gossipd.deployment.context import BrainContext, DeploymentSettings, HostIdentity
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.events import Failure
from gossipd.deployment.ordered_budgets import OrderedBudgets
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.deployment.statement import Statement, Verb, sign_statement
from gossipd.deployment.statement_store import StatementStore
from gossipd.identity.cancel_rights import ROLES, Authors, may_cancel
from gossipd.identity.keys import SecretKey
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest, deployment_id, open_manifest
from gossipd.parts.part import bytes_of, choose_part
from gossipd.store.errors import VersionHeldError
from membership.member import NodeId, node_id
from tests.gossipd.manifest.making import TRUSTED, manifest

KEY = SecretKey(b"k" * 32)
OWN = node_id(KEY.public.ed25519)
PEER_KEY = SecretKey(b"p" * 32)
PEER = node_id(PEER_KEY.public.ed25519)
ONE = manifest(version=1)
WALL_S = 1_800_000_000.0
C = TypeVar("C")


class ScriptedRoster:
    """Two hosts that live."""

    def __init__(self) -> None:
        self.signers: set[bytes] = {KEY.public.ed25519, PEER_KEY.public.ed25519}
        self.absent: set[bytes] = set()  # on the roster, and dead or gone
        self.peers: dict[NodeId, str] = {PEER: "rack-2"}
        self.dead: set[NodeId] = set()
        self.silent: set[NodeId] = set()  # they never spoke to this host
        self.clients: set[bytes] = set()
        self.roles: tuple[str, ...] = ROLES

    @property
    def host_count(self) -> int:
        return 1 + len(self.peers)

    def vouchers(self) -> set[bytes]:
        return self.signers - self.absent

    def may_cancel(self, signer: bytes, authors: Authors) -> bool:
        return may_cancel(signer, authors, roles=self.roles, is_client=self.is_client(signer))

    def is_client(self, signer: bytes) -> bool:
        return signer in self.clients

    def key_of(self, node: NodeId) -> bytes | None:
        return PEER_KEY.public.ed25519 if node == PEER and node in self.peers else None

    def live(self) -> set[NodeId]:
        return set(self.peers) - self.dead

    def answered(self) -> set[NodeId]:
        return self.live() - self.silent

    def rack_of(self, node: NodeId) -> str | None:
        return self.peers.get(node)

    def targets(self, manifest: Manifest) -> list[NodeId]:
        return [OWN, *self.peers]


def said(
    deployment: DeploymentId = ONE.id, epoch: int = 1, verb: Verb = Verb.DEPLOY, *, secret: SecretKey = PEER_KEY,
    issued_s: float = WALL_S,
) -> Statement:  # fmt: skip
    """A statement of the peer's."""
    return sign_statement(secret, deployment, epoch=epoch, verb=verb, manifest_bytes=900, now_s=issued_s)


class ScriptedHost:
    """``held_back``: classes of work that is not answered before ``release``. ``failing``: that fails, once each."""

    def __init__(
        self, *, name: str = "node-1", statements: StatementStore | None = None, published: Iterable[Manifest] = (),
        settings: DeploymentSettings | None = None, progress: ClusterProgress | None = None,
    ) -> None:  # fmt: skip
        self.now, self.wall_s = 0.0, WALL_S
        self.roster = ScriptedRoster()
        self.statements = statements or StatementStore()
        self.files: dict[DeploymentId, bytes] = {}
        self.peers_have: dict[DeploymentId, bytes] = {ONE.id: ONE.envelope}
        self.store: dict[DeploymentId, set[int]] = {one.id: set(range(one.chunk_count)) for one in published}
        self.published = {one.id for one in published}
        self.held_by_jobs: set[DeploymentId] = set()
        self.trusted: Collection[bytes] = TRUSTED
        self.held_back: set[type] = set()
        self.failing: list[tuple[type, Failure, GossipdError]] = []
        self.done: list[DeploymentCommand] = []
        self.done_s: list[float] = []
        self.waiting: list[commands.Work] = []
        self._requests = 0
        self.progress = progress or ClusterProgress()
        self.budgets = OrderedBudgets()
        self.clock = ClusterClock()
        self.context = context = BrainContext(
            identity=HostIdentity(OWN, name, "rack-1", KEY), statements=self.statements, roster=self.roster,
            progress=self.progress, budgets=self.budgets, clock=self.clock, settings=settings or DeploymentSettings(),
            complete_before=frozenset(self.published),
        )  # fmt: skip
        self.brain = DeploymentBrain(context, Random(1))

    # ---- in ----------------------------------------------------------------------------------------

    def tell(self, event: events.DeploymentEvent) -> None:
        """One event, and all that follows at once."""
        self.brain.handle(event, self.now, self.wall_s)
        self._carry_out()

    def hear(self, statement: Statement, forwarder: NodeId = PEER) -> None:
        """Gossip brings a statement."""
        self.tell(events.StatementHeard(statement.encode(), statement.deployment, forwarder))

    def wait(self, seconds: float) -> None:
        """Time goes by."""
        until = self.now + seconds
        while (due := self.brain.next_deadline()) <= until:
            self.now = max(self.now, due)
            self.brain.tick(self.now, self.wall_s + self.now)
            self._carry_out()
        self.now = until

    def request(self, kind: Any, *fields: Any) -> commands.Answer:
        """Give an order that is answered at once."""
        number = self.ask(kind, *fields)
        return self.answer(number)

    def ask(self, kind: Any, *fields: Any) -> int:
        """Give an order."""
        self._requests += 1
        self.tell(kind(self._requests, *fields))
        return self._requests

    def answer(self, number: int) -> commands.Answer:
        """The one answer to a request."""
        [found] = [one for one in self.all_of(commands.Answer) if one.request == number]
        return found

    def drop(self, one: Manifest = ONE) -> commands.Answer:
        """An operator puts a manifest into the inbox."""
        return self.request(events.ManifestDropped, one.envelope, "one.manifest")

    # ---- out ---------------------------------------------------------------------------------------

    def all_of(self, kind: type[C]) -> list[C]:
        """Commands of this kind so far."""
        return [one for one in self.done if isinstance(one, kind)]

    def audited(self) -> list[str]:
        """What was recorded so far, without the statements that were believed."""
        return [one.kind for one in self.all_of(commands.RecordAudit) if one.kind != "statement"]

    def record(self, deployment: DeploymentId = ONE.id) -> DeploymentRecord:
        """What the host knows of a deployment."""
        found = self.brain.lifecycle.get(deployment)
        assert found is not None
        return found

    def release(self, kind: type) -> None:
        """Answer what was held back."""
        self.held_back.discard(kind)
        released = [work for work in self.waiting if type(work) is kind]
        self.waiting = [work for work in self.waiting if type(work) is not kind]
        for work in released:
            self.tell(self._end(work))

    def fail(self, kind: type, failure: Failure, error: GossipdError, times: int = 1) -> None:
        """Have the next works of this kind fail."""
        self.failing += [(kind, failure, error)] * times

    # ---- the script --------------------------------------------------------------------------------

    def _carry_out(self) -> None:
        while queue := self.brain.drain():
            for command in queue:
                self.done.append(command)
                self.done_s.append(self.now)
                if isinstance(command, commands.AbandonWork):
                    self._abandon(command.work)
                elif not isinstance(command, commands.Work):
                    continue
                elif type(command) in self.held_back:
                    self.waiting.append(command)
                else:
                    self.brain.handle(self._end(command), self.now, self.wall_s)

    def _abandon(self, work: int) -> None:
        """Only a pull can be cut short: threads and the store end what they have begun."""
        for one in self.waiting:
            if isinstance(one, commands.PullManifest) and one.work == work:
                self.waiting.remove(one)
                self.brain.handle(events.WorkAbandoned(work), self.now, self.wall_s)
                return

    def _end(self, command: Any) -> events.WorkEnded:
        work: int = command.work
        for planned in self.failing:
            if type(command) is planned[0]:
                self.failing.remove(planned)
                return events.WorkFailed(work, planned[1], planned[2])
        match command:
            case commands.ReadManifest(work, deployment):
                return events.EnvelopeFound(work, self.files.get(deployment))
            case commands.PullManifest(work, deployment):
                return events.EnvelopeFound(work, self.peers_have.get(deployment))
            case commands.OpenManifest():
                return self._open(command)
            case commands.KeepManifest(work, one):
                self.files[one.id] = one.envelope
                return events.WorkDone(work)
            case commands.ReserveSpace(work, one):
                held = ChunkSet.of(one.chunk_count, self.store.setdefault(one.id, set()))
                wanted = None if command.want.is_everything else choose_part(one, command.want).wanted
                count = 0 if wanted is None else bytes_of(one, wanted)
                return events.SpaceReserved(work, held, one.id in self.published, wanted=wanted, bytes_wanted=count)
            case commands.PublishModel(work, deployment):
                self.published.add(deployment)
                return events.WorkDone(work)
            case commands.DeleteModel(work, deployment, even_published):
                if deployment not in self.published or even_published:
                    self.store.pop(deployment, None)
                    self.published.discard(deployment)
                return events.WorkDone(work)
            case commands.EvictModel(work, deployment):
                if deployment in self.held_by_jobs:
                    return events.WorkFailed(work, Failure.FINAL, VersionHeldError("a job holds it"))
                self.store.pop(deployment, None)
                self.published.discard(deployment)
            case commands.ForgetManifests(work, deployments):
                for deployment in deployments:
                    self.files.pop(deployment, None)
            case commands.RemoveModel(work):
                self.store.pop(ONE.id, None)
                self.published.discard(ONE.id)
                return events.WorkDone(work)
        return events.WorkDone(command.work)

    def _open(self, command: commands.OpenManifest) -> events.WorkEnded:
        try:
            return events.ManifestOpened(
                command.work, open_manifest(command.envelope, {*self.trusted, command.accepted_signer})
            )
        except ManifestError as error:
            try:
                is_announced = deployment_id(command.envelope) == command.announced
            except ManifestError:
                is_announced = False
            return events.ManifestRefused(command.work, error, is_announced)
