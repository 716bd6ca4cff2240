"""What the journal says of a model besides its windows: claims that are taken back, and the journal started anew.

What lives here: the order in which books and disk change when something was found wrong. What does not: windows
(``windows``), the format (``journal``), the file (``ledger``).

A claim is taken back durably before the chunk may be written again; and the journal is started only when the names
that lead to the model's files are durable (``names``). Books that were removed under us are made again.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from gossipd.core.events import ChunkLost
from gossipd.store.disk.disk import FileKind, write_new_file
from gossipd.store.models import layout
from gossipd.store.models.context import Context
from gossipd.store.models.names import sync_names
from gossipd.store.models.replica import ModelReplica


def drop(
    context: Context, replica: ModelReplica, chunks: Sequence[int], *, then: Callable[[], None] = lambda: None
) -> None:
    """These chunks are not right any more: take the claim back, durably, before anybody may write them again.

    Nothing happens when the model was let go meanwhile: its files and its journal are not ours to judge or to write.

    Args:
        then: done once no journal claims them any more and before anybody is told; not done while one still may.
            What it raises is raised here, at the end.
    """
    with replica.lock:
        mine = [chunk for chunk in chunks if chunk in replica.held and chunk not in replica.busy]
        replica.busy.update(mine)
        replica.held.difference_update(mine)
        replica.durable.difference_update(mine)
        replica.counters.rotten_count += len(mine)
        for window in (replica.window, replica.sealed):
            if window is not None:  # or it would be claimed with this window, written again in the next
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
    """Whether no journal claims the chunks any more; they have left the books."""
    try:
        with replica.lock:
            if replica.ledger.broken:  # what was taken back earlier may not be durable either
                raise OSError(errno.EIO, "the journal cannot be written")
            if chunks:
                replica.ledger.append_drop(chunks)
        if chunks:
            replica.ledger.sync()
    except OSError as error:
        context.tracker.sync_failed(error, context.clock.monotonic(), chunk_count=len(chunks))
        replica.ledger.broken = True  # nothing may be written until a journal without the claim is durable
        return renew_journal(context, replica)
    return True


def renew_journal(context: Context, replica: ModelReplica) -> bool:
    """Start the journal anew with what is durable; False when that fails too. ``committing`` is held.

    Writers wait until it is there: what they appended to the old file after the look at the books would go with it.
    """
    try:
        start_journal(context, replica)
    except OSError as error:
        context.tracker.refused(error, context.clock.monotonic(), need_bytes=replica.missing_bytes())
        return False
    return True


def start_journal(context: Context, replica: ModelReplica) -> None:
    """See ``renew_journal``; raises OSError."""
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
    """The directory of a model's books and the manifest in it, unless they are there. Raises OSError."""
    if context.disk.kind(layout.envelope(replica.deployment)) is FileKind.FILE:
        return
    replica.has_durable_names = False
    context.disk.make_directory(layout.state(replica.deployment))
    write_new_file(context.disk, layout.envelope(replica.deployment), replica.manifest.envelope)
