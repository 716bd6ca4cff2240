"""What the deployment brain hears: frozen values, past tense.

What lives here: values only. What does not: what they lead to. Of ``core.events`` it also hears ``ChunkStored`` and
``ChunkLost``, before the planner does, and the planner's ``FinishModel`` and ``ReportStall``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from gossipd.core.chunkset import ChunkSet
from gossipd.core.errors import GossipdError
from gossipd.core.events import ChunkLost, ChunkStored, FinishModel, ReportStall
from gossipd.core.hiding_struct import HidingStruct
from gossipd.core.ids import ChunkIndex, DeploymentId
from gossipd.deployment.commands import RequestNumber, WorkNumber
from gossipd.deployment.statement import Statement
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest
from gossipd.parts.want import Want
from membership.member import NodeId

# ---- how work has ended --------------------------------------------------------------------------


class Failure(Enum):
    """What a piece of work failed for, as far as it decides what follows."""

    NO_SPACE = "no_space"  # the model does not fit; it will when space is freed
    DISK = "disk"  # the disk refused; it may take the same later
    NOT_WHOLE = "not_whole"  # chunks are missing, and are fetched again
    GONE = "gone"  # the model was removed meanwhile, or the store is being closed
    FINAL = "final"  # nothing but an operator can cure it


class EnvelopeFound(HidingStruct, frozen=True):
    """A manifest's envelope, from our own files or a peer; None when there was none."""

    work: WorkNumber
    envelope: bytes | None

    hidden = ("envelope",)


class ManifestOpened(Struct, frozen=True):
    """The envelope is signed by a trusted key and breaks no rule."""

    work: WorkNumber
    manifest: Manifest


class ManifestRefused(Struct, frozen=True):
    """It is not. ``is_as_announced``: the content is the announced one, so that its sender is perhaps not at fault."""

    work: WorkNumber
    error: ManifestError
    is_as_announced: bool


class SpaceReserved(Struct, frozen=True):
    """The store has opened the model. ``is_published``: it is in its place already."""

    work: WorkNumber
    held: ChunkSet
    is_published: bool
    copies: ChunkSet | None = None
    """Chunks that the store copies itself when an equal one has come."""
    wanted: ChunkSet | None = None
    """What this host wants of it; None: everything."""
    bytes_wanted: int = 0
    """How many bytes that is, where it is not everything."""


class WorkDone(Struct, frozen=True):
    """Work that yields nothing has succeeded."""

    work: WorkNumber


class WorkFailed(Struct, frozen=True):
    """Work that did not succeed."""

    work: WorkNumber
    failure: Failure
    error: GossipdError


class WorkAbandoned(Struct, frozen=True):
    """Work that was ended by AbandonWork before it had an effect."""

    work: WorkNumber


# ---- what is said, ordered and noticed -----------------------------------------------------------


class DaemonStarted(Struct, frozen=True):
    """Act on what was believed in the last run, and tell it again."""


class StatementHeard(HidingStruct, frozen=True):
    """Gossip brought it under ``key``, which must be the deployment's. ``forwarder`` has the manifest, or will soon."""

    wire: bytes
    key: bytes
    forwarder: NodeId

    hidden = ("wire",)


class RosterChanged(Struct, frozen=True):
    """A host joined or is forgotten, or the configured clients changed: the unproven may be proven now."""


class TrustReloaded(Struct, frozen=True):
    """The operator has had the configuration read again: what was refused may be accepted now."""


class WantsChanged(Struct, frozen=True):
    """The operator says what this host wants, by model name; of other names everything."""

    wants: Mapping[str, Want]
    frees: str = ""
    """The name of a model of which goes what is here and wanted no longer."""


class ClockJudged(Struct, frozen=True):
    """This host's clock was found to be wrong, or to be right again: what waits for that is judged again."""


class ProgressHeard(Struct, frozen=True):
    """A host has told of its progress, under the first bytes of the deployment's id."""

    node: NodeId
    key: bytes
    has_manifest: bool = True
    tells_budget: bool = False
    tells_deployer: bool = False


class ManifestDropped(HidingStruct, frozen=True):
    """A file was put into the inbox: judge it, deploy it."""

    request: RequestNumber
    envelope: bytes
    file_name: str

    hidden = ("envelope",)


class OrderTriggered(HidingStruct, frozen=True):
    """A member or client sent its own signed statement, and perhaps the manifest: carry it out."""

    request: RequestNumber
    statement: Statement
    envelope: bytes | None

    hidden = ("envelope",)


class CancelOrdered(Struct, frozen=True):
    """The operator of this host cancels a deployment in the whole cluster; what all have, only if ``is_forced``."""

    request: RequestNumber
    name: str
    version: int
    is_forced: bool = False


class PauseOrdered(Struct, frozen=True):
    """The operator of this host pauses a deployment in the whole cluster, or resumes it (``is_undone``)."""

    request: RequestNumber
    name: str
    version: int
    is_undone: bool = False


class RemoveOrdered(Struct, frozen=True):
    """The operator removes a version from this host, for good; or from all hosts, until it is deployed again."""

    request: RequestNumber
    name: str
    version: int
    is_dry_run: bool = False
    is_everywhere: bool = False


class RollbackOrdered(Struct, frozen=True):
    """The operator of this host takes a version back in the whole cluster; None: the newest that is deployed."""

    request: RequestNumber
    name: str
    version: int | None = None


class UntrustOrdered(Struct, frozen=True):
    """The operator stops using the models of a key (its id), or one model, on this host; or ``is_undone``."""

    request: RequestNumber
    key: bytes
    name: str = ""
    version: int = 0
    is_undone: bool = False


class OverrideOrdered(Struct, frozen=True):
    """The operator lets the next manifest of a name have any version."""

    request: RequestNumber
    name: str


class EvictionBegun(Struct, frozen=True):
    """The store is about to delete a version to make room: remember that, durably, before it does."""

    request: RequestNumber
    deployment: DeploymentId


class VersionEvicted(Struct, frozen=True):
    """The store has deleted it to make room; ``cause`` says what for, in a word."""

    deployment: DeploymentId
    name: str
    version: int
    cause: str


class CopyWanted(Struct, frozen=True):
    """This host has evicted it, has room, and its rack has lost copies of it."""

    deployment: DeploymentId


class SourceTroubled(Struct, frozen=True):
    """This host could not read the deployment's source. ``chunks``: those that the read did not get."""

    deployment: DeploymentId
    error: GossipdError
    chunks: tuple[ChunkIndex, ...] = ()


class DiskConditionChanged(Struct, frozen=True):
    """The store's disk began to refuse writes with this code, or takes them again (empty)."""

    code: str


class DiskWritesWait(Struct, frozen=True):
    """Writes wait for the store's disk for seconds, or end again."""

    is_so: bool


WorkEnded: TypeAlias = (
    EnvelopeFound | ManifestOpened | ManifestRefused | SpaceReserved | WorkDone | WorkFailed | WorkAbandoned
)
Order: TypeAlias = (
    ManifestDropped
    | OrderTriggered
    | CancelOrdered
    | PauseOrdered
    | RemoveOrdered
    | RollbackOrdered
    | EvictionBegun
    | UntrustOrdered
    | OverrideOrdered
)
DeploymentNews: TypeAlias = (
    ChunkStored
    | ChunkLost
    | FinishModel
    | ReportStall
    | ProgressHeard
    | SourceTroubled
    | DiskConditionChanged
    | DiskWritesWait
)
DeploymentEvent: TypeAlias = (
    WorkEnded
    | Order
    | DeploymentNews
    | DaemonStarted
    | StatementHeard
    | RosterChanged
    | TrustReloaded
    | ClockJudged
    | WantsChanged
    | VersionEvicted
    | CopyWanted
)
