"""The files of a model on a local disk, as they were at one moment.

What lives here: walking, and refusing files that a manifest cannot hold. What does not: reading (``file_reading``).

Only regular files count. A symbolic link is refused: following it would publish bytes from outside the tree, skipping
it would publish half a model. Only the directory on the command line may be a link. Modes become 0644 or, with any
execute bit, 0755, as in git, because a publisher's umask is not part of a model.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gossipd.manifest.errors import ManifestError, shown
from gossipd.manifest.paths import DEPTH_MAX
from gossipd.manifest.payload import FILES_MAX
from gossipd.publish.errors import PublishError
from gossipd.publish.selection import Selection

_KINDS = (
    (stat.S_ISLNK, "a symbolic link; copy what it points to (cp -rL, or hf download --local-dir)"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISCHR, "a character device"),
)


@dataclass(frozen=True, slots=True)
class FoundFile:
    """One file; equal as long as it shows no sign of a change."""

    path: str
    """Relative to the model's directory, with ``/``."""
    location: str
    size: int
    mode: int
    mtime_ns: int
    inode: int

    def is_still(self, now: os.stat_result) -> bool:
        """Whether ``now`` describes the same file with the same content."""
        return (now.st_size, now.st_mtime_ns, now.st_ino) == (self.size, self.mtime_ns, self.inode)


def find_files(source: Path, selection: Selection) -> list[FoundFile]:
    """The file ``source``, or the selected files below the directory ``source``, in order of path.

    Raises:
        PublishError: ``E_SOURCE_READ`` when something cannot be read, ``E_FILE_TYPE``, ``E_EMPTY``.
        ManifestError: ``E_LIMIT`` beyond 100,000 files, ``E_PATH_UNICODE`` for names that are not UTF-8.
    """
    try:
        status = source.stat()
        if stat.S_ISREG(status.st_mode):
            return [_found(source.name, str(source), status)]
        if not stat.S_ISDIR(status.st_mode):
            raise PublishError(f"{shown(str(source))} is neither a file nor a directory", code="E_FILE_TYPE")
        found = []
        for file in _walk(source, "", selection):
            found.append(file)
            if len(found) > FILES_MAX:
                raise ManifestError(f"files>{FILES_MAX} max={FILES_MAX}", code="E_LIMIT")
    except OSError as error:
        raise PublishError(f"{shown(str(error.filename or source))}: {error.strerror}") from None
    if not found:
        raise PublishError(f"no file in {shown(str(source))} is selected", code="E_EMPTY")
    return sorted(found, key=lambda file: file.path.encode())


def _walk(directory: Path, prefix: str, selection: Selection) -> Iterator[FoundFile]:
    with os.scandir(directory) as entries:
        for entry in entries:
            path = f"{prefix}{entry.name}"
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                if path.count("/") >= DEPTH_MAX:  # no file below can be published, and recursion needs an end
                    raise ManifestError(f"{shown(path)} is deeper than {DEPTH_MAX} components", code="E_PATH_LENGTH")
                yield from _walk(Path(entry.path), f"{path}/", selection)
            elif selection.admits(path):
                yield _found(path, entry.path, status)


def _found(path: str, location: str, status: os.stat_result) -> FoundFile:
    for is_kind, words in _KINDS:
        if is_kind(status.st_mode):
            raise PublishError(f"{shown(path)} is {words}; or leave it out with --exclude", code="E_FILE_TYPE")
    if not stat.S_ISREG(status.st_mode):
        raise PublishError(f"{shown(path)} is not a regular file", code="E_FILE_TYPE")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ManifestError(f"the name of {shown(path)} is not UTF-8", code="E_PATH_UNICODE") from None
    mode = 0o755 if status.st_mode & 0o111 else 0o644
    return FoundFile(path, location, status.st_size, mode, status.st_mtime_ns, status.st_ino)
