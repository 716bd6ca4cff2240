"""The interface of the store: every call of the daemon and of other adapters; where a chunk is hashed and compared.

What lives here: ``ChunkStore``, which checks its input, a chunk's digest above all, finds the replica and names the
refusals. What does not: the work itself (one module each, see the package), and the decision what to fetch or delete.

All methods are thread-safe. The event loop may call those that answer from memory and wait for no disk: ``place``,
``why_elsewhere``, ``why_unseen``, ``lacks_files``, ``is_published``, ``current``, ``pins``, ``chunk_length``, ``held``,
``chunks_kept``, ``verify`` (not the steps of what it returns), ``look_at_calls``, ``check_answers``, ``condition``,
``statistics``. All others may block.

``on_event`` is called in the thread that made the event, without a lock held. The store writes no bytes that it has not
hashed and found right.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import cast

from blake3 import blake3

from gossipd.core.chunkset import ChunkSet
from gossipd.core.errors import NotFoundError
from gossipd.core.events import ChunkStored
from gossipd.core.ids import ChunkIndex, DeploymentId, Supplier
from gossipd.manifest.chunk_layout import Segment
from gossipd.manifest.envelope import ENVELOPE_BYTES_MAX
from gossipd.manifest.manifest import Manifest
from gossipd.parts.want import EVERYTHING, Want
from gossipd.runtime.file_access import refusal_words
from gossipd.runtime.memory_room import memory_room
from gossipd.runtime.ports import DigestMismatchError, NotHeldError, OpenChunk, StoreWriteError
from gossipd.store.clock import Clock
from gossipd.store.disk.condition import ConditionTracker, StoreCondition, fault_of_path, silent_words
from gossipd.store.disk.disk import Disk, Space, read_file, write_all
from gossipd.store.disk.handles import Handles
from gossipd.store.disk.posix_disk import PosixDisk
from gossipd.store.disk.root_place import RootPlace
from gossipd.store.disk.waiting_calls import READ, WaitingCalls
from gossipd.store.disk.whole_sync import WholeSync
from gossipd.store.errors import StoreError, StoreModeError, StorePathError, StoreSilentError, StoreUnreadableError
from gossipd.store.journal.windows import commit, write_chunk
from gossipd.store.models import layout, publishing
from gossipd.store.models.background import BackgroundThread
from gossipd.store.models.catalogue import StoredModel, forsaken_trees, list_models, prepare_root
from gossipd.store.models.context import Context
from gossipd.store.models.current_link import CurrentLink
from gossipd.store.models.eviction import ModelUse
from gossipd.store.models.models import Models, is_version
from gossipd.store.models.reading import open_held_chunk
from gossipd.store.models.repair import mend_beginnings, mend_tree
from gossipd.store.models.replica import ModelReplica
from gossipd.store.models.reuse import PieceSource, copy_equal
from gossipd.store.models.scrub import PASS_S_MIN, Checked, recheck
from gossipd.store.models.upkeep import StoreMaintenance
from gossipd.store.models.warming import Warmer, Warmth
from gossipd.store.notices import DiskSlowChanged, Emit, ModelEvicted, StoreConditionChanged
from gossipd.store.settings import StoreSettings
from gossipd.store.statistics import StoreStatistics, replica_statistics


class ChunkStore:
    """Verified chunks of any number of models beneath one directory. A ``ChunkReader`` and a ``ChunkWriter``."""

    def __init__(
        self, root: Path, *, settings: StoreSettings | None = None, on_event: Emit, disk: Disk | None = None,
        clock: Clock | None = None, background: bool = True,
        before_evict: Callable[[ModelEvicted], None] = lambda evicted: None,
    ) -> None:  # fmt: skip
        """Lock the directory and start the threads.

        Args:
            root: an existing directory that only we may write to.
            disk: another implementation of the port, for tests; then ``root`` is not touched.
            background: start the threads; without them the caller calls ``upkeep.step`` and ``scrubber.step``.
            before_evict: called by ``finish`` and ``make_room`` in their thread, without a lock, before a version is
                deleted. It must durably remember the version as removed, else the host fetches it again after a kill.
                May block, must not raise.
        Raises:
            StoreLockedError, StoreFormatError, StoreModeError, StorePathError: see their docstrings.
            StoreWriteError: the disk refused.
        """
        settings = settings or StoreSettings()
        settings.validate()
        self._root = root
        self._posix = PosixDisk(root) if disk is None else None
        self._root_place = RootPlace.of(root) if disk is None else None
        self._why_elsewhere = ""
        asked = disk or self._posix
        assert asked is not None
        self._calls, self._is_slow = WaitingCalls(asked), False
        self._disk = used = cast(Disk, self._calls)
        self._emit = on_event
        tracker = ConditionTracker(used, on_change=lambda condition: on_event(StoreConditionChanged(condition)))
        handles = Handles(used, idle_max=settings.open_files_max)
        clock = clock or Clock()
        self._context = Context(used, WholeSync(used), handles, tracker, settings, on_event, clock, background)
        try:
            self._lock_descriptor = prepare_root(used)
        except (OSError, StoreError) as error:
            if self._posix is not None:
                self._posix.shut()
            if isinstance(error, StoreError):
                raise
            if (fault := fault_of_path(error)) is not None:
                raise StorePathError(f"{root}/{fault[1]}", code=fault[0]) from error
            if isinstance(error, PermissionError) and self._posix is not None:
                need = os.R_OK | os.W_OK
                raise StoreModeError(refusal_words(error, root / str(error.filename or ""), need, root=root)) from error
            raise tracker.refused(error, clock.monotonic(), need_bytes=0) from error
        try:
            for path in forsaken_trees(used):
                publishing.trash(used, path)
            publishing.empty_trash(used)
        except OSError as error:  # the rest stays until the next start; a disk that takes no writes can still serve
            tracker.refused(error, clock.monotonic(), need_bytes=0)
        self._models = Models(self._context, before_evict)
        self.scrubber = self._models.scrubber
        self.upkeep = StoreMaintenance(self._context, self._models.all)
        threads = []
        if background:
            threads.append(BackgroundThread("gossipd-commit", self.upkeep.step, woken=self._context.due))
        if background and settings.scrub_bytes_per_s > 0:
            step = self.scrubber.paced_step
            threads.append(BackgroundThread("gossipd-scrub", step, woken=Event(), idle_s=PASS_S_MIN))
        self._warmer = Warmer(self._context, self._models.published, memory_room)
        self._warming = BackgroundThread("gossipd-warm", self._warmer.step, woken=self._warmer.woken)
        self._background_threads = [*threads, self._warming]
        for thread in [*threads, *([self._warming] if background and settings.warm else [])]:
            thread.start()

    @contextmanager
    def _looking(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            place = self._root / (error.filename or "")
            raise StoreUnreadableError(f"{place} cannot be read by the daemon: {error.strerror or error}") from error

    # ---- models -----------------------------------------------------------------------------------

    def models(self) -> list[StoredModel]:
        """Every model with books here. A starting daemon reads ``manifest_bytes`` of each and calls ``open``. Raises
        StoreUnreadableError."""
        with self._looking():
            return list_models(self._disk)

    def look(self) -> list[str]:
        """Look at what others may have changed: where ``current`` leads, files of published models, the store's own
        place. Returns the labels of models that lack files now and did not at the last look. For a daemon to call every
        some seconds.
        """
        self._models.look_at_links()
        found = [replica.manifest.label for replica in self._models.removed_files.look()]
        self._look_at_place()
        return found

    def glance(self) -> None:
        """A ``look`` that is short enough for each question: whether trees, files that lacked, and the store are in
        their places. Where the disk does not tell, what was found before stays."""
        with suppress(OSError):
            self._models.removed_files.glance()
            self._look_at_place()

    def _look_at_place(self) -> None:
        self._why_elsewhere = "" if self._root_place is None else self._root_place.why_elsewhere()

    def open(self, manifest: Manifest, want: Want = EVERYTHING, *, frees: bool = False) -> ChunkSet:
        """Make room for a model, or the part of it that is wanted, or resume it. Returns the chunks that are verified
        here, also those that are wanted no longer.

        Chunks that another open model holds are copied first. A model that is open already is not opened twice. A part
        that is shown grows out of sight and must be finished again; it stays as it is when less is wanted, unless
        ``frees``: then what is not wanted goes.

        Raises:
            NoSpaceError: nothing was made; SpaceFreed tells when the model would fit.
            StoreFormatError, StorePathError, VersionTakenError, CaseFoldedError: see their docstrings.
            WantError, ManifestError: the want means nothing in this model; see ``choose_part``.
            StoreWriteError: the disk refused; StoreClosingError: ``close`` was called meanwhile.
        """
        return self._models.open(manifest, want, frees=frees)

    def place(self, deployment: DeploymentId) -> str | None:
        """Where users find what is published of an open model, relative to the store; None while nothing is."""
        replica = self._models.find(deployment)
        return replica.tree if replica is not None and replica.is_published else None

    def why_elsewhere(self) -> str:
        """Why users did not find the store's directory at its path at the last look, with the cure; empty: they did."""
        return self._why_elsewhere

    def why_unseen(self, deployment: DeploymentId) -> str:
        """Why users did not find, or not whole, what is published of an open model at the last look, with the cure;
        empty: they did."""
        replica = self._models.find(deployment)
        if replica is None or not replica.is_published:
            return ""
        if words := self.why_elsewhere():
            return words
        if not self._models.removed_files.lacks(replica):
            return ""
        cure = f"put them back, or gossipd verify {replica.manifest.label} fetches them again"
        return f"files of it were removed or moved by others; {cure}"

    def lacks_files(self) -> bool:
        """Whether a published model lacked files at the last look."""
        return self._models.removed_files.any_lack()

    def adopt(
        self, manifest: Manifest, files: PieceSource, files_here: frozenset[int] | None = None, *,
        on_copied: Callable[[int], None] = lambda _: None,
    ) -> int | None:  # fmt: skip
        """``open`` a model and copy its chunks from files of this host, each compared with its digest; with
        ``files_here`` those of these files. Returns None when all of them are held, else the first chunk that the files
        do not have as the manifest says; ``abandon`` it then, if nobody else deploys it. ``on_copied`` is told of each
        chunk its bytes, by several threads. Raises what ``open`` and ``on_copied`` raise.
        """
        return self._models.adopt(manifest, files, files_here, on_copied)

    def finish(self, deployment: DeploymentId) -> None:
        """Publish a whole model, point ``current`` to it, delete the versions that ``keep_versions`` does not cover.

        Raises:
            NotWholeError: chunks are missing or could not be made durable (ChunkLost has named those).
            VersionTakenError: something else stands in its place.
            StoreWriteError: the disk refused; call again when the disk takes writes.
            NotHeldError: the model is not open here, or was removed meanwhile.
        """
        self._models.finish(deployment)

    def abandon(self, deployment: DeploymentId, *, even_published: bool = False) -> None:
        """Delete a model that is not published; a published one stays, but for ``even_published``. Raises
        StoreWriteError: the disk refused; StoreClosingError: ``close`` was called.
        """
        self._models.abandon(deployment, even_published=even_published)

    def remove(self, name: str, version: int) -> DeploymentId:
        """Delete a version, whole or not. Returns its id; the caller must remember it as removed *before* this call.
        Raises NotFoundError; StoreWriteError: the disk refused, call again; StoreClosingError.
        """
        return self._models.remove(name, version)

    def evict_superseded(self, deployment: DeploymentId) -> None:
        """Delete a published version that its publisher no longer keeps, with its books. The caller has remembered
        durably that it is not wanted back.

        Raises:
            VersionHeldError: a job holds it, it is pinned, or the current one. NotFoundError: it is not here.
            StoreWriteError: the disk refused; repeat it.
        """
        try:
            self._models.evictions.evict_superseded(deployment)
        except OSError as error:
            raise self._context.refused(error, 0) from error

    def is_published(self, deployment: DeploymentId) -> bool:
        """Whether the model is open here and users can see it; False until publishing has ended."""
        replica = self._models.find(deployment)
        return replica is not None and replica.is_published

    def versions(self, name: str) -> list[int]:
        """Complete versions on this host, ascending. Raises StoreUnreadableError."""
        with self._looking():
            return list(CurrentLink(self._disk, name).shown())

    def current(self, name: str) -> int | None:
        """The version that ``current`` points to, of a name of which a version is open: since the store moved it, or
        where the last look found it. Raises StoreUnreadableError: the disk did not tell."""
        with self._looking():
            return self._models.known_links.version(name)

    def rollback(self, name: str) -> int:
        """Point ``current`` to the version before it, of those that are not avoided, until a version newer than all
        present ones is complete. Returns the version that is current now. Raises NotFoundError: there is none;
        StoreWriteError: the disk refused, and nothing has changed.
        """
        return self._models.roll_back(name)

    def avoid_versions(self, name: str, versions: frozenset[int]) -> None:
        """Have ``current`` lead to none of these versions where another is complete, and to no others be kept from
        leading. An operator's roll back stays. May be repeated. Raises StoreWriteError: the disk refused.
        """
        self._models.avoid_versions(name, versions)

    # ---- making room ------------------------------------------------------------------------------

    def pins(self) -> tuple[str, ...]:
        """What the operator keeps here: ``NAME``, for its current version, or ``NAME@VERSION``."""
        return self._models.pins.all()

    def look_at_pins(self) -> None:
        """Read again pins that could not be read. Raises StoreUnreadableError: they still cannot."""
        self._models.pins.look()

    def pin(self, pin: str, *, is_undone: bool = False) -> bool:
        """Add a pin, or take it away, durably. Returns whether it changed anything. Raises PinLimitError,
        StoreUnreadableError; StoreWriteError: the disk refused.
        """
        try:
            return self._models.pins.change(pin, is_undone=is_undone)
        except OSError as error:
            raise self._context.refused(error, 0) from error

    def space(self) -> Space:
        """The space of the file system now. Raises StoreWriteError: the disk does not say."""
        try:
            return self._context.tracker.space()
        except OSError as error:
            raise self._context.refused(error, 0) from error

    def uses(self) -> list[ModelUse]:
        """Every complete version, how lately it was used and what keeps it. Looks at every file. Raises
        StoreUnreadableError."""
        with self._looking():
            return self._models.evictions.uses()

    def make_room(self, deployment: DeploymentId, cause: str) -> str:
        """Delete a complete version to make room, unless something keeps it: that is returned in a word, else an empty
        one. ``cause``: see ``ModelEvicted``. ``before_evict`` is called first. Raises StoreWriteError: the disk
        refused, call again.
        """
        try:
            return self._models.evictions.evict(deployment, cause)
        except OSError as error:
            raise self._context.refused(error, 0) from error

    def warm(self, name: str, version: int | None) -> Warmth:
        """Read that version, or the current one, into memory as far as there is room, in the background. Raises
        NotFoundError: it is not complete here; StoreWriteError: the disk does not say which one is current."""
        try:
            ordered = self._warmer.order(name, version)
        except OSError as error:
            raise self._context.refused(error, 0) from error
        if self._context.has_thread:
            self._warming.start()
        return ordered

    # ---- chunks -----------------------------------------------------------------------------------

    def put(
        self, deployment: DeploymentId, chunk: ChunkIndex, body: memoryview, supplier: Supplier, elapsed_s: float
    ) -> bool:
        """Check a whole chunk, then write it. A chunk that is held or being written is counted as a duplicate and
        dropped. ``body``: contiguous bytes; the caller may reuse them after the return. ``elapsed_s``: how long the
        supplier took, passed on in ChunkStored. Returns False for a duplicate. Raises DigestMismatchError,
        StoreWriteError, NotHeldError: see ``ChunkWriter``.
        """
        replica = self._models.get(deployment)
        manifest = replica.manifest
        if not 0 <= chunk < manifest.chunk_count:
            raise NotHeldError(f"chunk {chunk} outside 0..{manifest.chunk_count - 1}", code="E_CHUNK_RANGE")
        if len(body) != manifest.chunk_length(chunk) or blake3(body).digest() != manifest.digest(chunk):
            with replica.lock:
                replica.counters.mismatch_count += 1
                replica.counters.mismatch_bytes += len(body)
            raise DigestMismatchError(f"chunk {chunk} of {manifest.label} has wrong bytes")
        self._context.tracker.check()

        def fill(segment: Segment, position: int, descriptor: int) -> None:
            write_all(self._disk, descriptor, body[position : position + segment.length], segment.offset)

        try:
            is_mine = write_chunk(self._context, replica, chunk, fill)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._mended(replica, error) from error
        except OSError as error:
            missing_bytes = replica.missing_bytes() if replica.is_sparse else 0
            raise self._context.refused(error, max(len(body), missing_bytes)) from error
        if not is_mine:
            with replica.lock:
                replica.counters.duplicate_bytes += len(body)
            return False
        mend_beginnings(self._context, replica, chunk)
        self._emit(ChunkStored(deployment, chunk, supplier, len(body), elapsed_s))
        copy_equal(self._context, replica, chunk)
        return True

    def open_chunk(self, deployment: DeploymentId, chunk: ChunkIndex) -> OpenChunk:
        """Open a held chunk for sendfile. Raises NotHeldError."""
        return open_held_chunk(self._context, self._models.get(deployment), chunk)

    def manifest_bytes(self, deployment: DeploymentId) -> bytes:
        """The signed envelope of any model with books here, open or not. Raises NotHeldError."""
        replica = self._models.find(deployment)
        if replica is not None:
            return replica.manifest.envelope
        try:
            return read_file(self._disk, layout.envelope(deployment), bytes_max=ENVELOPE_BYTES_MAX)
        except OSError as error:
            raise NotHeldError(f"no manifest of {deployment.hex()} here", code="E_UNKNOWN_MANIFEST") from error

    def held(self, deployment: DeploymentId) -> ChunkSet:
        """The chunks that are verified here now. Raises NotHeldError when the deployment is not open."""
        return self._models.get(deployment).held.snapshot()

    def commit(self, deployment: DeploymentId | None = None) -> None:
        """Make all written chunks durable now, of one model or of all."""
        for replica in self._models.all() if deployment is None else [self._models.get(deployment)]:
            commit(self._context, replica)

    # ---- rot --------------------------------------------------------------------------------------

    def chunk_length(self, deployment: DeploymentId, chunk: ChunkIndex) -> int:
        """The bytes of a chunk. Raises NotHeldError: the model is not open, or has no such chunk."""
        manifest = self._models.get(deployment).manifest
        if not 0 <= chunk < manifest.chunk_count:
            raise NotHeldError(f"no chunk {chunk}", code="E_CHUNK_RANGE")
        return manifest.chunk_length(chunk)

    def recheck(self, deployment: DeploymentId, chunk: ChunkIndex) -> bool:
        """A peer complained about a chunk: read it back; if it is wrong, drop it and emit ChunkLost. Raises
        NotHeldError: not open, or removed meanwhile; StoreWriteError: the chunk could not be read now, which proves
        nothing about its bytes.
        """
        replica = self._models.get(deployment)
        if not 0 <= chunk < replica.manifest.chunk_count:
            return False
        try:
            return recheck(self._context, replica, chunk)
        except OSError as error:
            raise self._context.refused(error, 0) from error

    def chunks_kept(self, deployment: DeploymentId) -> int:
        """How many chunks belong to what is kept here of a model, come or not; 0 if it is not open."""
        replica = self._models.find(deployment)
        return 0 if replica is None else len(replica.part.wanted)

    def verify(self, name: str, version: int) -> Iterator[Checked]:
        """Read back a whole version, chunk by chunk; wrong chunks are dropped as they are found. Raises NotFoundError:
        the version is not open here, or was removed meanwhile.
        """
        for replica in self._models.all():
            if is_version(replica, name, version):
                return self.scrubber.verify(replica)
        raise NotFoundError(f"{name}@{version} is not in this store")

    # ---- the whole --------------------------------------------------------------------------------

    def look_at_calls(self) -> str:
        """Take note of a disk that does not answer. For a daemon to call every second. Returns a kind of calls that do
        not end; empty: none. Where only reads do not, writes go on."""
        if (kind := self._calls.look()) not in ("", READ):
            self._context.tracker.silent(kind, self._context.clock.monotonic())
            self._context.due.set()  # to probe
        if self._calls.is_slow() is not self._is_slow:
            self._is_slow = not self._is_slow
            self._context.emit(DiskSlowChanged(self._is_slow))
        return self._calls.late()

    def check_answers(self) -> None:
        """Raises StoreSilentError while the disk is known not to answer."""
        if kind := self._calls.late():
            raise StoreSilentError(silent_words(kind))

    def condition(self) -> StoreCondition:
        """Whether the disk takes writes, and what it lacks."""
        return self._context.tracker.condition

    def statistics(self) -> StoreStatistics:
        return StoreStatistics(
            condition=self.condition(),
            models={replica.deployment: replica_statistics(replica) for replica in self._models.all()},
            open_files=self._context.handles.count,
            free_bytes=self._context.tracker.free_bytes(),
            scrubbed_bytes=self.scrubber.scrubbed_bytes,
            oldest_unchecked_age_s=self.scrubber.oldest_unchecked_age_s(),
            warm=self._warmer.rows,
        )

    def close(self) -> None:
        """Make everything durable, record that in the journals, unlock. Later puts raise NotHeldError. An ``open`` in
        progress keeps what it has copied and returns, or stops hashing and raises.
        """
        self._context.stopping.set()
        for thread in self._background_threads:
            thread.stop()
        self._models.close()
        self._context.handles.close_idle()
        self._disk.close(self._lock_descriptor)
        if self._posix is not None:
            self._posix.shut()

    def _mended(self, replica: ModelReplica, error: OSError) -> StoreWriteError:
        """Somebody removed a file or directory: make it again, so that the next attempt finds it."""
        try:
            mend_tree(self._context, replica)
        except OSError as again:
            return self._context.refused(again, replica.missing_bytes())
        return StoreWriteError(f"{error.filename or 'a file'} was removed; it has been made again", code="E_STORE_IO")
