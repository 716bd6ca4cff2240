"""What the daemon does with what membership tells it: the part behind the datagram and control surfaces.

Real: the table of members, the deployment brain, the statement store, the table of progress, the planner and the seed
claim. Made up: every disk, which keeps all and has every model complete at once, and peers, which give no manifest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from msgspec.structs import replace

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import ClaimSeed, Command, DeploymentOpened, Event
from gossipd.core.ids import DeploymentId
from gossipd.core.model import Shape
from gossipd.daemon.cluster_roster import ClusterRoster
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.deployment import commands
from gossipd.deployment.brain import DeploymentBrain
from gossipd.deployment.context import BrainContext, HostIdentity
from gossipd.deployment.events import (
    DeploymentEvent,
    EnvelopeFound,
    ManifestOpened,
    ManifestRefused,
    RosterChanged,
    SpaceReserved,
    StatementHeard,
    WorkAbandoned,
    WorkDone,
    WorkEnded,
)
from gossipd.deployment.progress_record import HostState, Progress, ProgressFormatError, progress_key
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.deployment.signed_progress import Belief, ProgressJudge, ProgressKey, read_progress, sign_progress
from gossipd.deployment.statement import _DOMAIN, Verb, sign_statement
from gossipd.deployment.statement_store import StatementStore
from gossipd.identity.cancel_rights import DEFAULT_ROLES
from gossipd.identity.keys import SecretKey
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import open_manifest
from gossipd.swarm.capabilities import NodeCapabilities
from gossipd.swarm.planner import Planner
from gossipd.swarm.settings import PlannerSettings
from membership import events as membership_events
from membership.member import NodeId, Record, node_id
from membership.swim import Swim
from tests.fuzz.mutations import mutate_bytes, mutate_integer, pick
from tests.fuzz.surfaces.manifest import TRUSTED
from tests.gossipd.daemon.listeners import QuietListener

MODEL = DeploymentId(b"m" * 32)
CHUNKS = 600
_SECRET = SecretKey(b"the fuzzed daemon's own secret..")
_CLIENT = SecretKey(b"a client that may give orders...")
_WALL_S = 1_800_000_000.0
_PLAN_EVERY_S = 0.05


class Application(QuietListener):
    """One daemon without its adapters. ``publics``: keys of the cluster's members, ours first."""

    def __init__(self, publics: list[bytes]) -> None:
        super().__init__(lambda event: None)
        self.own = node_id(publics[0])
        self.cluster = MemberDirectory(self.own)
        self.statements = StatementStore()
        self.progress = ClusterProgress(rows_max=1024)
        self.planner = Planner(node=self.own, rack="rack-0", settings=PlannerSettings(), rng=Random(5), name="host-0")
        self.planner.handle(
            DeploymentOpened(MODEL, Shape(CHUNKS, 65_536, CHUNKS * 65_536, 4), ChunkSet.of(CHUNKS, range(0, 600, 7))),
            0.0,
        )
        self.commands: list[Command] = []
        self.audited = 0
        self.audited_kinds: Counter[str] = Counter()
        self._planned_s = 0.0
        self._now = 0.0
        settings = SimpleNamespace(clients=(_CLIENT.public,), may_cancel=DEFAULT_ROLES)
        context = BrainContext(
            identity=HostIdentity(self.own, "host-0", "rack-0", _SECRET),
            statements=self.statements,
            roster=ClusterRoster(self.cluster, cast(Any, settings)),
            progress=self.progress,
        )
        self.judge = ProgressJudge(cast(Any, context.roster), self.progress)
        self.brain = DeploymentBrain(context, Random(6))
        own = Record(publics[0], 1, 1, "host-0", "rack-0", "zone", "10.0.0.1", 7946, 7947, publics[0], 0, "1.0.0", b"")
        self.cluster.begin(own, [])

    # ---- in ------------------------------------------------------------------------------------------

    def hear(self, event: Any, now: float) -> None:
        """As the daemon hears membership's events."""
        self._now = now
        self.cluster.hear(event, self)

    def post(self, event: Event) -> None:
        """As hands post events to the planner."""
        self.planner.handle(event, self._now)

    def deploy(self, event: DeploymentEvent) -> list[commands.Answer]:
        """As the daemon turns the deployment brain; answers of orders."""
        self.brain.handle(event, self._now, _WALL_S)
        answers: list[commands.Answer] = []
        while queue := self.brain.drain():
            for command in queue:
                if isinstance(command, commands.Answer):
                    answers.append(command)
                elif isinstance(command, commands.RecordAudit):
                    self.audit(command.kind)
                    self.audited_kinds[command.kind] += 1
                elif (ended := _ended(command)) is not None:
                    self.brain.handle(ended, self._now, _WALL_S)
        return answers

    def plan(self, swim: Swim | None, now: float) -> None:
        """Now and then, as the daemon does after a batch; claims go onto the record."""
        self._now = now
        if now - self._planned_s < _PLAN_EVERY_S:
            return
        self._planned_s = now
        self.planner.plan(now)
        self.commands = self.planner.drain()
        for command in self.commands:
            if isinstance(command, ClaimSeed) and swim is not None:
                swim.update_payload(NodeCapabilities(True, command.term).to_bytes(), now)

    def audit(self, *words: object, **fields: object) -> None:
        """The audit log, which only counts."""
        self.audited += 1

    def roster_changed(self) -> None:
        self.deploy(RosterChanged())

    def payload_heard(self, event: membership_events.PayloadHeard) -> None:
        if event.kind is membership_events.PayloadKind.STATEMENT:
            self.deploy(StatementHeard(event.payload, event.key, event.forwarder))
            return
        try:
            key = ProgressKey.decode(event.key)
            if self.judge.judge(event.key, event.version, event.payload, _WALL_S) is Belief.NO:
                return
            self.progress.record(
                key.node, key.deployment, event.version, read_progress(key, event.payload), now=self._now,
                is_signed=key.is_signed,
            )  # fmt: skip
        except ProgressFormatError:
            return
        if event.version % 64 == 0:
            self.progress.totals(
                progress_key(MODEL), list(self.cluster.records), chunk_count=CHUNKS, bytes_total=1 << 30, now=self._now
            )
            saved = self.progress.to_bytes()
            assert len(ClusterProgress.from_bytes(saved, now=self._now, wall_s=_WALL_S).to_bytes()) == len(saved)

    # ---- what members say ----------------------------------------------------------------------------

    def samples(
        self, node: NodeId, public: bytes, number: int, *, sign: Callable[[bytes], bytes]
    ) -> list[tuple[membership_events.PayloadKind, bytes, int, bytes]]:
        """Genuine events of one member: a statement and two records of progress."""
        deployment = MODEL if number == 1 else DeploymentId(bytes([number]) * 32)
        statement = sign_statement(
            _CLIENT, deployment, epoch=1 + number, verb=Verb.DEPLOY, manifest_bytes=999, now_s=_WALL_S
        )
        events = [(membership_events.PayloadKind.STATEMENT, bytes(deployment), statement.rank, statement.encode())]
        for state in (HostState.DOWNLOADING, HostState.COMPLETE):
            progress = Progress(
                state=state, chunks_verified=5, source_bytes=1 << 33, started_s=int(_WALL_S), elapsed_s=7
            )
            version = int(_WALL_S * 1000) + len(events)
            key = ProgressKey(node, progress_key(deployment), is_signed=state is HostState.COMPLETE)
            secret = cast(SecretKey, SimpleNamespace(sign=sign))
            signed = sign_progress(secret, key, version, replace(progress, subject=b"subject!"))
            payload = signed if key.is_signed else progress.to_bytes()
            events.append((membership_events.PayloadKind.PROGRESS, key.encode(), version, payload))
        return events

    def change(self, number: int, payload: bytes, rng: Random) -> bytes:
        """A changed payload of a gossiped event; a statement is signed again."""
        if number != 1 or len(payload) < 86 + 64:
            return mutate_bytes(payload, rng)[:900]
        tail = payload[86 + 64 :]
        return resigned_statement(payload[: 86 + 64], rng) + tail


def _ended(command: commands.DeploymentCommand) -> WorkEnded | None:
    """How work ends on this host; None when it never does."""
    match command:
        case commands.OpenManifest(work, envelope):
            try:
                return ManifestOpened(work, open_manifest(envelope, TRUSTED))
            except ManifestError as error:
                return ManifestRefused(work, error, is_as_announced=False)
        case commands.ReserveSpace(work, manifest):
            return SpaceReserved(work, ChunkSet.full(manifest.chunk_count), is_published=True)
        case commands.ReadManifest(work):
            return EnvelopeFound(work, None)
        case commands.AbandonWork(work):
            return WorkAbandoned(work)  # of a pull: all other work has ended at once
        case commands.KeepManifest(work) | commands.KeepStatements(work) | commands.DeleteModel(work):
            return WorkDone(work)
    return None


def resigned_statement(wire: bytes, rng: Random, secret: SecretKey = _CLIENT) -> bytes:
    """A statement with some field changed, signed by its client."""
    body = bytearray(wire[:86])
    at, width = pick(rng, ((0, 1), (1, 1), (2, 8), (34, 8), (42, 4), (46, 8), (54, 8)))
    value = mutate_integer(int.from_bytes(body[at : at + width], "little"), rng) & (1 << 8 * width) - 1
    body[at : at + width] = value.to_bytes(width, "little")
    if rng.random() < 0.9:
        body[54:86] = secret.public.ed25519
    return bytes(body) + secret.sign(_DOMAIN + bytes(body))
