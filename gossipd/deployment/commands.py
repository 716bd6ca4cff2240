"""What the deployment brain wants done: frozen values, imperative.

What lives here: values only. What does not: doing it (``daemon.deployment_executor``).

Each command with a ``work`` number ends in exactly one event with the same number (``events``): the one named in its
docstring, ``WorkFailed`` where it says so, or ``WorkAbandoned`` after ``AbandonWork``. The others end in nothing.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from gossipd.core.chunkset import ChunkSet
from gossipd.core.errors import GossipdError
from gossipd.core.events import ProbeSource
from gossipd.core.hiding_struct import HidingStruct
from gossipd.core.ids import DeploymentId
from gossipd.deployment.statement import Statement
from gossipd.manifest.manifest import Manifest
from gossipd.parts.want import EVERYTHING, Want
from membership.member import NodeId

WorkNumber: TypeAlias = int
RequestNumber: TypeAlias = int
Scalar: TypeAlias = str | int | float | bool | None


class ReadManifest(Struct, frozen=True):
    """Look for the envelope among our own files; ends in EnvelopeFound. ``accepted_signer``: as of OpenManifest."""

    work: WorkNumber
    deployment: DeploymentId
    accepted_signer: bytes = b""


class PullManifest(Struct, frozen=True):
    """Ask this peer for the envelope; ends in EnvelopeFound. It may be abandoned at any time.

    ``answer_s``: until the peer has begun to answer, in seconds; a body that has begun has longer.
    """

    work: WorkNumber
    deployment: DeploymentId
    peer: NodeId
    manifest_bytes: int
    answer_s: float


class OpenManifest(HidingStruct, frozen=True):
    """Verify an envelope that should have the id ``announced``; ends in ManifestOpened or ManifestRefused.

    ``accepted_signer``: the key of its publisher, when this host has accepted it before; that is a fact, whether the
    key is still trusted or not.
    """

    work: WorkNumber
    envelope: bytes
    announced: DeploymentId | None
    accepted_signer: bytes = b""

    hidden = ("envelope",)


class KeepManifest(Struct, frozen=True):
    """Make the envelope durable; ends in WorkDone or WorkFailed."""

    work: WorkNumber
    manifest: Manifest


class KeepStatements(HidingStruct, frozen=True):
    """Make the statement store durable, this revision or a later one; ends in WorkDone or WorkFailed."""

    work: WorkNumber
    kept: bytes
    revision: int

    hidden = ("kept",)


class ReserveSpace(Struct, frozen=True):
    """Open the model, or the part of it that is wanted, in the store; ends in SpaceReserved or WorkFailed. May take
    minutes."""

    work: WorkNumber
    manifest: Manifest
    want: Want = EVERYTHING
    frees: bool = False
    """What is here and wanted no longer goes."""


class PublishModel(Struct, frozen=True):
    """Sync, rename, point ``current``; ends in WorkDone or WorkFailed. Never abandoned."""

    work: WorkNumber
    deployment: DeploymentId


class DeleteModel(Struct, frozen=True):
    """Delete what is not published, or all of it; ends in WorkDone or WorkFailed."""

    work: WorkNumber
    deployment: DeploymentId
    even_published: bool = False


class RemoveModel(Struct, frozen=True):
    """Delete a version, published or not; ends in WorkDone or WorkFailed."""

    work: WorkNumber
    name: str
    version: int


class EvictModel(Struct, frozen=True):
    """Delete a published version that its publisher no longer keeps; ends in WorkDone, or in WorkFailed while a job
    holds it or ``current`` points to it."""

    work: WorkNumber
    deployment: DeploymentId
    name: str
    version: int


class ForgetManifests(Struct, frozen=True):
    """Delete our copies of envelopes that nobody will ask for again; ends in WorkDone or WorkFailed."""

    work: WorkNumber
    deployments: tuple[DeploymentId, ...]


class PointCurrent(Struct, frozen=True):
    """Have ``current`` of a name lead to none of the versions ``avoided`` where another is complete, and to any other.
    Ends in WorkDone or WorkFailed."""

    work: WorkNumber
    name: str
    avoided: frozenset[int]


class AbandonWork(Struct, frozen=True):
    """The brain waits for that work no more: end it if it has not begun or can be cut short, else let it end."""

    work: WorkNumber


class OpenSwarm(Struct, frozen=True):
    """The model is open in the store: the planner and the sessions hear of it."""

    manifest: Manifest
    held: ChunkSet
    copies: ChunkSet | None = None
    wanted: ChunkSet | None = None
    """None: everything."""


class CloseSwarm(Struct, frozen=True):
    """The planner, the sessions and the source reader forget the deployment."""

    deployment: DeploymentId


class PauseSwarm(Struct, frozen=True):
    """The planner begins no fetch and no read of an open deployment, and serves; or it begins them again."""

    deployment: DeploymentId
    is_paused: bool


class TellStatement(Struct, frozen=True):
    """Gossip the statement to all hosts, late joiners too."""

    statement: Statement


class ForgetStatement(Struct, frozen=True):
    """Gossip keeps it no longer, and tells it to nobody."""

    deployment: DeploymentId


class JudgeStatements(Struct, frozen=True):
    """Gossip judges again what it keeps back: more is known of who may say it."""


class RecordAudit(Struct, frozen=True):
    """Into the audit log. A ``subject`` among the fields bounds how often the same one is recorded. ``label``: the
    deployment as ``status`` calls it, for events; files keep the number."""

    kind: str
    fields: dict[str, Scalar]
    label: str = ""


class RecordLog(Struct, frozen=True):
    """Into the log. ``level``: info or warning."""

    level: str
    sentence: str
    fields: dict[str, Scalar]


class Answer(Struct, frozen=True):
    """The one answer to a request: what was done, in words, or the error to raise."""

    request: RequestNumber
    sentence: str = ""
    is_changed: bool = True
    error: GossipdError | None = None


Work: TypeAlias = (
    ReadManifest | PullManifest | OpenManifest | KeepManifest | KeepStatements | ReserveSpace | PublishModel
    | DeleteModel | RemoveModel | EvictModel | ForgetManifests | PointCurrent
)  # fmt: skip
DeploymentCommand: TypeAlias = (
    Work
    | AbandonWork
    | OpenSwarm
    | CloseSwarm
    | PauseSwarm
    | TellStatement
    | ForgetStatement
    | JudgeStatements
    | RecordAudit
    | RecordLog
    | Answer
    | ProbeSource
)
