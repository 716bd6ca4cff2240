"""The files of a model on a local disk, as they were at one moment.

What lives here: walking, and refusing files that a manifest cannot hold. What does not: reading (``file_reading``).

Only regular files count. A symbolic link is followed to a file inside the tree, and from a snapshot in a Hugging Face
cache (``models--ORG--NAME/snapshots/REVISION``) to a file in the ``blobs`` of that repository. Every other link is
refused: following it would publish bytes from elsewhere, skipping it would publish half a model. What a link leads to
is settled here, once; the reader opens that file beneath its root without following any link, so a link that is changed
meanwhile leads to no other file. Only the path on the command line may go through links.

Modes become 0644 or, with any execute bit, 0755, as in git, because a publisher's umask is not part of a model.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from gossipd.manifest.errors import ManifestError, shown
from gossipd.manifest.paths import DEPTH_MAX
from gossipd.manifest.payload import FILES_MAX
from gossipd.publish.errors import NothingSelectedError, PublishError
from gossipd.publish.selection import Selection, pattern_for

_KINDS = (
    (stat.S_ISDIR, "a symbolic link to a directory; copy that (cp -rL)"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISCHR, "a character device"),
)
_REPOSITORIES = ("models--", "datasets--", "spaces--")


class FoundFile(Struct, frozen=True):
    """One file; equal as long as it shows no sign of a change."""

    path: str
    """Relative to the model's directory, with ``/``."""
    root: str
    location: str
    """Where it is opened: relative to the directory ``root``, without links."""
    size: int
    mode: int
    mtime_ns: int
    inode: tuple[int, int]
    """Device and number; files that are the same have the same."""

    def is_still(self, now: os.stat_result) -> bool:
        """Whether ``now`` describes the same file with the same content."""
        return (now.st_size, now.st_mtime_ns, (now.st_dev, now.st_ino)) == (self.size, self.mtime_ns, self.inode)


def find_files(source: Path, selection: Selection, left_out: Counter[str] | None = None) -> list[FoundFile]:
    """The file ``source``, or the selected files below the directory ``source``, in order of path. ``left_out``: counts
    what only the default patterns exclude, by pattern.

    Raises:
        PublishError: ``E_SOURCE_READ`` when something cannot be read, ``E_FILE_TYPE``.
        NothingSelectedError: there is none.
        ManifestError: ``E_LIMIT`` beyond 100,000 files, ``E_PATH_UNICODE`` for names that are not UTF-8.
    """
    try:
        status = source.stat()
        real = Path(os.path.realpath(source))
        if stat.S_ISREG(status.st_mode):
            return [_found(source.name, real.parent, real.name, status)]
        if not stat.S_ISDIR(status.st_mode):
            raise PublishError(f"{shown(str(source))} is neither a file nor a directory", code="E_FILE_TYPE")
        _refuse_whole_repository(real, str(real))
        walk = _Walk(real, selection, Counter() if left_out is None else left_out)
        found = []
        for file in walk.below(real, ""):
            found.append(file)
            if len(found) > FILES_MAX:
                raise ManifestError(f"files>{FILES_MAX} max={FILES_MAX}", code="E_LIMIT")
    except OSError as error:
        raise PublishError(f"{shown(str(error.filename or source))}: {error.strerror}") from None
    if not found:
        raise NothingSelectedError(f"no file in {shown(str(source))} is selected, or there is none")
    return sorted(found, key=lambda file: file.path.encode())


class _Walk:
    """One pass over a tree whose real path is ``root``."""

    def __init__(self, root: Path, selection: Selection, left_out: Counter[str]) -> None:
        self._root = root
        self._blobs = _blobs_of(root)
        self._selection = selection
        self._left_out = left_out

    def below(self, directory: Path, prefix: str) -> Iterator[FoundFile]:
        try:
            entries = os.scandir(directory)
        except PermissionError:
            if self._selection.leaves_out_below(prefix.rstrip("/")):
                return  # lost+found is root's
            raise
        with entries:
            for entry in entries:
                path = f"{prefix}{entry.name}"
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    if path.count("/") >= DEPTH_MAX and self._selection.leaves_out_below(path):
                        continue
                    if path.count("/") >= DEPTH_MAX:  # no file below can be published, and recursion needs an end
                        said = f"{shown(path)} is deeper than {DEPTH_MAX} components; leave it out with --exclude DIR/"
                        raise ManifestError(said, code="E_PATH_LENGTH")
                    if entry.name.startswith(_REPOSITORIES) and not self._selection.leaves_out_below(path):
                        _refuse_whole_repository(Path(entry.path), path)
                    yield from self.below(Path(entry.path), f"{path}/")
                elif self._selection.admits(path, self._left_out):
                    if stat.S_ISLNK(status.st_mode):
                        yield self._linked(path, Path(entry.path))
                    else:
                        yield _found(path, self._root, path, status)

    def _linked(self, path: str, link: Path) -> FoundFile:
        """The file at the end of a link. Raises PublishError when that is outside, or no file."""
        try:
            end = Path(os.path.realpath(link, strict=True))
            status = end.lstat()
        except OSError as error:
            raise PublishError(
                f"{shown(path)} is a symbolic link that leads nowhere ({error.strerror}): a download was cut off, or "
                "its target was deleted; or leave it out with --exclude",
                code="E_FILE_TYPE",
            ) from None
        for root in (self._root, self._blobs):
            if root is not None and end.is_relative_to(root):
                return _found(path, root, str(end.relative_to(root)), status)
        raise PublishError(
            f"{shown(path)} is a symbolic link that leads out of the tree; copy what it points to (cp -rL, or hf "
            "download --local-dir), or leave it out with --exclude",
            code="E_FILE_TYPE",
        )


def _blobs_of(root: Path) -> Path | None:
    """The blobs of the repository in a Hugging Face cache, when ``root`` is one of its snapshots or inside one."""
    for directory in (root, *root.parents):
        repository = directory.parent.parent
        if directory.parent.name == "snapshots" and repository.name.startswith(_REPOSITORIES):
            return repository / "blobs"
    return None


def _refuse_whole_repository(root: Path, name: str) -> None:
    """Refuse a repository of the cache as a whole, or all its snapshots: it holds every revision, and each file
    twice."""
    if root.name == "snapshots" and root.parent.name.startswith(_REPOSITORIES):
        root = root.parent
    if root.name.startswith(_REPOSITORIES) and (root / "snapshots").is_dir() and (root / "blobs").is_dir():
        revisions = sorted(entry.name for entry in (root / "snapshots").iterdir())
        raise PublishError(
            f"{shown(name)} is a Hugging Face cache with {len(revisions)} revisions; publish one of them, "
            f"as in {shown('/'.join(['snapshots', *revisions[:1]]))} below it",
            code="E_FILE_TYPE",
        )


def not_utf8(path: str) -> ManifestError:
    """The error for a name that no manifest can hold."""
    cure = f"rename it, or leave it out with --exclude {shown(pattern_for(path))}"
    return ManifestError(f"the name of {shown(path)} is not UTF-8; {cure}", code="E_PATH_UNICODE")


def _found(path: str, root: Path, location: str, status: os.stat_result) -> FoundFile:
    for is_kind, words in _KINDS:
        if is_kind(status.st_mode):
            raise PublishError(f"{shown(path)} is {words}; or leave it out with --exclude", code="E_FILE_TYPE")
    if not stat.S_ISREG(status.st_mode):
        raise PublishError(f"{shown(path)} is not a regular file", code="E_FILE_TYPE")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise not_utf8(path) from None
    mode = 0o755 if status.st_mode & 0o111 else 0o644
    inode = (status.st_dev, status.st_ino)
    return FoundFile(path, str(root), location, status.st_size, mode, status.st_mtime_ns, inode)
