"""Whole models: putting a tree in its place, choosing the current version, deleting.

What lives here: every change of what users see. What does not: chunks.

Publishing syncs every file with its mode, then every directory from the leaves up; one rename puts the tree at
``NAME/VERSION``; both parents are synced, and the journal records it. A reader sees nothing or the whole tree. Then a
rename replaces the link ``current``. After a crash at any point the next start finds the tree in one of two places.

The current version is the highest complete one, unless a rollback has left a note that names a lower one. The note is
deleted when a version is complete that is higher than all versions complete at the rollback: a rollback judges only the
versions that exist. The note of a rollback in the whole cluster says so in a line more, and in another which versions
here are rolled back: it stays while one of them is here, so that ``current`` leads to none of them when the chosen one
goes, and until that is taken back. The same holds for parts of versions, ``current.part`` and a note of its own.

Deleting begins with a rename into ``.trash``, where nobody sees the tree; removal may follow at the next start. The
tree goes before the books, so that a crash leaves books without a tree, never a tree without books.
"""

from __future__ import annotations

import errno
from collections.abc import Collection
from contextlib import suppress

from gossipd.core.errors import NotFoundError
from gossipd.core.ids import DeploymentId
from gossipd.runtime.ports import NotHeldError, StoreWriteError
from gossipd.store.disk.disk import Disk, FileKind, move_aside, opened, parent, read_file, write_new_file
from gossipd.store.errors import NotWholeError, VersionTakenError
from gossipd.store.journal.claims import renew_journal
from gossipd.store.journal.recovery import file_mode
from gossipd.store.models import layout
from gossipd.store.models.context import Context
from gossipd.store.models.name_syncs import SINGLE_SYNCS_MAX, sync_names
from gossipd.store.models.replica import ModelReplica
from gossipd.store.models.showing import show_beginnings

_NOTE_BYTES_MAX = 16_384
_NOTE_VERSIONS_MAX = 500  # of 20 digits each
_NOTE_HEADER = "gossipd-pin 1"
_NOTE_OF_CLUSTER = "cluster"
_NOTE_WITHOUT = "without "


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


def complete_versions(disk: Disk, name: str) -> list[int]:
    """Versions whose trees are in place, ascending."""
    if disk.kind(name) is not FileKind.DIRECTORY:
        return []
    found = [entry for entry in disk.names(name) if entry.isascii() and entry.isdigit() and str(int(entry)) == entry]
    return sorted(int(entry) for entry in found if disk.kind(f"{name}/{entry}") is FileKind.DIRECTORY)


def part_versions(disk: Disk, name: str) -> dict[int, str]:
    """Versions of which a part is in place, ascending, with the names of their trees."""
    if disk.kind(name) is not FileKind.DIRECTORY:
        return {}
    found = {}
    for entry in disk.names(name):
        number, mark, _ = entry.partition(layout.PART)
        if mark and number.isascii() and number.isdigit() and disk.kind(f"{name}/{entry}") is FileKind.DIRECTORY:
            found[int(number)] = entry
    return dict(sorted(found.items()))


def is_current(disk: Disk, name: str, version: int) -> bool:
    """Whether ``current`` leads to this version, or ``current.part`` to a part of it."""
    return version in (current_version(disk, name), current_part_version(disk, name))


def settle_current_part(disk: Disk, name: str, *, without: str = "", durably: bool = False) -> int | None:
    """``settle_current`` for ``current.part``. ``without``: a tree that is about to go."""
    trees = {one: tree for one, tree in part_versions(disk, name).items() if f"{name}/{tree}" != without}
    link = layout.current_part(name)
    now = _target(disk, name, link)
    if not trees:
        if now is not None:
            disk.remove_file(link)
            disk.sync_directory(name)
        return None
    wanted = _chosen(disk, name, list(trees), part=True)
    if now != trees[wanted]:
        _point(disk, name, trees[wanted], link)
    elif durably:
        disk.sync_directory(name)
    return wanted


def current_version(disk: Disk, name: str) -> int | None:
    """The target of ``current``, None when it is not a version."""
    text = _target(disk, name, layout.current(name)) or ""
    return int(text) if text.isascii() and text.isdigit() else None


def current_part_version(disk: Disk, name: str) -> int | None:
    """The version of which ``current.part`` leads to a part, None when it leads to none."""
    number, mark, _ = (_target(disk, name, layout.current_part(name)) or "").partition(layout.PART)
    return int(number) if mark and number.isascii() and number.isdigit() else None


def _target(disk: Disk, name: str, link: str) -> str | None:
    if disk.kind(name) is not FileKind.DIRECTORY or disk.kind(link) is not FileKind.LINK:
        return None
    return disk.read_link(link)


def settle_current(disk: Disk, name: str, *, without: int | None = None, durably: bool = False) -> int | None:
    """Make ``current`` point to the right version. Returns it, or None when there is none. ``without``: a version that
    is about to be deleted. ``durably``: sync even an unchanged link, because its last sync may have failed.
    """
    complete = [version for version in complete_versions(disk, name) if version != without]
    if not complete:
        if disk.kind(name) is FileKind.DIRECTORY and disk.kind(layout.current(name)) is FileKind.LINK:
            disk.remove_file(layout.current(name))
            disk.sync_directory(name)
        return None
    wanted = _chosen(disk, name, complete)
    if current_version(disk, name) != wanted:
        _point(disk, name, str(wanted), layout.current(name))
    elif durably:
        disk.sync_directory(name)
    return wanted


def _chosen(disk: Disk, name: str, shown: list[int], *, part: bool = False) -> int:
    """Which of these versions, ascending, is to be the current one. A note that says nothing of them goes."""
    lines = _note_lines(disk, name, part=part)
    if lines is None:
        return shown[-1]
    without = _without(lines)
    good = [version for version in shown if version not in without]
    chosen = int(lines[1])
    if chosen in shown and shown[-1] <= int(lines[2]) and (chosen in good or not good):
        return chosen
    if without.isdisjoint(shown):
        _remove_note(disk, name, part=part)
    return (good or shown)[-1]


def _point(disk: Disk, name: str, text: str, path: str) -> None:
    link = layout.next_current(name)
    if disk.kind(path) is FileKind.DIRECTORY:
        raise StoreWriteError(f"{path} is a directory in the place of a link; move it away", code="E_VERSION_TAKEN")
    if disk.kind(link) is FileKind.DIRECTORY:
        move_aside(disk, link)
    elif disk.kind(link) is not None:
        disk.remove_file(link)
    disk.make_link(text, link)
    disk.rename(link, path, replace=True)
    disk.sync_directory(name)


def rolled_back_to(disk: Disk, name: str, *, part: bool = False) -> tuple[int, int] | None:
    """The version that a rollback chose, and the highest version that was complete then."""
    lines = _note_lines(disk, name, part=part)
    return None if lines is None else (int(lines[1]), int(lines[2]))


def _note_lines(disk: Disk, name: str, *, part: bool) -> list[str] | None:
    try:
        body = read_file(disk, layout.rollback_note(name, part=part), bytes_max=_NOTE_BYTES_MAX)
        lines = body.decode().split("\n")
    except (FileNotFoundError, ValueError):
        return None
    if len(lines) < 3 or lines[0] != _NOTE_HEADER or not (lines[1].isdigit() and lines[2].isdigit()):
        return None
    return lines


def _without(lines: list[str]) -> frozenset[int]:
    """The versions that were rolled back in the whole cluster, by a note."""
    found = next((line for line in lines[3:] if line.startswith(_NOTE_WITHOUT)), "")
    return frozenset(int(word) for word in found.removeprefix(_NOTE_WITHOUT).split() if word.isdigit())


def _remove_note(disk: Disk, name: str, *, part: bool) -> None:
    disk.remove_file(layout.rollback_note(name, part=part))
    disk.sync_directory(layout.ROLLBACK_NOTES)


def follow_roll_backs(disk: Disk, name: str, rolled_back: frozenset[int], restored: int | None) -> None:
    """Have ``current`` lead to none of ``rolled_back`` where an older version is complete; and to ``restored`` again,
    where a roll back in the whole cluster had led it away. The same of ``current.part``. A repetition syncs again: an
    earlier sync may have failed.
    """
    for part in (False, True):
        _follow(disk, name, rolled_back, restored, part=part)


def _follow(disk: Disk, name: str, rolled_back: frozenset[int], restored: int | None, *, part: bool) -> None:
    shown = list(part_versions(disk, name)) if part else complete_versions(disk, name)
    settle = settle_current_part if part else settle_current
    lines = _note_lines(disk, name, part=part)
    if restored is not None and restored in shown:
        is_meant = lines is not None and (int(lines[1]) < restored or restored in _without(lines))
        if lines is not None and is_meant and _NOTE_OF_CLUSTER in lines[3:]:
            disk.remove_file(layout.rollback_note(name, part=part))
            lines = None
        disk.sync_directory(layout.ROLLBACK_NOTES)
        settle(disk, name, durably=True)
    now = current_part_version(disk, name) if part else current_version(disk, name)
    good = [version for version in shown if version not in rolled_back]
    older = [version for version in good if now is not None and version < now]
    without = rolled_back.intersection(shown)
    is_of_cluster = lines is not None and _NOTE_OF_CLUSTER in lines[3:]
    if now in rolled_back and good:
        _write_note(disk, name, (older or good)[-1], shown[-1], without=without, part=part)
    elif lines is not None and is_of_cluster and without and without != _without(lines):
        _write_note(disk, name, int(lines[1]), int(lines[2]), without=without, part=part)
    elif lines is None and without and now == shown[-1] and now not in without:
        _write_note(disk, name, now, now, without=without, part=part)
    if now is not None and rolled_back:
        settle(disk, name, durably=True)


def roll_back(disk: Disk, name: str) -> int:
    """Point ``current`` at the complete version before it; where only parts are, ``current.part`` at the part before.
    Returns that version; raises NotFoundError when there is none. If the disk refuses, the old note or none stays, and
    the link too.
    """
    complete = complete_versions(disk, name)
    part = not complete
    shown = list(part_versions(disk, name)) if part else complete
    if not shown:
        raise NotFoundError(f"no complete version of {name} is on this host")
    settle = settle_current_part if part else settle_current
    now = current_part_version(disk, name) if part else current_version(disk, name)
    if now not in shown:
        now = settle(disk, name)
    lower = [version for version in shown if now is not None and version < now]
    if not lower:
        raise NotFoundError(f"{name} has no complete version before its current one on this host")
    link = layout.current_part(name) if part else layout.current(name)
    before, led_to = rolled_back_to(disk, name, part=part), _target(disk, name, link)
    try:
        _write_note(disk, name, lower[-1], shown[-1], part=part)
        settle(disk, name, durably=True)
    except OSError:
        with suppress(OSError):
            if before is None:
                disk.remove_file(layout.rollback_note(name, part=part))
                disk.sync_directory(layout.ROLLBACK_NOTES)
            else:
                _write_note(disk, name, *before, part=part)
        with suppress(OSError):
            if led_to is not None and _target(disk, name, link) != led_to:
                _point(disk, name, led_to, link)
        raise
    return lower[-1]


def _write_note(
    disk: Disk, name: str, version: int, above: int, *, part: bool, without: Collection[int] = ()
) -> None:  # fmt: skip
    """``without``: the versions that are rolled back in the whole cluster; of many the highest are kept."""
    text = f"{_NOTE_HEADER}\n{version}\n{above}\n"
    if without:
        named = sorted(without)[-_NOTE_VERSIONS_MAX:]
        text += f"{_NOTE_OF_CLUSTER}\n{_NOTE_WITHOUT}{' '.join(map(str, named))}\n"
    write_new_file(disk, layout.rollback_note(name, part=part), text.encode())


def surplus_versions(disk: Disk, name: str, *, keep: int, before: int | None = None) -> list[int]:
    """Versions beyond ``keep_versions`` of which all or a part is in place; never a current one, and last the one that
    was current ``before``, to which a roll back leads."""
    shown = sorted({*complete_versions(disk, name), *part_versions(disk, name)})
    current = {current_version(disk, name), current_part_version(disk, name)}
    spare = [version for version in shown if version not in current]
    spare.sort(key=lambda version: version == before)
    return spare[: max(0, len(shown) - keep)]


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


def remove_model(disk: Disk, deployment: DeploymentId, name: str, place: str, *, published: bool) -> None:
    """Delete a model and its books; first ``current`` is pointed elsewhere. ``place``: of its tree."""
    if published:
        whole = place.rpartition("/")[2]
        settle_current(disk, name, without=int(whole) if whole.isdigit() else None)
        settle_current_part(disk, name, without=place)
        trash(disk, place)
        for directory in (name, parent(name)):
            if directory and disk.kind(directory) is FileKind.DIRECTORY and not disk.names(directory):
                disk.remove_directory(directory)
    trash(disk, layout.incoming(deployment))
    trash(disk, layout.state(deployment))
    empty_trash(disk)
