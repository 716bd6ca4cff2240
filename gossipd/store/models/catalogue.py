"""What is in a store's directory before any model is opened.

What lives here: preparing the directory, and listing models by the headers of their journals. What does not: opening
models, which needs their manifests and the trusted keys.
"""

from __future__ import annotations

import errno
from contextlib import suppress

from msgspec import Struct

from gossipd.core.ids import DeploymentId
from gossipd.parts.want import WantError
from gossipd.store.disk.disk import Disk, FileKind, opened, read_all, write_new_file
from gossipd.store.errors import StoreFormatError, StoreLockedError, StorePathError
from gossipd.store.journal.journal import replay
from gossipd.store.models import layout
from gossipd.store.models.part_note import tree_place

_MARKER = "gossipd-store 1\n"
_MARKER_BYTES_MAX = 256
_MARKER_PREFIX = "gossipd-store "
_HEADER_BYTES = 4096  # a name has at most 257 bytes


class StoredModel(Struct, frozen=True):
    """A model with books in the store. ``name`` is empty when its journal was lost; opening the model tells it."""

    deployment: DeploymentId
    name: str = ""
    version: int = -1
    is_published: bool = False
    place: str = ""
    """Where its tree is once it is published: a whole version or a part."""


def prepare_root(disk: Disk) -> int:
    """Lock the store, make what is missing, return the lock's descriptor. Raises StoreErrors and OSError."""
    try:
        lock = disk.lock(layout.LOCK)
    except BlockingIOError:
        raise StoreLockedError("another gossipd uses this store; stop it first") from None
    try:
        _check_marker(disk)
        missing = [path for path in layout.DIRECTORIES if disk.kind(path) is not FileKind.DIRECTORY]
        for path in missing:
            if disk.kind(path) is not None:
                raise StorePathError(f"{path} is not a directory of the store; remove it")
            disk.make_directory(path)
        if missing:
            disk.sync_directory("")
    except (OSError, StoreFormatError, StorePathError):
        disk.close(lock)
        raise
    return lock


def _check_marker(disk: Disk) -> None:
    text = ""
    if (kind := disk.kind(layout.MARKER)) is FileKind.FILE:
        with opened(disk, layout.MARKER) as descriptor:
            body = bytearray(min(_MARKER_BYTES_MAX, disk.size(descriptor)))
            read_all(disk, descriptor, memoryview(body), 0)
        text = body.decode(errors="replace")
    elif kind is not None:
        text = "no file"
    if not text.strip("\0"):  # as a power failure leaves it; what is here is in the models' books
        write_new_file(disk, layout.MARKER, _MARKER.encode())
        return
    if text == _MARKER:
        return
    form = text.removeprefix(_MARKER_PREFIX).removesuffix("\n")[:16]
    if text.startswith(_MARKER_PREFIX) and form.isascii() and form.isdigit() and form != "1":
        raise StoreFormatError(f"the store is of format {form}, supported 1", code="E_STORE_VERSION")
    raise StoreFormatError(
        f"{layout.MARKER} is not a gossipd store's: {text[:32]!a}; if the models here are gossipd's, "
        "remove it: the next start writes it again and loses no chunk"
    )


def list_models(disk: Disk) -> list[StoredModel]:
    """Every model with books here, whole or not, in no particular order."""
    found = []
    for entry in disk.names(layout.MANIFESTS):
        deployment = _deployment(entry)
        if deployment is not None and _kind_of_envelope(disk, deployment) is FileKind.FILE:
            found.append(_describe(disk, deployment))
    return found


def _kind_of_envelope(disk: Disk, deployment: DeploymentId) -> FileKind | None:
    """LINK also where its directory is one: opening that model says so, and the others are there all the same."""
    try:
        return disk.kind(layout.envelope(deployment))
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return FileKind.LINK


def _deployment(entry: str) -> DeploymentId | None:
    try:
        identity = bytes.fromhex(entry)
    except ValueError:
        return None
    return DeploymentId(identity) if len(identity) == 32 and identity.hex() == entry else None


def forsaken_trees(disk: Disk) -> list[str]:
    """Trees without books and without a written byte: they hold space that nothing else would free. A crash between
    making a tree and its books leaves one. A tree with bytes lost its books some other way and stays: opening its model
    hashes it, and what is right is not fetched again.
    """
    found = []
    for entry in disk.names(layout.INCOMING):
        deployment = _deployment(entry)
        if deployment is None or _kind_of_envelope(disk, deployment) is not None:
            continue
        if _is_unwritten(disk, layout.incoming(deployment)):
            found.append(layout.incoming(deployment))
    return found


def _is_unwritten(disk: Disk, path: str) -> bool:
    kind = disk.kind(path)
    if kind is FileKind.DIRECTORY:
        return all(_is_unwritten(disk, f"{path}/{name}") for name in disk.names(path))
    if kind is not FileKind.FILE:
        return False  # not ours
    with opened(disk, path) as descriptor:
        return disk.is_unwritten(descriptor)


def _describe(disk: Disk, deployment: DeploymentId) -> StoredModel:
    header = None
    # A model that cannot be read must not hide the others; opening it reports why.
    with suppress(StoreFormatError, OSError), opened(disk, layout.journal(deployment)) as descriptor:
        body = bytearray(min(_HEADER_BYTES, disk.size(descriptor)))
        read_all(disk, descriptor, memoryview(body), 0)
        header = replay(bytes(body), deployment).header
    if header is None:
        return StoredModel(deployment)
    is_incoming = disk.kind(layout.incoming(deployment)) is not None
    place = layout.version(header.name, header.version)
    with suppress(StoreFormatError, WantError, OSError):
        place = tree_place(disk, deployment, header.name, header.version)
    is_published = False
    with suppress(OSError):  # a link stands for one of its directories
        is_published = not is_incoming and disk.kind(place) is FileKind.DIRECTORY
    return StoredModel(deployment, header.name, header.version, is_published, place)
