"""Directory syncs: the names of a model's files become durable before anything in the files is claimed.

A synced file without a durable name is gone after a power cut, with every chunk that the journal claims of it. A name
that exists proves nothing: an earlier run may have been killed before its sync of the directory, or that sync failed.
So each run syncs all directories of a model once before it starts the journal, and again when files were made again
(``repair``). Syncing a clean directory costs nothing.
"""

from __future__ import annotations

from contextlib import suppress

from gossipd.store.models import layout
from gossipd.store.models.context import Context
from gossipd.store.models.replica import ModelReplica

SINGLE_SYNCS_MAX = 256  # each flushes the device, even when nothing is dirty


def sync_names(context: Context, replica: ModelReplica) -> None:
    """Raises OSError; callers try again before they start the journal or claim the next window. A directory that is
    gone is skipped: the code that misses its files makes them again.
    """
    directories = {layout.MANIFESTS} | replica.directories()
    if len(directories) > SINGLE_SYNCS_MAX:
        context.whole_sync.run()
    else:
        for directory in sorted(directories, reverse=True):
            with suppress(FileNotFoundError, NotADirectoryError):
                context.disk.sync_directory(directory)
    replica.has_durable_names = True
