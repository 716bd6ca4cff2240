"""One deployment on this host: its state, its counters, what it says about itself.

What lives here: a plain record and its arithmetic, owned by the trio loop. What does not: the steps that
change its state (``deployments``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import trio

from gossipd.core.events import StallReason
from gossipd.core.ids import LOCAL, SOURCE, DeploymentId, Supplier
from gossipd.deployment.progress import HostReason, HostState, Progress
from gossipd.deployment.statement import Statement
from gossipd.inbox.inbox import QueueFullError
from gossipd.manifest.manifest import Manifest

# Half of a rate is forgotten in some three seconds: steady enough to read, quick enough to show a stall.
RATE_SMOOTHING = 0.2
_FOR_LACK_OF_A_SOURCE = (StallReason.STORAGE, StallReason.NO_HOLDER, StallReason.MEMBERSHIP)
LIVE_MAX = 64  # under way at once; as many as the table of progress has room for with 4,096 hosts
FINAL = (HostState.COMPLETE, HostState.FAILED, HostState.CANCELLED, HostState.EXPIRED)


@dataclass(slots=True)
class TransferCounters:
    """Bytes and chunks since the deployment was first heard of; they never fall."""

    source_bytes: int = 0
    peer_bytes_same_rack: int = 0
    peer_bytes_cross_rack: int = 0
    duplicate_bytes: int = 0
    corrupt_chunks: int = 0

    def add(self, supplier: Supplier, length: int, *, same_rack: bool) -> None:
        """A verified chunk of ``length`` bytes."""
        if supplier is SOURCE:
            self.source_bytes += length
        elif supplier is not LOCAL:
            if same_rack:
                self.peer_bytes_same_rack += length
            else:
                self.peer_bytes_cross_rack += length


@dataclass(slots=True)
class SmoothedRate:
    """Bytes per second, smoothed; ``tick`` is called about once a second."""

    bytes_per_s: float = 0.0
    _bytes: int = 0

    def add(self, count: int) -> None:
        """Bytes that were moved since the last tick."""
        self._bytes += count

    def tick(self, elapsed_s: float) -> None:
        """Fold in what was moved in the last ``elapsed_s``."""
        fresh = self._bytes / max(elapsed_s, 0.001)
        self._bytes = 0
        self.bytes_per_s += RATE_SMOOTHING * (fresh - self.bytes_per_s)
        if self.bytes_per_s < 1:
            self.bytes_per_s = 0.0


@dataclass(slots=True)
class Deployment:
    """What this host knows and does about one deployment."""

    id: DeploymentId
    statement: Statement
    manifest: Manifest | None = None
    is_target: bool = True
    state: HostState = HostState.INIT
    reason: HostReason = HostReason.NONE
    sentence: str = ""
    """``CODE: words`` for the operator when ``reason`` is not enough."""
    chunks_verified: int = 0
    counters: TransferCounters = field(default_factory=TransferCounters)
    rate_in: SmoothedRate = field(default_factory=SmoothedRate)
    rate_out: SmoothedRate = field(default_factory=SmoothedRate)
    stall: StallReason | None = None
    source_trouble: HostReason = HostReason.NONE
    """What this host last had against the source; cleared by the next chunk from it."""
    started_s: int = 0
    elapsed_s: int = 0
    changed: bool = True
    """Something worth telling at once, not only at the next refresh."""
    is_open: bool = False
    """The planner and the store have it."""
    finish_wanted: trio.Event = field(default_factory=trio.Event)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    turn: trio.Lock = field(default_factory=trio.Lock)
    """Held by the life that runs, or by whoever deletes what an earlier one left: the store cannot be cut short."""
    base: TransferCounters = field(default_factory=TransferCounters)
    """The counters when the store opened it: the store counts duplicates and corruption from there."""
    holders: dict[bytes, None] = field(default_factory=dict)
    """Nodes that have the manifest or are about to, in the order in which gossip told that."""
    pulls: int = 0
    """How often a node was asked for the manifest."""

    @property
    def label(self) -> str:
        """``NAME@VERSION``, or the id before the manifest is here."""
        if self.manifest is None:
            return self.id.hex()[:12]
        return f"{self.manifest.name}@{self.manifest.version}"

    def enter(self, state: HostState, reason: HostReason = HostReason.NONE, sentence: str = "") -> None:
        """Change state; the caller fixes ``elapsed_s`` when it is final."""
        self.state, self.reason, self.sentence = state, reason, sentence
        if state in FINAL:
            self.stall = None
        self.changed = True

    def take_figures(self, duplicate_bytes: int, corrupt_chunks: int) -> None:
        """What the store has counted since it opened the deployment."""
        self.counters.duplicate_bytes = self.base.duplicate_bytes + duplicate_bytes
        self.counters.corrupt_chunks = self.base.corrupt_chunks + corrupt_chunks

    def progress(self, wall_s: float) -> Progress:
        """The record that gossip carries."""
        if self.state in FINAL and not self.elapsed_s and self.started_s:
            self.elapsed_s = max(1, int(wall_s) - self.started_s)
        return Progress(
            state=self.state,
            reason=self._why(),
            chunks_verified=self.chunks_verified,
            source_bytes=self.counters.source_bytes,
            peer_bytes_same_rack=self.counters.peer_bytes_same_rack,
            peer_bytes_cross_rack=self.counters.peer_bytes_cross_rack,
            duplicate_bytes=self.counters.duplicate_bytes,
            corrupt_chunks=self.counters.corrupt_chunks,
            rate_in_bytes_per_s=int(self.rate_in.bytes_per_s),
            rate_out_bytes_per_s=int(self.rate_out.bytes_per_s),
            started_s=self.started_s,
            elapsed_s=self.elapsed_s,
        )

    def _why(self) -> HostReason:
        """The state's own reason, else why nothing arrives; trouble with the source explains a lack of holders."""
        if self.reason is not HostReason.NONE or self.stall is None:
            return self.reason
        if self.source_trouble is not HostReason.NONE and self.stall in _FOR_LACK_OF_A_SOURCE:
            return self.source_trouble
        return HostReason(self.stall.value)

    def restore(self, earlier: Progress) -> None:
        """Go on counting from this host's own last record of an earlier run."""
        self.counters = TransferCounters(
            earlier.source_bytes,
            earlier.peer_bytes_same_rack,
            earlier.peer_bytes_cross_rack,
            earlier.duplicate_bytes,
            earlier.corrupt_chunks,
        )
        self.started_s, self.elapsed_s = earlier.started_s, earlier.elapsed_s


def check_room(deployments: Iterable[Deployment], wanted: DeploymentId) -> None:
    """Whether this host may begin one more; one that it has begun with already needs no room.

    Raises:
        QueueFullError: not before one of those under way has ended.
    """
    live = {one.id for one in deployments if one.is_target and one.state not in FINAL}
    if wanted not in live and len(live) >= LIVE_MAX:
        raise QueueFullError(
            f"{len(live)} deployments are in progress on this host, at most {LIVE_MAX}; this one waits"
        )
