"""Files that were removed or cut under us: made again, and what they held is wanted again.

What lives here: the repair of a tree. What does not: finding out (``scrub``, ``publishing`` and ``chunk_store`` run
into it), and the bytes, which are fetched like any others.

The files are made again in place, at their size, before anything is said to be lost, so that a chunk that arrives has
somewhere to go. In a published model a reader finds zeros there until then; it had found nothing.
"""

from __future__ import annotations

from gossipd.store.recovery import beyond_the_end, make_tree
from gossipd.store.replica import Replica
from gossipd.store.windows import Context, drop


def mend_tree(context: Context, replica: Replica) -> None:
    """Make what is missing of the model's files; chunks that were in it are dropped. Raises OSError.

    Files that are missing because the model was removed stay so: it would come back as a version full of zeros.
    """
    with replica.committing:
        if replica.is_closed:
            return
        tree = make_tree(context, replica)
        for file_index in tree.damaged:
            context.handles.detach(replica.deployment, file_index)
        if tree.damaged:
            with replica.lock:
                replica.mended += 1
    drop(context, replica, sorted(beyond_the_end(replica.manifest, tree.damaged)))
