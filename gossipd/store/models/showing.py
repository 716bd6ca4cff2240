"""Writes the headers that users see in files of which only a part is here, beside the signed beginnings.

What lives here: reading the signed beginnings and writing the shown ones. What does not: what they say
(``parts.masked_header``), and when a tree is put in its place (``publishing``).

The signed beginnings are whole when a tree is published, because a part wants each that it shows. A shown beginning is
no part of a chunk, so no digest covers it: it is made again from the signed one whenever its file is, or its chunk has
come again or is read back.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable
from contextlib import suppress

from gossipd.manifest.errors import ManifestError
from gossipd.parts.masked_header import masked_header, masked_weight_map
from gossipd.parts.part import Presence
from gossipd.store.disk.disk import opened, read_all, write_all
from gossipd.store.models.context import Context
from gossipd.store.models.replica import ModelReplica


def show_again(context: Context, replica: ModelReplica, files: Iterable[int]) -> None:
    """As ``show_beginnings``, of those of these files that are there and whose signed beginnings are all here; what the
    index makes impossible was so when the tree was published, and is left. The caller holds ``committing``, or nobody
    knows the replica yet. Raises OSError.
    """
    for file_index in files:
        chunks = replica.placement.chunks_of(replica.placement.kept(file_index))
        if all(chunk in replica.held for chunk in chunks):
            with suppress(FileNotFoundError, ManifestError):
                show_beginning(context, replica, file_index)


def show_beginnings(context: Context, replica: ModelReplica) -> None:
    """Write what users see of each file whose signed beginning is kept apart.

    Raises OSError; ManifestError ``E_INDEX``: a header is not what the index says, and nothing may be shown."""
    for file_index in replica.part.kept_bytes:
        show_beginning(context, replica, file_index)


def show_beginnings_in(context: Context, replica: ModelReplica, chunk: int) -> None:
    """The signed beginnings in this chunk of a published tree are right: what is shown instead of each must be, too.
    Takes ``committing``. Raises OSError; FileNotFoundError: a file was removed (see ``repair``)."""
    files = replica.placement.beginnings_in(chunk) if replica.is_published else []
    if not files:
        return
    with replica.committing:
        if replica.is_closed:
            return
        show_again(context, replica, files)
        for file_index in files:
            if context.disk.kind(path := replica.path(file_index)) is None:
                raise FileNotFoundError(errno.ENOENT, "removed", path)


def show_beginning(context: Context, replica: ModelReplica, file_index: int) -> None:
    """As ``show_beginnings``, of one file. A file that shows it already is not written."""
    body = _shown(replica, file_index, _beginning(context, replica, replica.placement.kept(file_index), file_index))
    if _beginning(context, replica, file_index, file_index) == body:
        return
    with opened(context.disk, replica.path(file_index), write=True) as descriptor:
        write_all(context.disk, descriptor, memoryview(body), 0)
        context.disk.sync_data(descriptor)


def _beginning(context: Context, replica: ModelReplica, stored_index: int, file_index: int) -> bytes:
    body = bytearray(replica.part.kept_bytes[file_index])
    with opened(context.disk, replica.path(stored_index)) as descriptor:
        read_all(context.disk, descriptor, memoryview(body), 0)
    return bytes(body)


def _shown(replica: ModelReplica, file_index: int, signed: bytes) -> bytes:
    part, files = replica.part, replica.manifest.files
    if part.files[file_index] is Presence.MASKED:
        return masked_header(signed, part.index[file_index], part.tensors[file_index])
    path = files[file_index].path
    if not path.endswith(".json") or part.is_everything:
        return signed
    present: dict[str, Collection[str] | None] = {
        files[at].path: part.tensors.get(at) for at, presence in part.files.items() if presence is not Presence.HOLES
    }
    return masked_weight_map(signed, path[: path.rfind("/") + 1], present)
