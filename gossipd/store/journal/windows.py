"""The order of writes in a window of chunks: bytes, sync, record, sync, and only then the claim.

What lives here: writing one chunk, making a window of chunks durable. What does not: checking the bytes
(``chunk_store``), taking a claim back (``claims``), and opening a model at a start (``recovery``).

The life of a window::

    names of the model's files are durable            before the journal is started (``name_syncs``)
    WINDOW n is durable in the journal                before anything of it is written
    for each chunk:  record WRITING c                 not synced: after a kill the page cache has it
                     write c at its offsets           every byte; a short write is completed
                     c is held                        peers may be told of it and served
    when ``window_s`` is nearly over:
        record WINDOW n+1, sync the journal           now the names of window n are durable too
        new chunks go to window n+1; wait for the writers of n
        sync every file written in n
        record COMMIT n with its chunks, sync         now they are claimed for ever

After a kill, every chunk with all bytes written is found by hashing the chunks that WRITING names and no COMMIT does.
After a power cut, committed chunks are there, and at most two windows are lost: the open one and the one being synced.
A window costs three syncs, however many chunks it has.

Write-back begins early: four times a second, and at every ``window_bytes``, the background thread asks the kernel to
start writing (sync_file_range). That waits for nothing and claims nothing, and leaves little to the syncs at the ends
of the window and of the model.

The disk sets the pace. When the open window is older than ``window_s`` and larger than ``window_bytes``, because the
one before is still being synced, writers wait and keep their buffers; so the network and the peers wait too.

A failed sync of data loses the chunks of its window, because the kernel may have dropped the pages and will report
success next time. These chunks leave ``held``, a new journal is written without them, and ChunkLost tells the planner.
A failed sync of the journal loses nothing: the data is there, and a new journal claims it.

Written pages stay in the page cache; with ``page_cache = "drop"`` they are dropped when their window is durable
(POSIX_FADV_DONTNEED).

Rejected: RWF_DONTCACHE for writes, because peers ask next for what was just written, and each upload would read the
device; a sync per chunk, because it is slow; O_DIRECT, because it needs aligned buffers and bypasses the cache that
serves peers; O_DSYNC, because it syncs every write.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TypeAlias

from gossipd.core.events import ChunkLost
from gossipd.manifest.chunk_layout import Segment
from gossipd.runtime.ports import NotHeldError, StoreWriteError
from gossipd.store.disk.condition import StoreHealth
from gossipd.store.disk.handles import Handle
from gossipd.store.journal.claims import renew_journal
from gossipd.store.models.context import Context
from gossipd.store.models.name_syncs import sync_names
from gossipd.store.models.replica import ModelReplica, Window
from gossipd.store.settings import PageCache

# Short, because hosts that share a disk would else arrive at their last sync with much unwritten.
_WRITE_BACK_S = 0.25
_WAIT_S = 0.5  # a waiting writer checks at this interval whether the disk still takes writes

Fill: TypeAlias = Callable[[Segment, int, int], None]
"""Write one segment, given its place in the file, its position in the chunk and the descriptor. Raises OSError."""


def write_chunk(context: Context, replica: ModelReplica, chunk: int, fill: Fill) -> bool:
    """Write one chunk whose bytes are right; False when another thread writes it, it is held, or it is of no part here.
    Raises OSError: the disk refused; the chunk is not held; StoreWriteError: this model's journal cannot be written;
    NotHeldError: the model was closed meanwhile.
    """
    window = _enter(context, replica, chunk)
    if window is None:
        return False
    mended = replica.mended
    is_written = False
    try:
        position = 0
        for segment in replica.placement.segments(chunk):
            handle = _writable(context, replica, window, segment.file_index)
            try:
                fill(segment, position, handle.descriptor)
            finally:
                context.handles.give_back(handle)
            position += segment.length
        is_written = True
    finally:
        is_held = _leave(context, replica, window, chunk, mended=mended if is_written else -1)
    if not is_held:
        raise OSError(errno.EIO, "its file was made again while it was written")
    return True


def _enter(context: Context, replica: ModelReplica, chunk: int) -> Window | None:
    with replica.lock:
        while _must_wait(context, replica):
            replica.quiet.wait(_WAIT_S)
        if replica.is_closed:
            raise NotHeldError("the deployment is not open here")
        if chunk in replica.held or chunk in replica.busy or chunk not in replica.wanted:
            return None
        if replica.ledger.broken:  # a fault of this journal; the probe reports faults of the disk
            raise StoreWriteError(f"the journal of {replica.manifest.name} cannot be written", code="E_STORE_IO")
        replica.ledger.append_writing(chunk)
        replica.busy.add(chunk)
        window = replica.window
        window.writers += 1
        is_first = window.opened_s is None
        if is_first:
            window.opened_s = context.clock.monotonic()
    if is_first:
        context.due.set()
    return window


def _must_wait(context: Context, replica: ModelReplica) -> bool:
    window = replica.window
    if replica.is_renewing:
        return True
    if not context.has_thread or context.stopping.is_set() or replica.is_closed:
        return False
    if context.tracker.condition.health is not StoreHealth.OK:
        return False
    if window.opened_s is None or window.byte_count < context.settings.window_bytes:
        return False
    return context.clock.monotonic() - window.opened_s >= context.settings.window_s


def _writable(context: Context, replica: ModelReplica, window: Window, file_index: int) -> Handle:
    """Lease the file for writing. The window keeps it open until it is durable, as long as it has room."""
    path = replica.path(file_index)
    handle = context.handles.lease(replica.deployment, file_index, path, write=True)
    if context.disk.size(handle.descriptor) < replica.placement.size(file_index):
        # A write would restore the length, and then the bytes lost behind the cut would go unnoticed.
        context.handles.give_back(handle)
        context.handles.detach(replica.deployment, file_index)  # the handle may be of a file that was replaced
        raise FileNotFoundError(errno.ENOENT, "cut short", path)
    with replica.lock:
        if len(window.handles) >= context.settings.open_files_max // 2 and handle not in window.handles:
            if not window.is_wide:
                window.is_wide, window.whole_failures = True, context.whole_sync.failures
        elif handle not in window.handles:
            window.handles.add(context.handles.again(handle))
        return handle


def _leave(context: Context, replica: ModelReplica, window: Window, chunk: int, *, mended: int) -> bool:
    """End a write. The chunk is held if all bytes went into the files that are in place now."""
    is_full = False
    with replica.lock:
        is_written = mended == replica.mended
        replica.busy.discard(chunk)
        window.writers -= 1
        if is_written:
            window.chunks.append(chunk)
            window.byte_count += replica.manifest.chunk_length(chunk)
            is_full = window.byte_count - window.asked_bytes >= context.settings.window_bytes
            replica.held.update((chunk,))
        if not window.writers:
            replica.quiet.notify_all()
    if is_full:
        context.due.set()
    return is_written


def start_write_back(context: Context, replica: ModelReplica) -> float:
    """Ask the kernel to write out what was written since the last call, so that the sync finds little left to do.
    Returns: the seconds until the next call is due, if fewer than ``window_bytes`` are written until then.
    """
    with replica.lock:
        window, now = replica.window, context.clock.monotonic()
        new_bytes = window.byte_count - window.asked_bytes
        due_s = (window.asked_s or window.opened_s or now) + _WRITE_BACK_S
        if now < due_s and new_bytes < context.settings.window_bytes:
            return due_s - now
        window.asked_s = now
        if not new_bytes:
            return _WRITE_BACK_S
        window.asked_bytes = window.byte_count
        handles = [context.handles.again(handle) for handle in window.handles]
    for handle in handles:
        context.disk.start_write_back(handle.descriptor)
        context.handles.give_back(handle)
    return _WRITE_BACK_S


def commit(context: Context, replica: ModelReplica) -> None:
    """Make all writes so far durable. Never raises: refusals set the condition."""
    with replica.committing:
        window = _seal(context, replica)
        if window is None:
            return
        try:
            _sync_files(context, replica, window)
            _claim(context, replica, window)
        finally:
            for handle in window.handles:
                context.handles.give_back(handle)
            with replica.lock:
                replica.sealed = None
                replica.quiet.notify_all()


def _seal(context: Context, replica: ModelReplica) -> Window | None:
    """Direct new writes to the next window and wait for this one's writers; None when there is nothing to commit."""
    with replica.lock:
        window = replica.window
        if window.opened_s is None or replica.ledger.broken:
            return None
        try:
            replica.ledger.append_window(window.number + 1)
        except OSError as error:
            context.tracker.refused(error, context.clock.monotonic(), need_bytes=replica.missing_bytes())
            return None
    try:
        replica.ledger.sync()
    except OSError as error:
        context.tracker.sync_failed(error, context.clock.monotonic(), chunk_count=0)
        if not renew_journal(context, replica):
            return None
    with replica.lock:
        replica.window = Window(window.number + 1)
        replica.sealed = window
        replica.quiet.notify_all()
        while window.writers:
            replica.quiet.wait()
    return window


def _sync_files(context: Context, replica: ModelReplica, window: Window) -> None:
    try:
        # A wide window wrote to more files than it keeps open, so its own syncs do not cover them all.
        if window.is_wide:
            context.whole_sync.run()
            if context.whole_sync.failures != window.whole_failures:
                raise OSError(errno.EIO, "the file system has lost writes since")
        for handle in window.handles:
            context.disk.sync_data(handle.descriptor)
    except OSError as error:
        # The kernel may have marked the failed pages clean: no later sync can prove these chunks.
        with replica.lock:
            lost = [chunk for chunk in window.chunks if chunk in replica.held]
            replica.held.difference_update(lost)
            window.chunks.clear()
        context.tracker.sync_failed(error, context.clock.monotonic(), chunk_count=len(lost))
        renew_journal(context, replica)
        for chunk in lost:
            context.emit(ChunkLost(replica.deployment, chunk))
        return
    if context.settings.page_cache is PageCache.DROP:
        for handle in window.handles:
            context.disk.forget(handle.descriptor, 0, 0)


def _claim(context: Context, replica: ModelReplica, window: Window) -> None:
    """Record the window's chunks as durable. If the disk refuses, the next window records them."""
    try:
        if window.chunks and not replica.has_durable_names:
            sync_names(context, replica)
        with replica.lock:
            chunks = [chunk for chunk in window.chunks if chunk in replica.held]
            if not chunks:
                return
            if replica.ledger.broken:
                raise OSError(errno.EIO, "the journal cannot be written")
            replica.ledger.append_commit(window.number, chunks)
    except OSError as error:
        context.tracker.refused(error, context.clock.monotonic(), need_bytes=replica.missing_bytes())
        with replica.lock:
            _postpone(replica, window)
        return
    try:
        replica.ledger.sync()
    except OSError as error:
        context.tracker.sync_failed(error, context.clock.monotonic(), chunk_count=0)
        _mark_durable(replica, chunks)
        # The data was synced, only the record failed: the new journal claims these chunks.
        renew_journal(context, replica)
        return
    _mark_durable(replica, chunks)
    context.tracker.sync_succeeded()
    if replica.ledger.is_long:
        renew_journal(context, replica)


def _mark_durable(replica: ModelReplica, chunks: Sequence[int]) -> None:
    with replica.lock:
        replica.durable.update(chunk for chunk in chunks if chunk in replica.held)


def _postpone(replica: ModelReplica, window: Window) -> None:
    # The chunks move to the next window, with the failure count from before their writes.
    following = replica.window
    chunks = [chunk for chunk in window.chunks if chunk in replica.held]
    if window.is_wide and not following.is_wide:
        following.is_wide, following.whole_failures = True, window.whole_failures
    elif window.is_wide:
        following.whole_failures = min(following.whole_failures, window.whole_failures)
    following.chunks.extend(chunks)
    following.byte_count += window.byte_count
    if following.opened_s is None:
        following.opened_s = window.opened_s
