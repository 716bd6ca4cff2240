"""Whole models: putting a tree in its place, and deleting.

What lives here: the life of a tree that users see. What does not: chunks, and which version is current
(``current_link``).

Publishing syncs every file with its mode, then every directory from the leaves up; one rename puts the tree at
``NAME/VERSION``; both parents are synced, and the journal records it. A reader sees nothing or the whole tree. Then
``current`` may move. After a crash at any point the next start finds the tree in one of two places.

Deleting begins with a rename into ``.trash``, where nobody sees the tree; removal may follow at the next start. The
tree goes before the books, so that a crash leaves books without a tree, never a tree without books.
"""

from __future__ import annotations

import errno
from collections.abc import Collection
from contextlib import suppress

from gossipd.core.ids import DeploymentId
from gossipd.runtime.ports import NotHeldError
from gossipd.store.disk.disk import Disk, FileKind, opened, parent
from gossipd.store.errors import NotWholeError, VersionTakenError
from gossipd.store.journal.claims import renew_journal
from gossipd.store.journal.recovery import file_mode
from gossipd.store.models import layout
from gossipd.store.models.context import Context
from gossipd.store.models.current_link import links
from gossipd.store.models.name_syncs import SINGLE_SYNCS_MAX, sync_names
from gossipd.store.models.replica import ModelReplica
from gossipd.store.models.showing import show_beginnings


def publish(context: Context, replica: ModelReplica) -> None:
    """Put the tree in its place; does nothing when it is there. Raises NotWholeError, VersionTakenError, OSError;
    NotHeldError: the model was closed meanwhile; FileNotFoundError: a file was removed or cut short (see ``repair``);
    ManifestError ``E_INDEX``: of a part, its index lies.
    """
    with replica.committing:
        if replica.is_closed:
            raise NotHeldError("the deployment is not open here")
        if replica.is_published:
            return
        if not replica.is_whole:
            missing = (replica.part.wanted.bits & ~replica.durable.snapshot().bits).bit_count()
            raise NotWholeError(f"{missing} chunks of {replica.manifest.name} are not durable yet")
        place = replica.place
        if not replica.is_moved:
            show_beginnings(context, replica)
            _sync_tree(context, replica)
            _make_directories(context.disk, parent(place))
            try:
                context.disk.rename(replica.tree, place)
            except FileExistsError:
                raise VersionTakenError(f"{place} exists and is not this model's; move it away") from None
            with replica.lock:
                replica.tree = place
        context.disk.sync_directory(parent(place))
        with suppress(FileNotFoundError):  # it was empty, and somebody removed it
            context.disk.sync_directory(layout.INCOMING)
        with replica.lock:
            replica.published_s = int(context.clock.wall())
        renew_journal(context, replica)


def _sync_tree(context: Context, replica: ModelReplica) -> None:
    disk = context.disk
    placement = replica.placement
    files = list(placement.files())
    for file_index in files:
        path = replica.path(file_index)
        with opened(disk, path, write=True) as descriptor:
            if disk.size(descriptor) != placement.size(file_index):
                raise FileNotFoundError(errno.ENOENT, "cut short", path)
            disk.set_mode(descriptor, file_mode(placement.mode(file_index)))
            if len(files) <= SINGLE_SYNCS_MAX:
                disk.sync_file(descriptor)
    if len(files) > SINGLE_SYNCS_MAX:
        context.whole_sync.run()
    sync_names(context, replica)


def _make_directories(disk: Disk, path: str) -> None:
    """Make ``path`` and its parents, durably. Existing ones are synced too: an earlier sync may have failed."""
    if not path:
        return
    _make_directories(disk, parent(path))
    if (kind := disk.kind(path)) is None:
        disk.make_directory(path)
    elif kind is not FileKind.DIRECTORY:
        raise VersionTakenError(f"{path} is no directory; move it away")
    disk.sync_directory(parent(path))


def trash(disk: Disk, path: str) -> None:
    """Move ``path`` out of sight, durably, in one step. A missing path is ignored."""
    if disk.kind(path) is None:
        return
    taken = set(disk.names(layout.TRASH))
    number = next(number for number in range(len(taken) + 1) if str(number) not in taken)
    disk.rename(path, f"{layout.TRASH}/{number}")
    disk.sync_directory(parent(path))
    disk.sync_directory(layout.TRASH)


def empty_trash(disk: Disk) -> None:
    for name in disk.names(layout.TRASH):
        _delete(disk, f"{layout.TRASH}/{name}")


def _delete(disk: Disk, path: str) -> None:
    if disk.kind(path) is not FileKind.DIRECTORY:
        disk.remove_file(path)
        return
    for name in disk.names(path):
        _delete(disk, f"{path}/{name}")
    disk.remove_directory(path)


def remove_model(
    disk: Disk, deployment: DeploymentId, name: str, place: str, *, published: bool, unfit: Collection[int] = ()
) -> None:  # fmt: skip
    """Delete a model and its books; first ``current`` is pointed elsewhere. ``place``: of its tree. ``unfit``: see
    ``CurrentLink.settle``."""
    if published:
        for link in links(disk, name):
            link.settle(without=place, unfit=unfit)
            link.forget(place)
        trash(disk, place)
        for directory in (name, parent(name)):
            if directory and disk.kind(directory) is FileKind.DIRECTORY and not disk.names(directory):
                disk.remove_directory(directory)
    trash(disk, layout.incoming(deployment))
    trash(disk, layout.state(deployment))
    empty_trash(disk)
