"""Making removed or shortened files of a model again.

What lives here: the repair of a tree. What does not: detection (``scrub``, ``publishing``, ``chunk_store``), fetching.

First the claims on the lost chunks are taken back durably: the new files have the old lengths and are full of zeros, so
the next start would believe a journal that still claims them. Then the files are made in place, with the headers that
users see of a part, and only then is ChunkLost emitted, so that an arriving chunk has a file to go to. Until then a
reader of a published model finds zeros.
"""

from __future__ import annotations

from collections.abc import Iterable

from gossipd.store.journal.claims import take_claims_back
from gossipd.store.journal.recovery import beyond_the_end, make_directories, make_files, wrong_sizes
from gossipd.store.models.context import Context
from gossipd.store.models.name_syncs import sync_names
from gossipd.store.models.replica import ModelReplica
from gossipd.store.models.showing import show_again, show_beginnings_in


def mend_tree(context: Context, replica: ModelReplica) -> list[int]:
    """Make missing files of the model again. Returns the chunks that were lost with them. Raises OSError. Files of a
    removed model stay missing, else it would come back as a version full of zeros.
    """
    with replica.committing:
        if replica.is_closed:
            return []
        wrong = wrong_sizes(context, replica)
        if not wrong:
            return []
        for file_index in wrong:
            context.handles.detach(replica.deployment, file_index)
        with replica.lock:  # writes into the old files do not count when they end
            replica.mended += 1
    gone = sorted(beyond_the_end(replica, wrong))
    take_claims_back(context, replica, gone, then=lambda: _make_again(context, replica, wrong))
    return gone


def mend_beginnings(context: Context, replica: ModelReplica, chunk: int) -> None:
    """This chunk is right: have users see its beginnings, and make files again that were removed since. Where the disk
    refuses, the chunk is here all the same, and a later look at it tries again.
    """
    try:
        try:
            show_beginnings_in(context, replica, chunk)
        except FileNotFoundError:
            mend_tree(context, replica)
    except OSError as error:
        context.tracker.refused(error, context.clock.monotonic(), need_bytes=0)


def _make_again(context: Context, replica: ModelReplica, wrong: Iterable[int]) -> None:
    replica.has_durable_names = False
    make_directories(context, replica)
    make_files(context, replica, wrong)
    sync_names(context, replica)
    if replica.is_published:
        show_again(context, replica, [one for one in wrong if one in replica.part.kept_bytes])
