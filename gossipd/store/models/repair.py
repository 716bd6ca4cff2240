"""Files that were removed or cut under us: made again, and what they held is wanted again.

What lives here: the repair of a tree. What does not: finding out (``scrub``, ``publishing`` and ``chunk_store`` run
into it), and the bytes, which are fetched like any others.

The claims on what they held are taken back first, durably: the new files are as long as the old ones and full of
zeros, and a journal that still claimed them would be believed by the next start. Then the files are made again in
place, and only then is anything said to be lost, so that a chunk that arrives has somewhere to go. In a published model
a reader finds zeros there until then; it had found nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from gossipd.store.journal.claims import drop
from gossipd.store.journal.recovery import beyond_the_end, make_directories, make_files, wrong_sizes
from gossipd.store.models.context import Context
from gossipd.store.models.names import sync_names
from gossipd.store.models.replica import ModelReplica


def mend_tree(context: Context, replica: ModelReplica) -> list[int]:
    """Make what is missing of the model's files; chunks that were in it are dropped and returned. Raises OSError.

    Files that are missing because the model was removed stay so: it would come back as a version full of zeros.
    """
    with replica.committing:
        if replica.is_closed:
            return []
        wrong = wrong_sizes(context, replica)
        if not wrong:
            return []
        for file_index in wrong:
            context.handles.detach(replica.deployment, file_index)
        with replica.lock:  # what is being written into the old files is not held when it ends
            replica.mended += 1
    gone = sorted(beyond_the_end(replica.manifest, wrong))
    drop(context, replica, gone, then=lambda: _make_again(context, replica, wrong))
    return gone


def _make_again(context: Context, replica: ModelReplica, wrong: Iterable[int]) -> None:
    replica.has_durable_names = False
    make_directories(context, replica)
    make_files(context, replica, wrong)
    sync_names(context, replica)
