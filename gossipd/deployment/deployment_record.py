"""One deployment on this host: its state, its counters, what it says about itself.

What lives here: a plain record and its arithmetic. What does not: the steps that change its state
(``deployment_steps``).
"""

from __future__ import annotations

from msgspec import Struct, field

from gossipd.core.bits import Bits
from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import ReportStall, StallReason
from gossipd.core.ids import ChunkIndex, DeploymentId
from gossipd.core.reasons import HostReason, reason_of_word
from gossipd.core.timing import STALL_S
from gossipd.deployment.counters import Counters, SmoothedRate, counters_of
from gossipd.deployment.lost_chunks import LostChunks
from gossipd.deployment.progress_record import SUBJECT_BYTES, HostState, Progress
from gossipd.deployment.statement import Statement, Verb
from gossipd.deployment.states import FINAL, STATES
from gossipd.manifest.manifest import Manifest
from gossipd.parts.want import EVERYTHING, Want

_FOR_LACK_OF_A_SOURCE = (StallReason.STORAGE, StallReason.NO_HOLDER, StallReason.MEMBERSHIP)
_IN_THE_STORE = (HostState.INIT, HostState.VERIFYING)  # room is reserved, or the model published, with no chunk to come


class DeploymentRecord(Struct):
    """What this host knows and does about one deployment. Owned by the lifecycle; others read it."""

    id: DeploymentId
    statement: Statement
    manifest: Manifest | None = None
    is_target: bool = True
    is_proven: bool = True
    """The manifest was verified here once; else this is a statement that is being looked into."""
    state: HostState = HostState.INIT
    reason: HostReason = HostReason.NONE
    sentence: str = ""
    """``CODE: words`` for the operator when ``reason`` is not enough."""
    subject: bytes = b""
    """Whom ``reason`` is about: the head of a key's id."""
    held: Bits = field(default_factory=lambda: Bits(0))
    """The chunks that are here, of those that are wanted. No mere number: the store's answer when it opens the model
    may know of a loss, or of a chunk, that is told after it."""
    want: Want = EVERYTHING
    """What the store was opened for."""
    wanted: ChunkSet | None = None
    """The chunks that it means; None: all."""
    bytes_wanted: int = 0
    """How many bytes they have; 0: all."""
    counters: Counters = field(default_factory=Counters)
    rate_in: SmoothedRate = field(default_factory=SmoothedRate)
    rate_out: SmoothedRate = field(default_factory=SmoothedRate)
    stall: StallReason | None = None
    silent_peer: bytes = b""
    """Whom that stall is about: the head of its id."""
    is_limited: bool = False
    """This host's own limit of reads explains the stall: no chunk could have come."""
    is_reading: bool = False
    """It had reads of storage under way when it last told of that stall."""
    source_trouble: HostReason = HostReason.NONE
    """What this host last had against the source; cleared by the next chunk from it, or with those that it is about."""
    source_file: bytes = b""
    """The subject of that trouble: the index of the file that it is about, or nothing."""
    source_chunks: tuple[ChunkIndex, ...] = ()
    """The chunks of that file that a read did not get for it: as many as one read asks for at most."""
    disk_trouble: HostReason = HostReason.NONE
    """What the disk refuses at present; it explains a stall for the disk."""
    is_disk_slow: bool = False
    """Writes wait for the disk for seconds; it explains a stall for peers and storage."""
    started_s: int = 0
    elapsed_s: int = 0
    lost_chunks: LostChunks = field(default_factory=LostChunks)
    changed: bool = True
    """Something worth telling at once, not only at the next refresh."""
    current_moved: bool = False
    """``current`` of its name may lead elsewhere; where that is to or from this version it is worth telling at once."""
    is_open: bool = False
    """The planner and the store have it."""
    is_of_earlier_run: bool = False
    """The run before this one knew it."""
    is_published: bool = False
    """The store had its directory published when it was opened."""
    base: Counters = field(default_factory=Counters)
    """The counters when the store opened it: the store counts duplicates and corruption from there."""

    @property
    def label(self) -> str:
        """``NAME@VERSION``, or the id before the manifest is here."""
        if self.manifest is None:
            return self.id.hex()[:12]
        return self.manifest.label

    @property
    def is_paused(self) -> bool:
        """Whether the last word is to pause, and there is something to pause here."""
        is_under_way = self.state in (HostState.INIT, HostState.DOWNLOADING) and not self.is_published
        return self.statement.verb is Verb.PAUSE and is_under_way

    @property
    def is_live(self) -> bool:
        """Whether it takes up room here: proven, a target, and not ended."""
        return self.is_proven and self.is_target and self.state not in FINAL

    @property
    def is_opening(self) -> bool:
        """Whether this host has not yet seen what it has of it, and nothing is known to keep it from looking."""
        is_begun = self.state is HostState.INIT and self.reason is HostReason.NONE
        return is_begun and self.is_proven and self.is_target

    def take(self, manifest: Manifest, name: str, rack: str) -> None:
        """The manifest is verified. ``name``, ``rack``: of this host."""
        self.manifest = manifest
        self.is_target = manifest.is_target(name, rack)

    def enter(self, state: HostState, reason: HostReason = HostReason.NONE, sentence: str = "") -> None:
        """Change state, or the reason for it."""
        assert state is self.state or state in STATES[self.state], (self.state, state)
        self.state, self.reason, self.sentence, self.subject = state, reason, sentence, b""
        if state in FINAL:
            self.stall = None
        if state is HostState.INIT:
            self.lost_chunks.all_are_back()
        self.changed = True

    def take_figures(self, duplicate_bytes: int, corrupt_chunks: int, corrupt_bytes: int) -> None:
        """What the store has counted since it opened the deployment."""
        self.counters.duplicate_bytes = self.base.duplicate_bytes + duplicate_bytes
        self.counters.corrupt_chunks = self.base.corrupt_chunks + corrupt_chunks
        self.counters.corrupt_bytes = self.base.corrupt_bytes + corrupt_bytes

    def progress(self, wall_s: float) -> Progress:
        """The record that gossip carries."""
        if self.state in FINAL and not self.elapsed_s and self.started_s:
            self.elapsed_s = max(1, int(wall_s) - self.started_s)
        reason = self._why()
        is_trouble = self.reason is HostReason.NONE and reason is self.source_trouble and reason.is_the_readers
        is_silence = self.reason is HostReason.NONE and reason is HostReason.HOLDER_SILENT
        is_moving = self.state not in FINAL and self.stall is None and not self.is_paused
        return Progress(
            state=self.told_state, reason=reason,
            subject=self.source_file if is_trouble else self.silent_peer if is_silence else self.subject,
            chunks_verified=self.chunks_verified,
            want=self.want.text, chunks_wanted=0 if self.wanted is None else len(self.wanted),
            bytes_wanted=self.bytes_wanted,
            rate_in_bytes_per_s=int(self.rate_in.bytes_per_s) if is_moving or self.is_refilling else 0,
            rate_out_bytes_per_s=int(self.rate_out.bytes_per_s), started_s=self.started_s,
            elapsed_s=0 if self.is_refilling else self.elapsed_s, **counters_of(self.counters),  # type: ignore[arg-type]
        )  # fmt: skip

    @property
    def is_refilling(self) -> bool:
        """Whether it was published, and chunks of it were found damaged and are not back yet."""
        was_complete = self.state is HostState.COMPLETE or self.is_published
        return was_complete and self.is_open and self.manifest is not None and self._is_short(self.manifest)

    def _is_short(self, manifest: Manifest) -> bool:
        return self.chunks_verified < self.chunks_wanted(manifest)

    @property
    def is_lacking(self) -> bool:
        """Whether a wanted chunk is not here."""
        return self.manifest is None or self._is_short(self.manifest)

    def chunks_wanted(self, manifest: Manifest) -> int:
        """How many chunks this host wants."""
        return manifest.chunk_count if self.wanted is None else len(self.wanted)

    @property
    def chunks_verified(self) -> int:
        """How many of the chunks that are wanted are here."""
        return self.held.count

    def hold(self, chunks: ChunkSet) -> None:
        """These are here."""
        self.held = Bits.of(chunks)

    def hold_all(self, manifest: Manifest) -> None:
        """All that is wanted is here."""
        self.hold(ChunkSet.full(manifest.chunk_count) if self.wanted is None else self.wanted)

    def hold_nothing(self) -> None:
        """What was here is deleted."""
        self.held = Bits(0)

    @property
    def bytes_here(self) -> int:
        """About how many of its bytes are verified here."""
        if self.manifest is None:
            return 0
        whole = self.manifest.bytes_total if self.wanted is None else self.bytes_wanted
        return whole * self.chunks_verified // max(1, self.chunks_wanted(self.manifest))

    @property
    def told_state(self) -> HostState:
        """The state for everybody's eyes: what lacks a chunk is called complete by nobody."""
        if self.is_paused:
            return HostState.PAUSED
        return HostState.DOWNLOADING if self.is_refilling else self.state

    def _why(self) -> HostReason:
        """The state's own reason, else why nothing arrives: trouble with the source or the disk says it best."""
        if self.is_paused or self.reason is not HostReason.NONE:
            return HostReason.PAUSED if self.is_paused else self.reason
        if self.disk_trouble is HostReason.DISK_SILENT and (self.stall is not None or self.state in _IN_THE_STORE):
            return self.disk_trouble  # what came waits for it, so that peers and storage seem to be silent
        if self.stall is None:
            return HostReason.REFILLING if self.is_refilling else HostReason.NONE
        if (of_disk := self._why_of_disk(self.stall)) is not HostReason.NONE:
            return of_disk
        is_wrong = self.source_trouble is HostReason.SOURCE_CHANGED and self.stall is StallReason.VERIFICATION
        if self.source_trouble is not HostReason.NONE and (is_wrong or self.stall in _FOR_LACK_OF_A_SOURCE):
            return self.source_trouble
        return HostReason.READ_LIMIT if self.is_limited else reason_of_word(self.stall.value)

    def _why_of_disk(self, stall: StallReason) -> HostReason:
        """How the disk explains a stall; NONE: not at all."""
        if self.is_disk_slow and stall not in (StallReason.DISK, StallReason.VERIFICATION):
            return HostReason.DISK_SLOW
        return self.disk_trouble if stall is StallReason.DISK else HostReason.NONE

    def disk_changed(self, trouble: HostReason, *, is_slow: bool) -> None:
        """The disk refuses writes, lets them wait, or does not answer; or takes them again."""
        before = self._why()
        self.disk_trouble, self.is_disk_slow = trouble, is_slow
        self.changed = self.changed or self._why() is not before

    def stalls(self, report: ReportStall) -> bool:
        """No chunk comes, or chunks come again. Returns whether the reason is another one."""
        peer, is_other = (report.peer or b"")[:SUBJECT_BYTES], self.stall is not report.reason
        before = (self.silent_peer, self.is_limited, self.is_reading)
        self.stall, self.silent_peer, self.is_reading = report.reason, peer, report.reads > 0
        chunk_bytes = 0 if self.manifest is None else self.manifest.layout.chunk_bytes_mean
        rate, under_way_bytes = report.read_bytes_per_s, report.reads * chunk_bytes  # the reads share the rate
        is_of_storage = report.reason is StallReason.STORAGE
        self.is_limited = is_of_storage and rate is not None and under_way_bytes > rate * STALL_S
        is_as_before = before == (self.silent_peer, self.is_limited, self.is_reading)
        self.changed = self.changed or is_other or not is_as_before
        return is_other

    def source_gave(self) -> None:
        """A chunk has come from the source, or one for which it is in trouble from elsewhere. Other chunks of an object
        come right beside one that is wrong, and between two looks at that one nothing else would tell why it is
        lacking."""
        wanted = (chunk for chunk in self.source_chunks if self.wanted is None or chunk in self.wanted)
        if all(chunk in self.held for chunk in wanted):
            self.source_trouble, self.source_chunks = HostReason.NONE, ()

    def restore(self, earlier: Progress) -> None:
        """Go on counting from this host's own last record of an earlier run."""
        self.is_of_earlier_run = True
        self.counters = Counters(**counters_of(earlier))
        self.started_s, self.elapsed_s = earlier.started_s, earlier.elapsed_s
