"""The directories of steps beneath one directory, as ``step_watch`` judges them.

What lives here: walking, and the faults of files by their own headers. What does not: what follows.

A step's number is the digits at the end of its directory's name (``step-300``, ``checkpoint_300``). Headers are read
again only when something in the directory has changed, so that a look costs a few system calls for each file.
"""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from pathlib import Path

from gossipd.core.errors import GossipdError
from gossipd.publish.errors import NothingSelectedError, TreeChangedError
from gossipd.publish.file_reading import LocalFiles
from gossipd.publish.inspection import inspect
from gossipd.publish.selection import Selection, selection_without
from gossipd.publish.step_watch import STEPS_MAX, StepFile, StepListing
from gossipd.publish.tree import FoundFile, find_files

_DIGITS = re.compile(r"\d+$", re.ASCII)
_FAULTS = ("empty_weights", "safetensors_header", "shard_count", "index_broken", "shard_missing")


class StepLister:
    """Looks at one directory again and again."""

    def __init__(self, directory: Path, pattern: str = "*", exclude: str = "", marker: str | None = None) -> None:
        """``exclude``: as of a publication; the ``marker`` is seen though it is no part of the version. What tools
        leave is seen, too: some of it says that a step is still written."""
        self._directory = directory
        self._pattern = pattern
        self._selection = Selection(exclude=selection_without(exclude).exclude)
        self._marker = None if marker is None or self._selection.admits(marker) else marker
        self._last: dict[str, StepListing] = {}

    def look(self) -> dict[str, StepListing]:
        """The step directories by name. One that is empty or vanishes meanwhile is left out. One that cannot be read,
        or has what no version can hold, has no files and a fault, which is looked for again each time: a right that is
        given back changes no file. Raises OSError: the directory above them cannot be read."""
        names = [
            entry.name
            for entry in self._directory.iterdir()
            if fnmatchcase(entry.name, self._pattern) and _DIGITS.search(entry.name) and entry.is_dir()
        ]
        found = {}
        for name in sorted(names, key=_step_of)[-STEPS_MAX:]:  # of more, those that training has left behind are out
            listing = self._list(name)
            if listing is not None:
                found[name] = listing
        self._last = found
        return found

    def _list(self, name: str) -> StepListing | None:
        step, directory = _step_of(name), self._directory / name
        try:
            if not os.access(directory, os.R_OK | os.X_OK) and directory.is_dir():
                return StepListing(step, (), (f"cannot be read by user {os.geteuid()}",))
            files = find_files(directory, self._selection)
            seen = tuple(StepFile(file.path, file.size, file.mtime_ns, file.inode[1]) for file in files)
            seen += self._marker_in(directory)
            before = self._last.get(name)
            if before is not None and before.files == seen:
                return before
            return StepListing(step, seen, _faults(files))
        except (NothingSelectedError, OSError):  # it was just made, or is being deleted
            return None
        except GossipdError as error:
            return StepListing(step, (), (str(error.args[0]),)) if directory.exists() else None

    def _marker_in(self, directory: Path) -> tuple[StepFile, ...]:
        """The marker, where it is no part of the version."""
        if self._marker is None or not (directory / self._marker).is_file():
            return ()
        seen = (directory / self._marker).stat()
        return (StepFile(self._marker, seen.st_size, seen.st_mtime_ns, seen.st_ino),)


def _step_of(name: str) -> int:
    digits = _DIGITS.search(name)
    assert digits is not None
    return int(digits[0])


def _faults(files: list[FoundFile]) -> tuple[str, ...]:
    """Of files that did not change meanwhile. Raises PublishError: one cannot be read."""
    try:
        findings = inspect(files, {}, LocalFiles(files, mapped=False).read_piece)
    except TreeChangedError as error:  # the next look sees other files
        return (str(error.args[0]),)
    return tuple(one.sentence for one in findings if one.kind in _FAULTS)
