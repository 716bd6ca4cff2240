"""The names that lead to a model's files: durable before anything in the files is claimed.

A file that is synced and whose name is not is gone after a power cut, and with it every chunk that the journal claims
of it. That a name is there says nothing: it may have been made by a life that was killed before it could sync the
directory, or the sync may have failed. So each life syncs all of a model's directories once, whatever it finds, before
its journal is started; and again when files were made anew (``repair``). A clean directory costs nothing.
"""

from __future__ import annotations

from contextlib import suppress

from gossipd.store.disk.disk import parent
from gossipd.store.models import layout
from gossipd.store.models.context import Context
from gossipd.store.models.replica import ModelReplica

SINGLE_SYNCS_MAX = 256  # each costs a flush of the device, about a millisecond, even when there is nothing to write


def sync_names(context: Context, replica: ModelReplica) -> None:
    """Raises OSError; then it is tried again before the journal is started, or before the next claim.

    A directory that is gone has no names to keep: whoever misses the files makes them again.
    """
    directories = {layout.MANIFESTS}
    for file_index in range(len(replica.manifest.files)):
        directory = parent(replica.path(file_index))
        while directory not in directories:
            directories.add(directory)
            directory = parent(directory)  # ends at "", the store's own, which is its own parent
    if len(directories) > SINGLE_SYNCS_MAX:
        context.whole_sync.run()
    else:
        for directory in sorted(directories, reverse=True):
            with suppress(FileNotFoundError, NotADirectoryError):
                context.disk.sync_directory(directory)
    replica.has_durable_names = True
