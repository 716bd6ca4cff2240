"""Files that are opened by a path where anybody may have put something else: a pipe never keeps a thread waiting.

What lives here: opening and reading what must be a regular file. What does not: files of the store and of ``state/``
(``store.disk``), and a path that a person types for a command, where a pipe is as good as a file.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """The file, to be read. Raises OSError; EINVAL, with ``strerror`` in words, when it is no regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is not a file; move it away", str(path))
    return open(descriptor, "rb")


def read_regular(path: Path, *, bytes_max: int) -> bytes:
    """Its first ``bytes_max`` bytes. Raises as ``open_regular``."""
    with open_regular(path) as file:
        return file.read(bytes_max)
