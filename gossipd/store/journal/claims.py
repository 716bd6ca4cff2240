"""Takes back the journal's claims on chunks, and writes the journal again from its start.

What lives here: the order of changes to books and disk when a chunk was found wrong. What does not: windows
(``windows``), the format (``journal``), the file (``ledger``).

A claim is taken back durably before the chunk may be written again. A journal is started only when the names of the
model's files are durable (``name_syncs``). Missing books are made again.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from gossipd.core.events import ChunkLost
from gossipd.store.disk.disk import FileKind, write_new_file
from gossipd.store.models import layout
from gossipd.store.models.context import Context
from gossipd.store.models.name_syncs import sync_names
from gossipd.store.models.replica import ModelReplica


def take_claims_back(
    context: Context, replica: ModelReplica, chunks: Sequence[int], *, then: Callable[[], None] = lambda: None
) -> None:
    """Take the claims on wrong chunks back, durably, before any thread may write these chunks again.

    Nothing happens when the model was closed meanwhile: then its files and its journal are no longer ours. ``then``:
    called when no journal claims the chunks and before ChunkLost is emitted; not called otherwise. Its exceptions are
    raised here.
    """
    with replica.lock:
        mine = [chunk for chunk in chunks if chunk in replica.held and chunk not in replica.busy]
        replica.busy.update(mine)
        replica.held.difference_update(mine)
        replica.durable.difference_update(mine)
        replica.counters.rotten_count += len(mine)
        for window in (replica.window, replica.sealed):
            if window is not None:  # else this window would claim the chunk, which the next one writes again
                window.chunks = [chunk for chunk in window.chunks if chunk not in replica.busy]
    told: Sequence[int] = ()
    try:
        with replica.committing:
            if replica.is_closed:
                return
            told = mine
            if _take_back(context, replica, mine):
                then()
    finally:
        with replica.lock:
            replica.busy.difference_update(told)
        for chunk in told:
            context.emit(ChunkLost(replica.deployment, chunk))


def _take_back(context: Context, replica: ModelReplica, chunks: Sequence[int]) -> bool:
    """Record the drop. True when no journal claims the chunks any more."""
    try:
        with replica.lock:
            if replica.ledger.broken:  # earlier drops may not be durable either
                raise OSError(errno.EIO, "the journal cannot be written")
            if chunks:
                replica.ledger.append_drop(chunks)
        if chunks:
            replica.ledger.sync()
    except OSError as error:
        context.tracker.sync_failed(error, context.clock.monotonic(), chunk_count=len(chunks))
        replica.ledger.broken = True  # no writes until a journal without the claim is durable
        return renew_journal(context, replica)
    return True


def renew_journal(context: Context, replica: ModelReplica) -> bool:
    """Replace the journal by what is durable; False when that fails too. The caller holds ``committing``. Writers wait
    until the new journal is in place: a record appended to the old file meanwhile would be lost.
    """
    try:
        start_journal(context, replica)
    except OSError as error:
        context.tracker.refused(error, context.clock.monotonic(), need_bytes=replica.missing_bytes())
        return False
    return True


def start_journal(context: Context, replica: ModelReplica) -> None:
    """``renew_journal`` that raises OSError."""
    with replica.lock:
        windows = [window for window in (replica.sealed, replica.window) if window is not None]
        writing = {chunk for window in windows for chunk in window.chunks if chunk in replica.held} | replica.busy
        held, window_number, published_s = bytes(replica.durable.raw), replica.window.number, replica.published_s
        replica.is_renewing = True
    try:
        make_books(context, replica)
        if not replica.has_durable_names:
            sync_names(context, replica)
        replica.ledger.start_anew(held=held, window=window_number, writing=sorted(writing), published_s=published_s)
    finally:
        with replica.lock:
            replica.is_renewing = False
            replica.quiet.notify_all()


def make_books(context: Context, replica: ModelReplica) -> None:
    """Make the directory of a model's books and the manifest in it, if missing. Raises OSError."""
    if context.disk.kind(layout.envelope(replica.deployment)) is FileKind.FILE:
        return
    replica.has_durable_names = False
    context.disk.make_directory(layout.state(replica.deployment))
    write_new_file(context.disk, layout.envelope(replica.deployment), replica.manifest.envelope)
