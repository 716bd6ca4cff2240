"""What the store has of one model: which chunks are held, durable, or being written.

What lives here: these books and their locks. What does not: bytes, files and the order of writes (``windows``).

A chunk is *held* when all its right bytes are written: it may be announced and served, and peers check it again. It is
*durable* when its window is committed; only then the journal claims it. A *busy* chunk belongs to the one thread that
writes or drops it; other threads that deliver it count a duplicate.

``lock`` guards every change of what is here. It is held for bookkeeping and for appending to the journal, never during
other reads, writes or syncs. Figures and ``held`` are read without it, because the event loop reads them, which must
not wait for a journal on a disk that hangs. ``committing`` serialises commits, new journals, and making, moving or
releasing the tree; it is taken first.
"""

from __future__ import annotations

from threading import Condition, Lock

from msgspec import Struct, field

from gossipd.core.bits import Bits
from gossipd.core.chunkset import ChunkSet
from gossipd.manifest.equal_chunks import equal_chunks
from gossipd.manifest.manifest import Manifest
from gossipd.parts.part import Part, everything
from gossipd.store.disk.disk import parent
from gossipd.store.disk.handles import Handle
from gossipd.store.journal.ledger import Ledger
from gossipd.store.models import layout
from gossipd.store.models.placement import Placement


class Window(Struct):
    """Writes that become durable together."""

    number: int
    opened_s: float | None = None
    """The time of the first write; None while the window is empty."""
    chunks: list[int] = field(default_factory=list)
    byte_count: int = 0
    asked_bytes: int = 0
    """Bytes that the kernel was asked to write back, last at ``asked_s``."""
    asked_s: float | None = None
    writers: int = 0
    handles: set[Handle] = field(default_factory=set)
    """Leased until the window is durable."""
    is_wide: bool = False
    """Has writes to more files than it keeps open, so the whole file system is synced."""
    whole_failures: int = 0
    """Failures of the whole sync when the window became wide."""


def _raw(chunks: ChunkSet) -> bytes:
    return chunks.bits.to_bytes((chunks.size + 7) // 8, "little")


class ReplicaCounters(Struct):
    """Events of this model since the store was opened."""

    local_bytes: int = 0
    """Copied from another version on this host."""
    duplicate_bytes: int = 0
    mismatch_count: int = 0
    """Chunks that arrived with wrong bytes."""
    mismatch_bytes: int = 0
    """What these had."""
    rotten_count: int = 0
    """Held chunks whose bytes had changed."""
    rehashed_count: int = 0
    """Chunks hashed when the model was opened."""


class ModelReplica:
    """The books of one model."""

    def __init__(self, manifest: Manifest, ledger: Ledger, *, tree: str, part: Part | None = None) -> None:
        """``part``: what lies here; None: everything."""
        self.manifest = manifest
        self.part = part or everything(manifest)
        self.placement = Placement(manifest, self.part)
        self.wanted = Bits.of_raw(manifest.chunk_count, _raw(self.part.wanted))
        """The chunks of the part; not changed."""
        self.equal = equal_chunks(manifest)
        self.deployment = manifest.id
        self.ledger = ledger
        self.tree = tree
        self.published_s: int | None = None
        self.is_sparse = False
        """Blocks could not be reserved: writing the rest may meet a full disk."""
        self.is_closed = False
        """The model was removed or the store closed; its files are no longer ours. Set under both locks."""
        self.has_durable_names = False
        """All names of its files are durable (``name_syncs``)."""
        self.is_renewing = False
        """The journal is being replaced: nothing may be appended to the old one."""
        self.lock = Lock()
        self.quiet = Condition(self.lock)
        """Notified when a window has no writers left, at the end of a commit and of a journal's replacement."""
        self.committing = Lock()
        self.held = Bits(manifest.chunk_count)
        self.durable = Bits(manifest.chunk_count)
        self.busy: set[int] = set()
        self.window = Window(1)
        self.sealed: Window | None = None
        self.commit_at_s = 0.0
        """After a refused commit: the time before which none is tried."""
        self.counters = ReplicaCounters()
        self.mended = 0
        """How often files were made again: a write that began before may have gone into a removed file."""

    @property
    def is_published(self) -> bool:
        """The tree is in its place, durably."""
        return self.published_s is not None

    @property
    def is_moved(self) -> bool:
        """The tree is in its place, maybe not durably."""
        return self.tree != layout.incoming(self.deployment)

    @property
    def is_whole(self) -> bool:
        """Whether all that belongs to its part is durable."""
        return not self.part.wanted.bits & ~self.durable.snapshot().bits

    @property
    def place(self) -> str:
        """Where its tree is, once it is published."""
        return layout.place(self.manifest, self.part.want)

    def path(self, file_index: int) -> str:
        """The present path of one of its files."""
        return self.placement.path(self.tree, file_index)

    def directories(self) -> set[str]:
        """The directories of all files, and the empty ones, up to the store's own, which is ``""``."""
        found: set[str] = set()
        leaves = [parent(self.path(file_index)) for file_index in self.placement.files()]
        for directory in (*leaves, *(f"{self.tree}/{empty}" for empty in self.manifest.directories)):
            while directory not in found:
                found.add(directory)
                directory = parent(directory)  # of ``""`` it is ``""``
        return found

    def missing_bytes(self) -> int:
        """Bytes not held, estimated from the number of chunks: they come in an order that does not ask for lengths."""
        missing = (self.part.wanted.bits & ~self.held.snapshot().bits).bit_count()
        return min(self.manifest.bytes_total, missing * self.manifest.layout.chunk_bytes_mean)
