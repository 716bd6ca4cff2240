"""Which part of a model lies here, and the change from one part to another.

What lives here: the note beside the books, and moving a tree from one part to the next. What does not: what a part is
(``parts.part``), fetching what is missing.

The note is ``.manifests/<id>/part``: a line that names its format, then the want. Without it all of the model is, or
will be, there. A part that is shown stays as it is while it holds what is wanted: a narrower want frees nothing. When
more is wanted, the tree goes back to ``.incoming``, is given what it lacks, and is shown again under a name of its own;
a reader's open files stay what they were, for only holes and headers are written. What is not shown yet follows the
want at once.

Order of a change, so that a crash leaves one part or the other: the tree out of sight; beginnings copied to where the
new part has them, synced; the note. The books are opened after that, and believe no chunk that the part leaves out.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from gossipd.core.ids import DeploymentId
from gossipd.manifest.manifest import Manifest
from gossipd.parts.part import Part, choose_part, everything
from gossipd.parts.want import EVERYTHING, WANT_BYTES_MAX, Want, both, read_want
from gossipd.store.disk.disk import Disk, FileKind, opened, parent, read_all, read_file, write_all, write_new_file
from gossipd.store.errors import StoreFormatError
from gossipd.store.models import current_link, layout
from gossipd.store.models.context import Context
from gossipd.store.models.placement import Placement

_HEADER = "gossipd-part 1\n"
_COPY_BYTES = 1 << 20


def part_here(context: Context, manifest: Manifest) -> Part:
    """The part whose books are here; everything without a note. Raises StoreFormatError, OSError, and what
    ``choose_part`` raises."""
    want = read_note(context.disk, manifest.id)
    return everything(manifest) if want is None else choose_part(manifest, want)


def read_note(disk: Disk, deployment: DeploymentId) -> Want | None:
    """The want in the note; None without one. Raises StoreFormatError, WantError, OSError."""
    try:
        text = read_file(disk, layout.part_note(deployment), bytes_max=WANT_BYTES_MAX + len(_HEADER)).decode()
    except FileNotFoundError:
        return None
    except ValueError:
        text = ""
    if not text.startswith(_HEADER):
        raise StoreFormatError(f"{layout.part_note(deployment)} is not the note of a part: remove the version")
    return read_want(text[len(_HEADER) :])


def tree_place(disk: Disk, deployment: DeploymentId, name: str, version: int) -> str:
    """Where users would find what lies here of a version. Raises what ``read_note`` raises."""
    want = read_note(disk, deployment)
    return layout.place_of(name, version, EVERYTHING if want is None else want)


def settle_part(
    context: Context, manifest: Manifest, want: Want, *, frees: bool = False, unfit: Collection[int] = ()
) -> Part:  # fmt: skip
    """Make the books here those of ``want``, and return the part that lies here from now on: at least what is wanted.

    Args:
        frees: what is shown and not wanted any more goes, too.
        unfit: see ``CurrentLink.settle``.
    Raises:
        WantError, ManifestError: see ``choose_part``; nothing was changed.
        OSError: the disk refused; the next attempt goes on.
    """
    disk = context.disk
    wanted, here = choose_part(manifest, want), part_here(context, manifest)
    is_known = disk.kind(layout.envelope(manifest.id)) is FileKind.FILE
    is_shown = is_known and disk.kind(layout.incoming(manifest.id)) is None
    is_shown = is_shown and disk.kind(layout.place(manifest, here.want)) is FileKind.DIRECTORY
    if is_shown and not frees:
        if not wanted.wanted.bits & ~here.wanted.bits:
            return here
        wanted = choose_part(manifest, both(here.want, want))
    if wanted.want == here.want:
        return here
    if is_shown:
        for link in current_link.links(disk, manifest.name):
            link.settle(without=layout.place(manifest, here.want), unfit=unfit)
        disk.rename(layout.place(manifest, here.want), layout.incoming(manifest.id))
        disk.sync_directory(parent(layout.place(manifest, here.want)))
        disk.sync_directory(layout.INCOMING)
    _change(context, manifest, here, wanted)
    return wanted


def _change(context: Context, manifest: Manifest, here: Part, wanted: Part) -> None:
    disk, tree = context.disk, layout.incoming(manifest.id)
    old, new = Placement(manifest, here), Placement(manifest, wanted)
    for path in (layout.state(manifest.id), layout.signed(manifest.id)):
        if disk.kind(path) is None:
            disk.make_directory(path)
    for at in here.files.keys() & wanted.files.keys():
        source, target = old.path(tree, at), new.path(tree, at)
        if source != target and disk.kind(source) is FileKind.FILE:
            disk.rename(source, target, replace=True)
        if at in wanted.kept_bytes and at not in here.kept_bytes:
            _copy(context, target, new.path(tree, new.kept(at)), wanted.kept_bytes[at])
        elif at in here.kept_bytes and at not in wanted.kept_bytes and disk.kind(target) is FileKind.FILE:
            _copy(context, old.path(tree, old.kept(at)), target, here.kept_bytes[at])
    disk.sync_directory(layout.signed(manifest.id))
    disk.sync_directory(layout.MANIFESTS)
    if wanted.is_everything and wanted.want.is_everything:
        with suppress(FileNotFoundError):
            disk.remove_file(layout.part_note(manifest.id))
            disk.sync_directory(layout.state(manifest.id))
    else:
        write_new_file(disk, layout.part_note(manifest.id), (_HEADER + wanted.want.text).encode())
    for at in here.files.keys() - wanted.files.keys():  # no journal is believed on them any more
        with suppress(FileNotFoundError, NotADirectoryError):
            disk.remove_file(old.path(tree, at))


def _copy(context: Context, source: str, target: str, length: int) -> None:
    """The leading bytes of one file into another. A file that is not there has none."""
    disk = context.disk
    if disk.kind(source) is not FileKind.FILE:
        return
    with opened(disk, source) as reading, opened(disk, target, write=True, create=True) as writing:
        for offset in range(0, length, _COPY_BYTES):
            body = memoryview(bytearray(min(_COPY_BYTES, length - offset)))
            if not read_all(disk, reading, body, offset):
                break
            write_all(disk, writing, body, offset)
        disk.sync_data(writing)
