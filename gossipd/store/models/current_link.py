"""The links ``current`` and ``current.part`` of a name, through which users find a version.

What lives here: which versions are in place, and moving the links. What does not: which version is meant
(``version_choice``), and putting a tree in its place (``publishing``).

A link is replaced by a rename, so that users always find one version. What was said is on the disk before the link
moves; after a crash between the two, the next start moves the link.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from msgspec.structs import replace

from gossipd.core.errors import NotFoundError
from gossipd.runtime.ports import StoreWriteError
from gossipd.store.disk.disk import Disk, FileKind, move_aside, read_file, write_new_file
from gossipd.store.models import layout
from gossipd.store.models.version_choice import FILE_BYTES_MAX, VersionChoice


class CurrentLink:
    """``current`` of one name, or ``current.part``. Its callers take turns. All methods raise OSError."""

    def __init__(self, disk: Disk, name: str, *, part: bool = False) -> None:
        self.is_of_parts = part
        self._disk = disk
        self._name = name
        self._path = layout.current_part(name) if part else layout.current(name)
        self._note = layout.rollback_note(name, part=part)

    def shown(self) -> dict[int, str]:
        """The versions in place, whole ones or parts, ascending, with the names of their trees."""
        if self._disk.kind(self._name) is not FileKind.DIRECTORY:
            return {}
        found = {}
        for tree in self._disk.names(self._name):
            number = _version_of(tree, part=self.is_of_parts)
            if number is not None and self._disk.kind(f"{self._name}/{tree}") is FileKind.DIRECTORY:
                found[number] = tree
        return dict(sorted(found.items()))

    def version(self) -> int | None:
        """Where the link leads; None when that is no version."""
        return _version_of(self._target() or "", part=self.is_of_parts)

    def avoided(self) -> frozenset[int]:
        """Versions to which the link does not lead while another is here."""
        return self._read().avoided

    def settle(self, *, without: str = "", unfit: Collection[int] = (), durably: bool = False) -> int | None:
        """Lead the link to the right version. Returns it, or None when there is none. ``without``: the path of a tree
        that is about to go. ``unfit``: versions that are not all here, to which nobody is led where another is.
        ``durably``: sync even an unchanged link, because its last sync may have failed.
        """
        trees = {number: tree for number, tree in self.shown().items() if f"{self._name}/{tree}" != without}
        said = self._read()
        choice = said.still_valid(list(trees))
        if choice != said:
            self._write(choice)
        now = self._target()
        if not trees:
            if now is not None:
                self._disk.remove_file(self._path)
                self._disk.sync_directory(self._name)
            return None
        wanted = choice.pick(list(trees), _version_of(now or "", part=self.is_of_parts), unfit)
        if now != trees[wanted]:
            self._point(trees[wanted])
        elif durably:
            self._disk.sync_directory(self._name)
        return wanted

    def avoid(self, versions: frozenset[int], unfit: Collection[int] = ()) -> None:
        """Lead the link to none of these versions where another is, and to others that were avoided until now. A
        repetition syncs again: an earlier sync may have failed.
        """
        shown = self.shown()
        if not shown:
            return
        said = self._read()
        choice = replace(said, avoided=versions.intersection(shown))
        if choice != said:
            self._write(choice)
        else:
            self._disk.sync_directory(layout.ROLLBACK_NOTES)
        self.settle(unfit=unfit, durably=True)

    def forget(self, place: str) -> None:
        """The tree at this path is about to go for good: forget what was said of its version."""
        tree = place.rpartition("/")[2]
        number = _version_of(tree, part=self.is_of_parts)
        said = self._read()
        if number is not None and (choice := said.without(number, self.shown().keys() - {number})) != said:
            self._write(choice)

    def roll_back(self, unfit: Collection[int] = ()) -> int:
        """Lead the link to the version before, of those that are not avoided, until a newer one than all that are here
        is complete. Returns it. Raises NotFoundError. If the disk refuses, all stays as it was.
        """
        shown = list(self.shown())
        now = self.version()
        if now not in shown:
            now = self.settle(unfit=unfit)
        before, led_to = self._read(), self._target()
        lower = [one for one in shown if now is not None and one < now]
        if not lower:
            raise NotFoundError(f"{self._name} has no complete version before its current one on this host")
        lower = [one for one in lower if one not in before.avoided and one not in unfit]
        if not lower:
            raise NotFoundError(
                f"all versions of {self._name} before its current one are rolled back, trusted no longer, or being "
                "repaired on this host"
            )
        try:
            self._write(replace(before, chosen=lower[-1], above=shown[-1]))
            self.settle(unfit=unfit, durably=True)
        except OSError:
            with suppress(OSError):
                self._write(before)
            with suppress(OSError):
                if led_to is not None and self._target() != led_to:
                    self._point(led_to)
            raise
        return lower[-1]

    def _target(self) -> str | None:
        if self._disk.kind(self._name) is not FileKind.DIRECTORY or self._disk.kind(self._path) is not FileKind.LINK:
            return None
        return self._disk.read_link(self._path)

    def _point(self, tree: str) -> None:
        link = layout.next_current(self._name)
        if self._disk.kind(self._path) is FileKind.DIRECTORY:
            raise StoreWriteError(
                f"{self._path} is a directory in the place of a link; move it away", code="E_VERSION_TAKEN"
            )
        if self._disk.kind(link) is FileKind.DIRECTORY:
            move_aside(self._disk, link)
        elif self._disk.kind(link) is not None:
            self._disk.remove_file(link)
        self._disk.make_link(tree, link)
        self._disk.rename(link, self._path, replace=True)
        self._disk.sync_directory(self._name)

    def _read(self) -> VersionChoice:
        try:
            return VersionChoice.from_bytes(read_file(self._disk, self._note, bytes_max=FILE_BYTES_MAX))
        except (FileNotFoundError, ValueError):
            return VersionChoice()

    def _write(self, choice: VersionChoice) -> None:
        if not choice.is_empty:
            write_new_file(self._disk, self._note, choice.to_bytes())
            return
        with suppress(FileNotFoundError):
            self._disk.remove_file(self._note)
        self._disk.sync_directory(layout.ROLLBACK_NOTES)


def links(disk: Disk, name: str) -> tuple[CurrentLink, CurrentLink]:
    """Of whole versions, and of parts."""
    return CurrentLink(disk, name), CurrentLink(disk, name, part=True)


def is_current(disk: Disk, name: str, version: int) -> bool:
    """Whether ``current`` leads to this version, or ``current.part`` to a part of it."""
    return any(link.version() == version for link in links(disk, name))


def roll_back(disk: Disk, name: str, unfit: Collection[int] = ()) -> int:
    """Lead ``current`` to the complete version before; where only parts are, ``current.part`` to the part before.
    Returns that version. Raises NotFoundError; OSError: nothing has changed.
    """
    link = next((one for one in links(disk, name) if one.shown()), None)
    if link is None:
        raise NotFoundError(f"no complete version of {name} is on this host")
    return link.roll_back(unfit)


def surplus_versions(
    disk: Disk, name: str, *, keep: int, among: Collection[int], before: Collection[int | None] = ()
) -> list[int]:
    """Versions beyond ``keep_versions`` of which all or a part is in place; never a current one, first those that are
    avoided, and last those that were current ``before``, to which a roll back leads. Only of those ``among`` which
    ``current`` was chosen: another may come into place meanwhile, and be the newest."""
    both = links(disk, name)
    shown = sorted({number for link in both for number in link.shown()})
    current = {link.version() for link in both}
    avoided = frozenset[int]().union(*(link.avoided() for link in both))
    spare = [version for version in shown if version not in current and version in among]
    spare.sort(key=lambda version: (version not in avoided, version in before))
    return spare[: max(0, len(shown) - keep)]


def _version_of(tree: str, *, part: bool) -> int | None:
    """The version of the tree with this name, or None: it is none, or the other kind."""
    number, mark, _ = tree.partition(layout.PART)
    is_number = number.isascii() and number.isdigit() and str(int(number)) == number
    return int(number) if is_number and bool(mark) is part else None
