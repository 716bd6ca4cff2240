"""Signals to a daemon that does not serve yet: what the kernel would do with them by itself is wrong.

What lives here: SIGTERM, SIGINT and SIGHUP from the first import until ``main`` takes them, and once it has given them
back. What does not: what they mean while the daemon serves (``main``).

By itself the kernel ends a process by each of the three; process 1 of a container it leaves alone, which then goes on
until the container's patience is over. Nothing is served and all that is on disk is whole, so SIGTERM and SIGINT end
the process at once with 0. SIGHUP waits: the configuration may have been read before it was changed.
"""

from __future__ import annotations

import os
import signal

from gossipd.core.errors import ExitCode


def hold() -> None:
    """Before the long imports of a daemon. In the main thread, as each call here."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    # Ignored for after the daemon has served; blocked, it is kept until then all the same.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})


def release() -> None:
    """The daemon has its own handlers: a SIGHUP that has come meanwhile is delivered now. Threads that have begun
    before keep it blocked, as would processes that they start: those of the store and of fetches start none."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def _end(number: int, frame: object) -> None:
    del number, frame
    os._exit(ExitCode.DONE)
