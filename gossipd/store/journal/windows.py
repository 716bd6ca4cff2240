"""The order of writes, batched: bytes, sync, record, sync, then the claim.

What lives here: writing one chunk, making a window of chunks durable. What does not: whether the bytes are right
(``chunk_store`` asks before it calls), taking a claim back (``claims``), and what a start makes of it (``recovery``).

The life of a window::

    names of the model's files are durable            before the journal is started (``names``)
    WINDOW n is durable in the journal                before anything of it is written
    for each chunk:  record WRITING c                 not synced: after a kill the page cache has it
                     write c at its offsets           every byte; a short write is finished
                     c is held                        it may be announced and served from now on
    when ``window_s`` is nearly over:
        record WINDOW n+1, sync the journal           now the names of window n are durable too
        new chunks go to window n+1; wait for the writers of n
        sync every file written in n
        record COMMIT n with its chunks, sync         now they are claimed for ever

So after a kill every chunk whose bytes were all written is named and found by hashing what is named and not
committed. After a power cut what was committed is there, and at most two windows are not: the open one and the
one that was being synced. No sync per chunk: at 1.6 GB/s a window is 3 GB and costs three syncs.

The device begins early: four times a second, and each ``window_bytes`` of a window, the background thread asks the
kernel to start writing (sync_file_range), which waits for nothing and claims nothing. The sync at the window's end, and
the model's, then finds little left: of 1 GB read from nginx on loopback it took 0.02 s instead of 0.33 s (a busy
machine).

The disk sets the pace: when the open window is older than ``window_s`` and larger than ``window_bytes``, because the
one before is still being synced, writers wait, with their buffers, and so do the network and the peers behind them.

A failed sync of data loses the chunks of its window: the kernel may have dropped the pages and will report success
next time. They leave ``held``, the journal is started anew without them, ChunkLost tells the planner. A failed
sync of the journal loses nothing: the bytes are there, and a new journal, synced, says so.

Pages are kept, or with ``page_cache = "drop"`` dropped when their window is durable (POSIX_FADV_DONTNEED). Measured
while 1.6 GB were written: dropping window by window holds 1.2 to 1.3 GB at a time and leaves nothing; writing with
RWF_DONTCACHE holds 0.06 to 0.09 GB and leaves nothing. The window won: what was written a second
ago is what peers ask for next, and without the pages each of them would cost a read of the device.

Rejected: a sync per chunk (a fifth of the speed); O_DIRECT (needs aligned buffers, and the page cache is wanted:
what was written is served next); O_DSYNC (a sync per write).
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
from gossipd.store.models.names import sync_names
from gossipd.store.models.replica import ModelReplica, Window
from gossipd.store.settings import PageCache

# Sixteen hosts at 100 Mbit/s came to their last sync with 224 MB unwritten, which took the disk that they share 0.3 s
# (lab); what comes in this time is 3 MB each.
_WRITE_BACK_S = 0.25
_WAIT_S = 0.5  # a writer that waits for a window to end looks again whether the disk still takes writes

Fill: TypeAlias = Callable[[Segment, int, int], None]
"""Write one segment: where it lies in its file, its position in the chunk, the descriptor. Raises OSError."""


def write_chunk(context: Context, replica: ModelReplica, chunk: int, fill: Fill) -> bool:
    """Write one chunk whose bytes are known to be right; False when somebody else has or is.

    Raises:
        OSError: the disk refused; the chunk is not held.
        StoreWriteError: this model's journal cannot be written.
        NotHeldError: the model was given up meanwhile.
    """
    window = _enter(context, replica, chunk)
    if window is None:
        return False
    mended = replica.mended
    is_written = False
    try:
        position = 0
        for segment in replica.manifest.segments(chunk):
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
        if chunk in replica.held or chunk in replica.busy:
            return None
        if replica.ledger.broken:  # this model's own trouble: if it is the disk's, the probe says so
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
    """The file, leased for writing; the window keeps it open until it is durable, while it has room for one more."""
    path = replica.path(file_index)
    handle = context.handles.lease(replica.deployment, file_index, path, write=True)
    if context.disk.size(handle.descriptor) < replica.manifest.files[file_index].size:
        # Writing would give it its length back, and then nobody would see that what was behind the cut is gone.
        context.handles.give_back(handle)
        context.handles.detach(replica.deployment, file_index)  # it may be of a file that was replaced since
        raise FileNotFoundError(errno.ENOENT, "cut short", path)
    with replica.lock:
        if len(window.handles) >= context.settings.open_files_max // 2 and handle not in window.handles:
            if not window.is_wide:
                window.is_wide, window.whole_failures = True, context.whole_sync.failures
        elif handle not in window.handles:
            window.handles.add(context.handles.again(handle))
        return handle


def _leave(context: Context, replica: ModelReplica, window: Window, chunk: int, *, mended: int) -> bool:
    """The chunk is held if it was written, and into the files that are there now."""
    is_full = False
    with replica.lock:
        is_written = mended == replica.mended
        replica.busy.discard(chunk)
        window.writers -= 1
        if is_written:
            length = replica.manifest.chunk_length(chunk)
            window.chunks.append(chunk)
            window.byte_count += length
            is_full = window.byte_count - window.asked_bytes >= context.settings.window_bytes
            replica.held.update((chunk,))
            replica.counters.written_bytes += length
        if not window.writers:
            replica.quiet.notify_all()
    if is_full:
        context.due.set()
    return is_written


def start_write_back(context: Context, replica: ModelReplica) -> float:
    """Have the device begin with what has come since the last time, so that the sync finds little left to do.

    Returns: the seconds until that is due again, if less than ``window_bytes`` come until then.
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
    """Make everything durable that has been written so far. Never raises: refusals end in the condition."""
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
    """Turn new writes to the next window and wait for those of this one; None when there is nothing to do."""
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
        if window.is_wide:
            context.whole_sync.run()
            if context.whole_sync.failures != window.whole_failures:
                raise OSError(errno.EIO, "the file system has lost writes since")
        for handle in window.handles:
            context.disk.sync_data(handle.descriptor)
    except OSError as error:
        with replica.lock:
            lost = [chunk for chunk in window.chunks if chunk in replica.held]
            replica.held.difference_update(lost)
            replica.counters.lost_count += len(lost)
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
    """The bytes are durable; say so, durably. What cannot be said now is said with the next window."""
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
        renew_journal(context, replica)
        return
    _mark_durable(replica, chunks)
    context.tracker.sync_succeeded()
    if replica.ledger.is_long:
        renew_journal(context, replica)


def _mark_durable(replica: ModelReplica, chunks: Sequence[int]) -> None:
    with replica.lock:
        replica.durable.update(chunk for chunk in chunks if chunk in replica.held)
        replica.counters.commit_count += 1


def _postpone(replica: ModelReplica, window: Window) -> None:
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
