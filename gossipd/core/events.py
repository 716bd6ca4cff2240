"""The whole vocabulary of a node's brain: events in, commands out.

What lives here: frozen values only. Events are past tense and come from hands (store, sources, transfer,
control, membership); commands are imperative and are performed by hands. Payload bytes appear in neither.
Every arrow of the daemon is one of these, so the journal, the metrics, the simulator and the tests read the
same list.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from gossipd.core.chunkset import ChunkSet
from gossipd.core.ids import ChunkIndex, DeploymentId, Supplier
from gossipd.core.model import PeerView, Shape
from gossipd.core.targets import EVERY_HOST, Targets
from membership.member import NodeId


class FailReason(Enum):
    """Why a fetch or a source read ended without a chunk."""

    BUSY = "busy"  # the peer has no free upload slot
    NOT_HELD = "not_held"  # the peer does not hold it (any more)
    GONE = "gone"  # connection refused, reset or closed
    CORRUPT = "corrupt"  # the bytes do not hash to the manifest's digest
    SLOW = "slow"  # no progress within the deadline
    REFUSED = "refused"  # the peer does not let us in, or does not know the deployment
    CANCELLED = "cancelled"  # we stopped it
    DISK = "disk"  # our own store could not write
    SOURCE = "source"  # external storage failed; the hand retries before it says so


# ---- events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeploymentOpened:
    """This host is a target of the deployment, its space is reserved, and ``held`` is verified here."""

    deployment: DeploymentId
    shape: Shape
    held: ChunkSet
    priority: int = 5
    targets: Targets = EVERY_HOST
    """Only these hosts hold, seed or relay this deployment."""


@dataclass(frozen=True, slots=True)
class DeploymentClosed:
    """The deployment was cancelled, failed or removed here: stop fetching, forget it."""

    deployment: DeploymentId


@dataclass(frozen=True, slots=True)
class ChunkStored:
    """A chunk is verified and written here; only the store can know this."""

    deployment: DeploymentId
    chunk: ChunkIndex
    supplier: Supplier
    length: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class ChunkArriving:
    """So much of a chunk has come that others may be sent it while the rest comes.

    Again for the same chunk when what had come was lost, those that had begun with it were refused, and it comes anew.
    """

    deployment: DeploymentId
    chunk: ChunkIndex
    supplier: Supplier


@dataclass(frozen=True, slots=True)
class ChunkEnding:
    """The rest of a chunk is about to come: what its supplier sends next can be asked for now.

    Told for a fetch, and for a read of its last chunk, again when that is repeated; not at all where a chunk comes in
    one piece, or its last piece takes long.
    """

    deployment: DeploymentId
    chunk: ChunkIndex
    supplier: Supplier


@dataclass(frozen=True, slots=True)
class ChunkLost:
    """A chunk that was held has rotted or could not be made durable: it is wanted again."""

    deployment: DeploymentId
    chunk: ChunkIndex


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """A fetch from a peer ended without a chunk."""

    deployment: DeploymentId
    chunk: ChunkIndex
    peer: NodeId
    reason: FailReason


@dataclass(frozen=True, slots=True)
class SourceReadFailed:
    """A read from external storage ended; these chunks of it did not arrive."""

    deployment: DeploymentId
    chunks: tuple[ChunkIndex, ...]
    reason: FailReason


@dataclass(frozen=True, slots=True)
class SourceProbed:
    """Whether this host can read the deployment's source, as a real probe has shown."""

    deployment: DeploymentId
    readable: bool


@dataclass(frozen=True, slots=True)
class PeerSeen:
    """A member is alive in the cluster's view, or its record has changed."""

    peer: PeerView


@dataclass(frozen=True, slots=True)
class MembersSeen:
    """All members, at once, instead of a ``PeerSeen`` for each: ten thousand planners may share one mapping."""

    peers: dict[NodeId, PeerView]
    """By node; this host may be among them. Nobody changes it any more."""


@dataclass(frozen=True, slots=True)
class PeerLost:
    """The cluster's verdict: dead, left or forgotten."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class PeerReachable:
    """Data-plane evidence about one pair, within a second; never overrides the cluster's verdict."""

    node: NodeId
    reachable: bool


@dataclass(frozen=True, slots=True)
class HoldingsHeard:
    """A peer's complete holdings, answering our subscription."""

    peer: NodeId
    deployment: DeploymentId
    chunks: ChunkSet
    free_slots: int


@dataclass(frozen=True, slots=True)
class DeltaHeard:
    """What a peer has verified since its last word, what it is reading from storage, its free slots."""

    peer: NodeId
    deployment: DeploymentId
    added: tuple[ChunkIndex, ...]
    dropped: tuple[ChunkIndex, ...]
    reading: tuple[ChunkIndex, ...]
    free_slots: int


@dataclass(frozen=True, slots=True)
class SubscribeHeard:
    """A peer asks for our holdings now and for deltas from now on."""

    peer: NodeId
    deployment: DeploymentId


@dataclass(frozen=True, slots=True)
class UnsubscribeHeard:
    """A peer wants no more deltas."""

    peer: NodeId
    deployment: DeploymentId


@dataclass(frozen=True, slots=True)
class SlotsChanged:
    """How many uploads this host could begin now."""

    free_slots: int


@dataclass(frozen=True, slots=True)
class IsolationChanged:
    """Membership hears nobody of those it should hear (True), or hears somebody again (False)."""

    isolated: bool


Event: TypeAlias = (
    DeploymentOpened
    | DeploymentClosed
    | ChunkStored
    | ChunkArriving
    | ChunkEnding
    | ChunkLost
    | FetchFailed
    | SourceReadFailed
    | SourceProbed
    | PeerSeen
    | MembersSeen
    | PeerLost
    | PeerReachable
    | HoldingsHeard
    | DeltaHeard
    | SubscribeHeard
    | UnsubscribeHeard
    | SlotsChanged
    | IsolationChanged
)


# ---- commands ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartFetch:
    """Fetch one chunk from one peer; end with ChunkStored or FetchFailed within ``timeout_s``.

    ``behind``: ask on the connection on which that chunk of the same deployment still comes, so that this one follows
    it at once, and in the same upload slot unless another is quicker; if it has come already, ask as ever.
    """

    deployment: DeploymentId
    chunk: ChunkIndex
    peer: NodeId
    timeout_s: float
    behind: ChunkIndex | None = None


@dataclass(frozen=True, slots=True)
class CancelFetch:
    """Stop a fetch that is no longer wanted; it ends with FetchFailed(CANCELLED) if it had not ended."""

    deployment: DeploymentId
    chunk: ChunkIndex
    peer: NodeId


@dataclass(frozen=True, slots=True)
class StartSourceRead:
    """Read these adjacent chunks from external storage; each ends with ChunkStored or in SourceReadFailed.

    ``is_awaited``: others listen, and may ask for a chunk while it comes (``ChunkArriving``).
    """

    deployment: DeploymentId
    chunks: tuple[ChunkIndex, ...]
    is_awaited: bool


@dataclass(frozen=True, slots=True)
class ProbeSource:
    """Find out whether this host can read the deployment's source; end with SourceProbed."""

    deployment: DeploymentId


@dataclass(frozen=True, slots=True)
class StartSubscription:
    """Ask a peer for its holdings and deltas."""

    peer: NodeId
    deployment: DeploymentId


@dataclass(frozen=True, slots=True)
class EndSubscription:
    """Tell a peer to send no more deltas."""

    peer: NodeId
    deployment: DeploymentId


@dataclass(frozen=True, slots=True)
class SendHoldings:
    """Answer a subscription with everything held."""

    peer: NodeId
    deployment: DeploymentId
    chunks: ChunkSet
    free_slots: int


@dataclass(frozen=True, slots=True)
class SendDelta:
    """Tell several peers the same news at once."""

    peers: tuple[NodeId, ...]
    deployment: DeploymentId
    added: tuple[ChunkIndex, ...]
    dropped: tuple[ChunkIndex, ...]
    reading: tuple[ChunkIndex, ...]
    free_slots: int


@dataclass(frozen=True, slots=True)
class ClaimSeed:
    """Put this term on our own member record: we are our rack's seed. Zero gives the claim up."""

    term: int


@dataclass(frozen=True, slots=True)
class FinishModel:
    """Everything is held: sync, rename, publish."""

    deployment: DeploymentId


@dataclass(frozen=True, slots=True)
class LimitUploads:
    """Serve at most this many uploads at a time from now on; those under way go on."""

    slots: int


class StallReason(Enum):
    """Why no chunk has arrived for three seconds, in the words of status."""

    NO_HOLDER = "no_holder"
    ALL_BUSY = "all_busy"
    DISK = "disk"
    STORAGE = "storage"
    VERIFICATION = "verification"
    MEMBERSHIP = "membership"
    HOLDER_SILENT = "holder_silent"  # asked, and neither refused nor delivered


@dataclass(frozen=True, slots=True)
class ReportStall:
    """Progress stopped for ``reason``; None when it goes on again."""

    deployment: DeploymentId
    reason: StallReason | None


Command: TypeAlias = (
    StartFetch
    | CancelFetch
    | StartSourceRead
    | ProbeSource
    | StartSubscription
    | EndSubscription
    | SendHoldings
    | SendDelta
    | ClaimSeed
    | FinishModel
    | ReportStall
    | LimitUploads
)
