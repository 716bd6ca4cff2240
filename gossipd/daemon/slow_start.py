"""A start that waits for a directory says so: on a file system that does not answer it would be silent for ever.

What lives here: the words, and the moment. What does not: the start (``app``, ``main``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from gossipd.runtime.logs import get_logger
from gossipd.runtime.named_thread import NamedThread

WAIT_S = 10.0
_LOOK = "see the kernel's log, the device, or the server of a network file system; the start goes on by itself"
CURE = f"its file system does not answer, or much in it is cleaned up: {_LOOK}"
log = get_logger("node")


def _log(directory: Path) -> None:
    log.warning("the start waits for a directory", directory=str(directory), cure=CURE)


def print_wait(config_file: Path) -> None:
    """Before logging is set up, and in words for a person, as what is wrong with a configuration is told."""
    waits = f"the start waits for {config_file}, or for a key file or a directory that it names, such as store.models"
    print(f"{waits}: a file system does not answer; cure: {_LOOK}", file=sys.stderr, flush=True)  # noqa: T201


@contextmanager
def told_if_slow(directory: Path, *, wait_s: float = WAIT_S, tell: Callable[[Path], None] = _log) -> Iterator[None]:
    """For the length of a ``with``, in which the directory is opened and read."""
    is_over = Event()

    def watch() -> None:
        if not is_over.wait(wait_s):
            tell(directory)

    NamedThread(target=watch, name="gossipd-start", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()
