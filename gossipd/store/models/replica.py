"""Our copy of one model: which chunks are held, which are durable, which are being written now.

What lives here: the books of one model and the lock that guards them. What does not: bytes, files and the order of
writes (``windows``).

A chunk is *held* from the moment all its bytes are written and were right: it may be announced and served, peers
check it again. It is *durable* once its window is committed: only then does the journal claim it. ``busy`` chunks
belong to the one thread that is writing or dropping them; whoever else delivers one finds it taken.

Locks. ``lock`` guards everything here and is held for bookkeeping and for appending a record to the journal, never
while anything is read, written otherwise or synced: whoever asks for figures waits for it. ``committing`` serialises
what ends a window, starts the journal anew, makes, moves or lets go of the tree; it is taken first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Condition, Lock

from gossipd.manifest.manifest import Manifest
from gossipd.store.disk.handles import Handle
from gossipd.store.journal.bits import Bits
from gossipd.store.journal.ledger import Ledger
from gossipd.store.models import layout


@dataclass(slots=True)
class Window:
    """Writes that are not durable yet and become so together."""

    number: int
    opened_s: float | None = None
    """Time of its first write; None while it is empty."""
    chunks: list[int] = field(default_factory=list)
    byte_count: int = 0
    asked_bytes: int = 0
    """Of these, how many the kernel has been asked to write back already; the last time at ``asked_s``."""
    asked_s: float | None = None
    writers: int = 0
    handles: set[Handle] = field(default_factory=set)
    """What was written through; leased until the window is durable."""
    is_wide: bool = False
    """More files were written than it keeps open: the file system is synced as a whole."""
    whole_failures: int = 0
    """How often that had failed when the window became wide."""


@dataclass(slots=True)
class ReplicaCounters:
    """What has happened to this model since the store was opened."""

    written_bytes: int = 0
    local_bytes: int = 0
    duplicate_bytes: int = 0
    mismatch_count: int = 0
    rotten_count: int = 0
    lost_count: int = 0
    commit_count: int = 0
    rehashed_count: int = 0


class ModelReplica:
    """The books of one model."""

    def __init__(self, manifest: Manifest, ledger: Ledger, *, tree: str) -> None:
        self.manifest = manifest
        self.deployment = manifest.id
        self.ledger = ledger
        self.tree = tree
        self.published_s: int | None = None
        self.is_sparse = False
        """The file system could not reserve: what is missing may still hit a full disk."""
        self.is_closed = False
        """Let go: removed, or the store is closed. Set under both locks; nothing on the disk is ours from then on."""
        self.has_durable_names = False
        """Since the last time files were made, a power cut would leave them their names (``names``)."""
        self.is_renewing = False
        """The journal is being started anew: nothing may be appended to the old one."""
        self.lock = Lock()
        self.quiet = Condition(self.lock)
        """Notified when a window has no writers left, when a commit has ended and when the journal is a new one."""
        self.committing = Lock()
        self.held = Bits(manifest.chunk_count)
        self.durable = Bits(manifest.chunk_count)
        self.busy: set[int] = set()
        self.window = Window(1)
        self.sealed: Window | None = None
        self.commit_at_s = 0.0
        """The disk has refused to end a window: not to be asked again before."""
        self.counters = ReplicaCounters()
        self.mended = 0
        """How often files of the tree were made again: what was being written meanwhile may be in none of them."""

    @property
    def is_published(self) -> bool:
        """The tree is in its place, durably."""
        return self.published_s is not None

    @property
    def is_moved(self) -> bool:
        """The tree is where it is published, though that may not be durable yet."""
        return self.tree != layout.incoming(self.deployment)

    @property
    def is_whole(self) -> bool:
        """Every chunk is durable."""
        return self.durable.count == self.manifest.chunk_count

    def path(self, file_index: int) -> str:
        """Of one of its files, as the tree stands now."""
        return f"{self.tree}/{self.manifest.files[file_index].path}"

    def missing_bytes(self) -> int:
        """What is not held, estimated from the number of chunks."""
        return min(self.manifest.bytes_total, (self.held.size - self.held.count) * self.manifest.chunk_bytes)
