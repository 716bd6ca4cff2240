"""A name for a unix socket within the kernel's 108 bytes, whatever its path.

What lives here: the name. What does not: who listens there (``local_socket``) and who asks (``unix_connection``).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """A name for the socket at ``path`` through its directory's descriptor, while the block runs. Raises OSError."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
