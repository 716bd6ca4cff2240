"""A name for a unix socket that the kernel takes, however long its path is.

What lives here: that name. What does not: binding (``local_socket``) and connecting (``unix_connection``).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """A name for the socket at ``path`` within the kernel's 108 bytes: through the directory's descriptor."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
