"""A version that is held: it is not evicted while a process of this host uses it.

What lives here: the lock. What does not: eviction, which leaves a locked directory alone (``store.models``).

The lock is a shared ``flock`` on the version's directory. So any user who may read the model may hold it, nothing is
written, and the kernel drops the lock when the process ends, however it ends. A version that is evicted meanwhile has
been renamed; that is seen after locking, by its place. A child that is forked within the block shares the lock: both
lose it when the block ends in the parent. When it ends in the child, or the parent is killed, the other keeps it.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gossipd.core.errors import NotFoundError

LOCK_WAIT_S, LOCK_RETRY_S = 1.0, 0.02


@contextmanager
def held(directory: Path) -> Iterator[Path]:
    """Hold the version at ``directory`` until the end of the block or of the process. Raises NotFoundError: it is not
    there, or was just removed."""
    gone, owner = NotFoundError(f"{directory} is not on this host any more"), os.getpid()
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise gone from error
    try:
        try:
            _lock(descriptor)
            is_there = os.path.samestat(os.fstat(descriptor), directory.stat())
        except OSError as error:  # it is being evicted
            raise gone from error
        if not is_there:
            raise gone
        yield directory
    finally:
        if os.getpid() == owner:  # a child that was forked in the block shares the lock, and would keep it
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    """The daemon locks a version for a moment to see whether it is held, and for longer to evict it. Raises
    BlockingIOError: it evicts it."""
    until = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise
        time.sleep(LOCK_RETRY_S)
