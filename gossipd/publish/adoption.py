"""The files of a directory that a daemon takes as its copy of a version.

What lives here: which files they are, whose they must be, and reading them unchanged. What does not: copying and
comparing (``store.models.reuse``), and deciding who may publish (``permits``).

The daemon reads with its own rights, on behalf of another user. So it takes only files that this user owns: a link to a
file that only the daemon may read would else be published. A file is known by its inode from the walk on, so what is
exchanged afterwards is noticed, not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gossipd.core.errors import ExitCode, LocalError
from gossipd.manifest.errors import shown
from gossipd.manifest.manifest import Manifest
from gossipd.publish.errors import PublishError, TreeChangedError, blaming_the_caller
from gossipd.publish.file_reading import open_found
from gossipd.publish.selection import EVERYTHING, Selection
from gossipd.publish.tree import FoundFile, find_files

ANY_OWNER = -1


class NotOwnerError(LocalError):
    """A file belongs to another user than the one who publishes. Fault: the caller. State: nothing was read. Retry:
    with files of its own."""

    code = "E_NOT_OWNER"
    exit_code = ExitCode.TRUST


def check_owner(files: Sequence[FoundFile], user: int) -> None:
    """Raises NotOwnerError, which names the file; TreeChangedError when one was exchanged meanwhile."""
    if user == ANY_OWNER:
        return
    for file in files:
        with opened(file) as descriptor:
            if os.fstat(descriptor).st_uid != user:
                raise NotOwnerError(f"{shown(file.path)} belongs to another user; publish files of your own")


@blaming_the_caller()
def files_of(directory: Path, selection: Selection, user: int) -> list[FoundFile]:
    """The selected files, all of that user. Raises PublishError, NotOwnerError."""
    found = find_files(directory, selection)
    check_owner(found, user)
    return found


class AdoptableFiles:
    """A manifest's files as they lie in a directory: a ``PieceSource`` for the store."""

    def __init__(self, directory: Path, manifest: Manifest, user: int) -> None:
        """Raises TreeChangedError when a file is missing or has another size; NotOwnerError, PublishError."""
        found = {file.path: file for file in find_files(directory, EVERYTHING)}
        self._files = [_as_promised(found.get(entry.path), entry.path, entry.size) for entry in manifest.files]
        check_owner(self._files, user)

    @contextmanager
    def opened(self, file_index: int) -> Iterator[int]:
        with opened(self._files[file_index]) as descriptor:
            yield descriptor

    def first(self) -> FoundFile | None:
        """Some file with content."""
        return next((file for file in self._files if file.size), None)

    @property
    def files_here(self) -> frozenset[int] | None:
        """None: all of them."""
        return None

    def check_still(self) -> None:
        """Raises TreeChangedError, which names a file that was changed since the walk."""
        for file in self._files:
            with opened(file):
                pass


class AdoptableShards(AdoptableFiles):
    """Those of a manifest's files that lie in a directory; the others are on other hosts."""

    def __init__(self, directory: Path, manifest: Manifest, user: int) -> None:
        """Raises TreeChangedError when one of them has another size, or there is none; NotOwnerError, PublishError."""
        found = {file.path: file for file in find_files(directory, EVERYTHING)}
        self._here = {
            index: _as_promised(found[entry.path], entry.path, entry.size)
            for index, entry in enumerate(manifest.files)
            if entry.path in found
        }
        if not self._here:
            raise PublishError(f"no file of {manifest.name} is in {shown(str(directory))}", code="E_SOURCE_CHANGED")
        self._files = list(self._here.values())
        check_owner(self._files, user)

    @property
    def files_here(self) -> frozenset[int]:
        """The places in the manifest of the files that are here."""
        return frozenset(self._here)

    @contextmanager
    def opened(self, file_index: int) -> Iterator[int]:
        with opened(self._here[file_index]) as descriptor:
            yield descriptor


@contextmanager
def opened(file: FoundFile) -> Iterator[int]:
    """A descriptor of the very file that was found. Raises TreeChangedError when it is another or was changed."""
    try:
        descriptor = open_found(file)
    except OSError as error:
        raise _changed(file.path) from error
    try:
        if not file.is_still(os.fstat(descriptor)):
            raise _changed(file.path)
        yield descriptor
    finally:
        os.close(descriptor)


def _as_promised(file: FoundFile | None, path: str, size: int) -> FoundFile:
    if file is None:
        raise PublishError(f"{shown(path)} is in the manifest and not in the directory", code="E_SOURCE_CHANGED")
    if file.size != size:
        raise PublishError(f"{shown(path)} has {file.size} bytes, the manifest says {size}", code="E_SOURCE_CHANGED")
    return file


def _changed(path: str) -> TreeChangedError:
    return TreeChangedError(f"{shown(path)} changed while it was published; publish when nobody writes to it")
