"""The empty directories of a tree on a local disk, which a manifest lists beside its files.

What lives here: finding them. What does not: files (``tree``). Only what is empty on the disk counts: a directory whose
files are all excluded is left out with them. Object storage has no directories.
"""

from __future__ import annotations

import os
from pathlib import Path

from gossipd.manifest.errors import shown
from gossipd.publish.errors import PublishError
from gossipd.publish.selection import Selection
from gossipd.publish.tree import not_utf8


def find_empty_directories(source: Path, selection: Selection) -> tuple[str, ...]:
    """Relative paths in order; none when ``source`` is a file. Raises PublishError ``E_SOURCE_READ``, ManifestError
    ``E_PATH_UNICODE``."""

    def fail(error: OSError) -> None:
        if not selection.leaves_out_below(os.path.relpath(error.filename or source, source)):
            raise PublishError(f"{shown(str(error.filename or source))}: {error.strerror}")

    found = []
    for directory, directories, files in os.walk(source, onerror=fail) if source.is_dir() else ():
        path = os.path.relpath(directory, source)
        if directories or files or path == "." or not (selection.admits(path) and selection.admits(f"{path}/")):
            continue
        try:
            path.encode()
        except UnicodeEncodeError:
            raise not_utf8(path) from None
        found.append(path)
    return tuple(sorted(found, key=str.encode))
