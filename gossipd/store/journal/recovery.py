"""Opening a model from what is on the disk: believe the journal, hash, or begin.

What lives here: making the tree, reading the journal, hashing suspects. What does not: the journal's format
(``journal``) and the writes of a running store (``windows``).

Three cases, by what is on the disk:

* no tree: check the space and make the tree, every file at its size, blocks reserved without writing zeros;
* a tree and a journal: believe the claimed chunks without reading them; hash the suspects (written, not claimed). After
  a power cut, or with a torn journal, records of the open window may be missing: then unclaimed chunks in written parts
  of the files (SEEK_DATA) are suspects too;
* a tree and no journal: hash everything that is not a hole, so that nothing is fetched twice.

Before a suspect is hashed its file is synced and its pages are dropped, because after a failed sync the page cache is
right and the device is not. Chunks beyond the end of a missing or short file are not held; the file is made again.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Iterable
from contextlib import suppress

from blake3 import blake3

from gossipd.core.bits import Bits
from gossipd.manifest.manifest import Manifest
from gossipd.parts.part import Part
from gossipd.store.disk.disk import Disk, FileKind, opened, read_all, read_file, write_new_file
from gossipd.store.errors import CaseFoldedError, NoSpaceError, StoreClosingError, StoreFormatError, VersionTakenError
from gossipd.store.journal.claims import make_books, start_journal
from gossipd.store.journal.journal import Header, Replay, replay
from gossipd.store.journal.ledger import JOURNAL_BYTES_MAX, Ledger
from gossipd.store.models import layout
from gossipd.store.models.context import Context
from gossipd.store.models.replica import ModelReplica, Window
from gossipd.store.models.showing import show_again

_OPEN_MAX = 64  # a chunk of packed files may touch thousands
_BOOKS_FILES = 4  # a directory with the manifest, the journal, and the next one while it is exchanged
_RESERVE_SHARE = 20  # at most a twentieth of the file system, or small disks could hold nothing


def open_replica(
    context: Context, manifest: Manifest, *, part: Part | None = None, promised_bytes: int = 0
) -> ModelReplica:
    """Open or create the books of a model, as true as the disk is.

    Args:
        part: what lies here, as ``settle_part`` says; None: everything.
        promised_bytes: what other models still need and could not reserve.
    Raises:
        NoSpaceError: the model does not fit; nothing was made.
        StoreFormatError: the journal is not ours.
        VersionTakenError: something else is where the model would be published.
        CaseFoldedError: the file system takes names of the model for one.
        StoreClosingError: the store was closed during hashing; the journal still names all suspects.
        OSError: the disk refused.
    """
    if manifest.case_matters and folds_case(context.disk):
        raise CaseFoldedError(
            f"{manifest.label} has names that differ only in case, which this host's file system "
            "takes for one; move the store to one that tells them apart, or publish with other names"
        )
    header = Header(manifest.id, manifest.chunk_count, manifest.name, manifest.version, context.clock.boot)
    replica = ModelReplica(manifest, Ledger(context.disk, header), tree=layout.incoming(manifest.id), part=part)
    said, is_known = _read_journal(context, manifest)
    _find_tree(context, replica, said, is_known=is_known)
    is_new = not replica.is_published and context.disk.kind(replica.tree) is None
    if is_new:
        _check_files(context, replica)
    lacks_bytes = 0 if replica.is_published else _check_space(context, manifest, replica, promised_bytes)
    try:
        _restore(context, replica, said, is_new=is_new, lacks_bytes=lacks_bytes)
    except (OSError, StoreClosingError):
        replica.ledger.close()
        raise
    return replica


def folds_case(disk: Disk) -> bool:
    """Whether the store's directory finds names in the wrong case: asked with one that is there, nothing is made. What
    is made below inherits it, also where a single directory has it (ext4's ``+F``)."""
    return disk.kind(layout.INCOMING.upper()) is not None


def _restore(context: Context, replica: ModelReplica, said: Replay, *, is_new: bool, lacks_bytes: int) -> None:
    """Make tree, books and journal agree with the disk."""
    manifest = replica.manifest
    make_directories(context, replica)  # before the books: books without a tree mean a published model
    make_books(context, replica)
    _mend_manifest(context, replica)
    wrong = wrong_sizes(context, replica)
    suspects = [one for one in _suspects(manifest, said, context.clock.boot) if one in replica.wanted]
    _believe(context, replica, said, wrong, suspects)
    replica.is_sparse = make_files(context, replica, wrong)
    replica.has_durable_names = False
    if not is_new:
        replica.held.update(_hash_suspects(context, replica, suspects))
        replica.is_sparse |= not wrong and lacks_bytes > 0
    if replica.is_published and (wrong or suspects):  # a file, or a chunk, came again just before the last end
        try:
            show_again(context, replica, replica.part.kept_bytes)
        except OSError as error:  # the chunks can be served all the same, and a later look tries again
            context.tracker.refused(error, context.clock.monotonic(), need_bytes=0)
    replica.is_sparse |= not replica.part.is_everything and not replica.is_whole
    replica.durable = Bits.of_raw(manifest.chunk_count, replica.held.raw)
    replica.window = Window(1)
    try:
        start_journal(context, replica)
    except OSError as error:
        if is_new:
            raise
        # Full or read-only: serve what is here all the same. The next successful probe starts the journal before any
        # write.
        context.tracker.refused(error, context.clock.monotonic(), need_bytes=replica.missing_bytes())


def _mend_manifest(context: Context, replica: ModelReplica) -> None:
    """Write the manifest again that is kept with the books, unless it is, byte for byte, the one that was verified. A
    disk that refuses it can serve all the same: what is in memory is right, and the next opening tries again."""
    path, envelope = layout.envelope(replica.deployment), replica.manifest.envelope
    with suppress(OSError):
        if read_file(context.disk, path, bytes_max=len(envelope)) == envelope:
            return
    with suppress(OSError):
        write_new_file(context.disk, path, envelope)


def _believe(
    context: Context, replica: ModelReplica, said: Replay, wrong: dict[int, int], suspects: Iterable[int]
) -> None:
    """Hold what the journal claims, except chunks in files that are gone or short. Such a file is made again at full
    size. First a journal without those claims is made durable, else the next start would believe zeros.
    """
    replica.held = Bits.of_raw(replica.manifest.chunk_count, said.held.raw)
    if not replica.part.is_everything:
        replica.held.difference_update(replica.held.snapshot() - replica.part.wanted)
    gone = [chunk for chunk in beyond_the_end(replica, wrong) if chunk in replica.held]
    if gone:
        replica.held.difference_update(gone)
        replica.durable = Bits.of_raw(replica.manifest.chunk_count, replica.held.raw)
        replica.busy = {chunk for chunk in suspects if chunk not in replica.held}  # suspects again at the next start
        start_journal(context, replica)
        replica.busy.clear()


def _read_journal(context: Context, manifest: Manifest) -> tuple[Replay, bool]:
    """The journal's content, and whether this model is known here."""
    path = layout.envelope(manifest.id)
    is_known = context.disk.kind(path) is not None
    if is_known:
        context.disk.close(context.disk.open(path))  # something else in its place is named
    try:
        body = read_file(context.disk, layout.journal(manifest.id), bytes_max=JOURNAL_BYTES_MAX)
    except FileNotFoundError:
        return Replay(), is_known
    try:
        said = replay(body, manifest.id)
        return said, is_known or said.header is not None
    except StoreFormatError as error:
        cure = "move it away, then SIGHUP: the files are hashed again"
        raise StoreFormatError(f"{layout.journal(manifest.id)}: {error}; {cure}", code=error.code) from None


def _find_tree(context: Context, replica: ModelReplica, said: Replay, *, is_known: bool) -> None:
    """Find where the files are: a crash may have come between the rename and its record."""
    place = replica.place
    found = context.disk.kind(place)
    if context.disk.kind(replica.tree) is not None or found is None:
        return
    if not is_known or found in (FileKind.FILE, FileKind.OTHER):
        sentence = f"{place} exists and is not known as this model's; move it away"
        if found is FileKind.DIRECTORY:
            sentence += (
                f"; or, if it is and its books in {layout.MANIFESTS} were lost, to {replica.tree}: it is hashed there, "
                "and what is right is not fetched again"
            )
        raise VersionTakenError(sentence)
    replica.tree = place
    replica.published_s = said.published_s if said.published_s is not None else int(context.clock.wall())


def _check_space(context: Context, manifest: Manifest, replica: ModelReplica, promised_bytes: int) -> int:
    """The bytes of the model without reserved blocks. Raises NoSpaceError."""
    space = context.tracker.space()
    reserve = min(context.settings.reserve_bytes, space.total_bytes // _RESERVE_SHARE)
    part = replica.part
    need = manifest.bytes_total if part.is_everything else sum(map(manifest.chunk_length, part.wanted))
    need -= _allocated_bytes(context, replica)
    if need > 0 and need + reserve + promised_bytes > space.free_bytes:
        raise NoSpaceError(
            f"{manifest.label} needs {need} bytes and a reserve of {reserve}, "
            f"{max(0, space.free_bytes - promised_bytes)} are free",
            need_bytes=need + reserve + promised_bytes,
            free_bytes=space.free_bytes,
        )
    return need


def _check_files(context: Context, replica: ModelReplica) -> None:
    """Before anything of a model is made: files of one that does not fit would take what others need. Raises
    NoSpaceError."""
    space = context.tracker.space()
    need = sum(1 for _ in replica.placement.files()) + len(replica.directories()) + _BOOKS_FILES
    if space.free_files and need > space.free_files:  # where there is none the kernel says so
        raise NoSpaceError(
            f"{replica.manifest.label} needs {need} files and directories, and the file system takes "
            f"{space.free_files} more; delete files, or make the file system with more inodes",
            need_bytes=0,
            free_bytes=space.free_bytes,
            code="E_NO_INODES",
        )


def _allocated_bytes(context: Context, replica: ModelReplica) -> int:
    if context.disk.kind(replica.tree) is None:
        return 0
    total = 0
    for file_index in replica.placement.files():
        with suppress(FileNotFoundError), opened(context.disk, replica.path(file_index)) as descriptor:
            total += min(replica.placement.size(file_index), context.disk.allocated(descriptor))
    return total


def make_directories(context: Context, replica: ModelReplica) -> None:
    """Make the tree and every directory in it; existing ones stay. Nothing is synced (``name_syncs``)."""
    for directory in sorted(replica.directories() - {""}):  # parents first
        if context.disk.kind(directory) is None:
            context.disk.make_directory(directory)


def wrong_sizes(context: Context, replica: ModelReplica) -> dict[int, int]:
    """Files of a wrong size: index to the size found, 0 for a missing one."""
    found = {}
    for file_index in replica.placement.files():
        size = None
        # Opened read-only, because a store on a read-only disk can still serve.
        with suppress(FileNotFoundError), opened(context.disk, replica.path(file_index)) as descriptor:
            size = context.disk.size(descriptor)
        if size != replica.placement.size(file_index):
            found[file_index] = size or 0
    return found


def make_files(context: Context, replica: ModelReplica, wrong: Iterable[int]) -> bool:
    """Make these files or set their size, without a sync. No journal may claim chunks beyond their present ends:
    afterwards the length no longer shows what is missing. Returns: whether the file system failed to reserve blocks for
    one of them.
    """
    is_sparse = False
    for file_index in wrong:
        placement, path = replica.placement, replica.path(file_index)
        mode = file_mode(placement.mode(file_index))
        with opened(context.disk, path, write=True, create=True, mode=mode) as descriptor:
            if placement.has_holes(file_index):
                context.disk.truncate(descriptor, placement.size(file_index))
            else:
                is_sparse |= not _set_size(context, descriptor, placement.size(file_index))
    return is_sparse


def _set_size(context: Context, descriptor: int, size: int) -> bool:
    """False when the blocks could not be reserved."""
    if context.disk.size(descriptor) > size:
        context.disk.truncate(descriptor, size)
        return True
    if context.disk.allocate(descriptor, size):
        return True
    context.disk.truncate(descriptor, size)
    return False


def file_mode(mode: int) -> int:
    """The mode of a model's file: readable by all, executable when the publisher's file was."""
    return 0o755 if mode & 0o111 else 0o644


def beyond_the_end(replica: ModelReplica, sizes: dict[int, int]) -> set[int]:
    """Chunks with bytes beyond the given end of a file."""
    placement = replica.placement
    touched = {chunk for file_index in sizes for chunk in placement.chunks_of(file_index)}
    return {
        chunk
        for chunk in touched
        if any(part.offset + part.length > sizes.get(part.file_index, math.inf) for part in placement.segments(chunk))
    }


def _suspects(manifest: Manifest, said: Replay, boot: str) -> Iterable[int]:
    """Chunks that may be on the disk although no record claims them."""
    is_damaged = said.header is None or said.dropped_bytes > 0 or not said.has_window
    is_power_cut = said.window_open and said.header is not None and said.header.boot != boot
    if is_damaged or is_power_cut:
        return range(manifest.chunk_count)
    return {chunk for chunk in said.suspects if chunk < manifest.chunk_count}


def _hash_suspects(context: Context, replica: ModelReplica, suspects: Iterable[int]) -> set[int]:
    """The suspects whose bytes are right."""
    wanted = [chunk for chunk in suspects if chunk not in replica.held]
    if not wanted:
        return set()
    buffer = memoryview(bytearray(replica.manifest.layout.chunk_bytes_max))
    files: dict[int, int] = {}
    found: set[int] = set()
    try:
        for chunk in wanted:
            if context.stopping.is_set():
                raise StoreClosingError("the store is being closed")
            if _is_right_on_device(context, replica, chunk, buffer, files):
                found.add(chunk)
    finally:
        for descriptor in files.values():
            context.disk.close(descriptor)
    return found


def _is_right_on_device(
    context: Context, replica: ModelReplica, chunk: int, buffer: memoryview, files: dict[int, int]
) -> bool:
    body = buffer[: replica.manifest.chunk_length(chunk)]
    position = 0
    for segment in replica.placement.segments(chunk):
        try:
            descriptor = _synced(context, replica, segment.file_index, files)
            if not context.disk.has_data(descriptor, segment.offset):
                return False
            context.disk.forget(descriptor, segment.offset, segment.length)
            if not read_all(context.disk, descriptor, body[position : position + segment.length], segment.offset):
                return False
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return False  # a bad sector or a failed write-back: the chunk is not there
        position += segment.length
    replica.counters.rehashed_count += 1
    return blake3(body, max_threads=blake3.AUTO).digest() == replica.manifest.digest(chunk)


def _synced(context: Context, replica: ModelReplica, file_index: int, files: dict[int, int]) -> int:
    """A descriptor of the file after a sync."""
    if file_index not in files:
        if len(files) >= _OPEN_MAX:
            context.disk.close(files.pop(next(iter(files))))
        descriptor = context.disk.open(replica.path(file_index))
        try:
            context.disk.sync_data(descriptor)
        except OSError:
            context.disk.close(descriptor)
            raise
        files[file_index] = descriptor
    return files[file_index]
