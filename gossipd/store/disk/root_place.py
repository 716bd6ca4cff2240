"""Whether a directory that the daemon has opened, of models or of state, is still where it was.

What lives here: comparing what the path leads to with what it led to then. What does not: telling an operator
(``daemon.store_watch``), and the daemon's own work, which goes on in the directory that it has opened.

A directory that was moved, unmounted or mounted over stays open: all reads and writes succeed in a place where nobody
looks.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from msgspec import Struct


class RootPlace(Struct, frozen=True):
    """A path, and the directory that it led to."""

    path: Path
    device: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> RootPlace:
        """As it is now. Raises OSError."""
        found = path.stat()
        return cls(path, found.st_dev, found.st_ino)

    def why_elsewhere(self) -> str:
        """Why nobody finds there what is in the directory, with the cure; empty while they do."""
        try:
            found = os.stat(self.path)
        except OSError as error:
            if error.errno == errno.EIO:
                return ""  # the disk fails, which its condition tells
            return f"{self.path} cannot be reached: {error.strerror}. {_CURE}"
        if (found.st_dev, found.st_ino) == (self.device, self.inode):
            return ""
        return f"{self.path} is another directory than this daemon has opened: it was moved, or mounted over. {_CURE}"


_CURE = "Put it back; a restart takes what it finds there"
