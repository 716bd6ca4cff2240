"""The whole vocabulary of the swarm brain: events in, commands out.

What lives here: frozen values only. Events are past tense and come from adapters and membership; commands are
imperative, and adapters perform them. Payload bytes appear in neither. Metrics, simulator and tests read the same list.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from gossipd.core.chunkset import ChunkSet
from gossipd.core.ids import ChunkIndex, DeploymentId, Supplier
from gossipd.core.model import PeerView, Shape
from gossipd.core.targets import EVERY_HOST, Targets
from membership.member import NodeId


class FailReason(Enum):
    """Why a fetch or a source read ended without a chunk."""

    BUSY = "busy"  # the peer has no free upload slot
    NOT_HELD = "not_held"  # the peer does not hold the chunk (any more)
    GONE = "gone"  # connection refused, reset or closed
    CORRUPT = "corrupt"  # the bytes do not hash to the manifest's digest
    SLOW = "slow"  # no progress within the deadline
    REFUSED = "refused"  # the peer does not admit us, or does not know the deployment
    CANCELLED = "cancelled"  # this host stopped the fetch
    DISK = "disk"  # our own store could not write
    SOURCE = "source"  # external storage failed, after the adapter's own retries
    WHOLE_ONLY = "whole_only"  # storage sends objects only from their beginning, and this read was not for that


# ---- events ------------------------------------------------------------------------------------


class DeploymentOpened(Struct, frozen=True):
    """This host is a target of the deployment, its space is reserved, and the chunks ``held`` are verified here."""

    deployment: DeploymentId
    shape: Shape
    held: ChunkSet
    priority: int = 5
    targets: Targets = EVERY_HOST
    """Only these hosts hold, seed or relay this deployment."""
    copies: ChunkSet | None = None
    """Chunks that are equal to an earlier one: the store copies them, as ``COPIED``, when that has come."""
    name: str = ""
    version: int = 0
    """Of deployments of one name that are not empty, the one of the highest version is fetched first."""
    wanted: ChunkSet | None = None
    """The chunks that this host wants; None: all."""


class DeploymentClosed(Struct, frozen=True):
    """The deployment was cancelled, failed or was removed here: stop fetching and drop it."""

    deployment: DeploymentId


class DeploymentPaused(Struct, frozen=True):
    """Begin no fetch and no read of it, and serve what is held; or begin them again."""

    deployment: DeploymentId
    is_paused: bool


class ChunkStored(Struct, frozen=True):
    """A chunk is verified and written here; only the store can know this."""

    deployment: DeploymentId
    chunk: ChunkIndex
    supplier: Supplier
    length: int
    elapsed_s: float


class ChunkArriving(Struct, frozen=True):
    """Enough of a chunk has come for others to be sent it while the rest comes. Posted again if the first copy was
    lost, its relays were refused, and the chunk is being received a second time. ``ending_at_s``: stands for a
    ``ChunkEnding`` of that time; None: one may follow."""

    deployment: DeploymentId
    chunk: ChunkIndex
    supplier: Supplier
    ending_at_s: float | None = None


class ChunkEnding(Struct, frozen=True):
    """The rest of a chunk is about to come, from ``at_s`` on, by the planner's clock: the next chunk may be asked of
    its supplier then. Posted for a fetch, and for the last chunk of a read, again when the read is repeated; not for a
    chunk in one piece."""

    deployment: DeploymentId
    chunk: ChunkIndex
    supplier: Supplier
    at_s: float = 0.0


class SourceReadMoves(Struct, frozen=True):
    """More of a chunk has come from storage, in many small requests. Posted about once a second."""

    deployment: DeploymentId
    chunk: ChunkIndex


class ChunkLost(Struct, frozen=True):
    """A chunk that was held has rotted or could not be made durable: it is wanted again."""

    deployment: DeploymentId
    chunk: ChunkIndex


class FetchFailed(Struct, frozen=True):
    """A fetch from a peer ended without a chunk."""

    deployment: DeploymentId
    chunk: ChunkIndex
    peer: NodeId
    reason: FailReason


class SourceReadFailed(Struct, frozen=True):
    """A read from external storage ended; these of its chunks did not arrive."""

    deployment: DeploymentId
    chunks: tuple[ChunkIndex, ...]
    reason: FailReason


class SourceProbed(Struct, frozen=True):
    """Whether this host can read the deployment's source, as a probe has shown. ``is_whole_only``: as in
    ``FailReason.WHOLE_ONLY``."""

    deployment: DeploymentId
    readable: bool
    is_whole_only: bool = False


class PeerSeen(Struct, frozen=True):
    """A member is alive in the cluster's view, or its record has changed, or it has answered.

    ``has_answered``: it has spoken to this host from where its record says. One that has not may be made up.
    """

    peer: PeerView
    has_answered: bool = True


class MembersSeen(Struct, frozen=True):
    """All members at once, in place of a ``PeerSeen`` for each: ten thousand planners may share one mapping."""

    peers: dict[NodeId, PeerView]
    """By node; this host may be among them. No holder of the mapping changes it."""


class PeerLost(Struct, frozen=True):
    """The cluster's verdict: the node is dead, left or forgotten."""

    node: NodeId


class PeerReachable(Struct, frozen=True):
    """Data-plane evidence about one pair, within a second; never overrides the cluster's verdict."""

    node: NodeId
    reachable: bool


class HoldingsHeard(Struct, frozen=True):
    """A peer's complete holdings, answering our subscription."""

    peer: NodeId
    deployment: DeploymentId
    chunks: ChunkSet
    free_slots: int


class DeltaHeard(Struct, frozen=True):
    """What a peer has verified since its last message, what it is reading from storage, its free upload slots."""

    peer: NodeId
    deployment: DeploymentId
    added: tuple[ChunkIndex, ...]
    dropped: tuple[ChunkIndex, ...]
    reading: tuple[ChunkIndex, ...]
    free_slots: int


class SubscribeHeard(Struct, frozen=True):
    """A peer asks for our holdings now and for deltas from now on."""

    peer: NodeId
    deployment: DeploymentId


class UnsubscribeHeard(Struct, frozen=True):
    """A peer wants no more deltas."""

    peer: NodeId
    deployment: DeploymentId


class PeerWantHeard(Struct, frozen=True):
    """A peer has told which chunks it wants; none: its want cannot be told, and nobody should rely on it."""

    peer: NodeId
    deployment: DeploymentId
    wanted: ChunkSet


class IsolationChanged(Struct, frozen=True):
    """Membership hears no member that it should hear (True), or hears one again (False)."""

    isolated: bool


Event: TypeAlias = (
    DeploymentOpened | DeploymentClosed | DeploymentPaused | ChunkStored | ChunkArriving | ChunkEnding | ChunkLost
    | FetchFailed | SourceReadFailed | SourceReadMoves | SourceProbed | PeerSeen | MembersSeen | PeerLost
    | PeerReachable | HoldingsHeard | DeltaHeard | SubscribeHeard | UnsubscribeHeard | PeerWantHeard | IsolationChanged
)  # fmt: skip


# ---- commands ----------------------------------------------------------------------------------


class StartFetch(Struct, frozen=True):
    """Fetch one chunk from one peer; end with ChunkStored or FetchFailed within ``timeout_s``. ``behind``: ask on the
    connection on which that chunk of the same deployment still comes, so that this one follows it at once and inherits
    its upload slot. If that chunk has come already, ask as usual."""

    deployment: DeploymentId
    chunk: ChunkIndex
    peer: NodeId
    timeout_s: float
    behind: ChunkIndex | None = None


class CancelFetch(Struct, frozen=True):
    """Stop a fetch that is no longer wanted; it ends with FetchFailed(CANCELLED) unless it has ended."""

    deployment: DeploymentId
    chunk: ChunkIndex
    peer: NodeId


class StartSourceRead(Struct, frozen=True):
    """Read these adjacent chunks from external storage; each ends with ChunkStored or in SourceReadFailed.
    ``is_awaited``: this host has subscribers, which may ask for a chunk while it comes (``ChunkArriving``).
    ``from_start``: storage sends objects only whole, and reads are in order, one after the other."""

    deployment: DeploymentId
    chunks: tuple[ChunkIndex, ...]
    is_awaited: bool
    from_start: bool = False


class ProbeSource(Struct, frozen=True):
    """Find out whether this host can read the deployment's source; end with SourceProbed."""

    deployment: DeploymentId


class StartSubscription(Struct, frozen=True):
    """Ask a peer for its holdings and deltas."""

    peer: NodeId
    deployment: DeploymentId


class EndSubscription(Struct, frozen=True):
    """Tell a peer to send no more deltas."""

    peer: NodeId
    deployment: DeploymentId


class SendHoldings(Struct, frozen=True):
    """Answer a subscription with everything held."""

    peer: NodeId
    deployment: DeploymentId
    chunks: ChunkSet
    free_slots: int


class SendDelta(Struct, frozen=True):
    """Tell several peers the same changes at once."""

    peers: tuple[NodeId, ...]
    deployment: DeploymentId
    added: tuple[ChunkIndex, ...]
    dropped: tuple[ChunkIndex, ...]
    reading: tuple[ChunkIndex, ...]
    free_slots: int


class ClaimSeed(Struct, frozen=True):
    """Put this term on our own member record: this host claims to be a seed of its rack. Zero gives the claim up."""

    term: int


class FinishModel(Struct, frozen=True):
    """Every wanted chunk is held: sync, rename, publish."""

    deployment: DeploymentId


class LimitUploads(Struct, frozen=True):
    """Serve at most this many uploads at a time from now on; uploads under way go on."""

    slots: int


class PreferFirstCopies(Struct, frozen=True):
    """This host is the deployment's origin: let each chunk leave once before any leaves twice."""

    deployment: DeploymentId
    chunk_count: int


class StallReason(Enum):
    """Why no chunk has arrived for three seconds, in the words of status."""

    NO_HOLDER = "no_holder"
    ALL_BUSY = "all_busy"
    DISK = "disk"
    STORAGE = "storage"
    VERIFICATION = "verification"
    MEMBERSHIP = "membership"
    HOLDER_SILENT = "holder_silent"  # asked, and neither refused nor delivered, or not to be connected to


class ReportStall(Struct, frozen=True):
    """No chunk comes, for ``reason``; None when chunks come again. ``peer``: the one that is silent.
    ``reads``: how many reads of storage this host has under way meanwhile; ``read_bytes_per_s``: what all of them get
    at most, by its own limit, as the adapter of reads knows."""

    deployment: DeploymentId
    reason: StallReason | None
    peer: NodeId | None = None
    reads: int = 0
    read_bytes_per_s: float | None = None


Command: TypeAlias = (
    StartFetch | CancelFetch | StartSourceRead | ProbeSource | StartSubscription | EndSubscription
    | SendHoldings | SendDelta | ClaimSeed | FinishModel | ReportStall | LimitUploads
    | PreferFirstCopies
)  # fmt: skip
