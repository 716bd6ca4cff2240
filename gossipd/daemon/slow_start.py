"""A start that waits for a directory says so: on a file system that does not answer it would be silent for ever.

What lives here: the words, and the moment. What does not: the start (``app``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from gossipd.runtime.logs import get_logger
from gossipd.runtime.named_thread import NamedThread

WAIT_S = 10.0
CURE = (
    "its file system does not answer, or much in it is cleaned up: see the kernel's log, the device, or the server of "
    "a network file system; the start goes on by itself"
)
log = get_logger("node")


@contextmanager
def told_if_slow(directory: Path, *, wait_s: float = WAIT_S) -> Iterator[None]:
    """For the length of a ``with``, in which the directory is opened and read."""
    is_over = Event()

    def tell() -> None:
        if not is_over.wait(wait_s):
            log.warning("the start waits for a directory", directory=str(directory), cure=CURE)

    NamedThread(target=tell, name="gossipd-start", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()
