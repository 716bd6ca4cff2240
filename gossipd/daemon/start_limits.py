"""Whether the system gives this process what a daemon needs at least, asked before anything is opened.

What lives here: the least, and the refusal. What does not: reading the limits (``runtime.process_limits``), and what a
daemon does that runs out of them later (``limits_watch``).

libzmq ends the process (SIGABRT) where it is refused a thread or a descriptor, so the start cannot wait until it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from gossipd.core.errors import ExitCode, LocalError
from gossipd.runtime.process_limits import ThreadRoom

DESCRIPTORS_LEAST = 64  # a start takes 40 at once, and each peer a few
THREADS_LEAST = 14  # besides the first: what a start takes; with no more, work waits, and an alarm says so


class HostLimitError(LocalError):
    """The system gives this process too few threads or descriptors to be a daemon. Fault: a limit of this host. State:
    nothing is opened. Retry: after the limit was raised; where others use it up, in a while."""

    code = "E_THREADS"


def check_limits(descriptors: int | None, rooms: Sequence[ThreadRoom]) -> None:
    """``descriptors``: the limit of open files; None is no limit. Raises HostLimitError."""
    if descriptors is not None and descriptors < DESCRIPTORS_LEAST:
        words = f"this process may have {descriptors} descriptors, and a daemon needs {DESCRIPTORS_LEAST} at least"
        cure = "raise the limit (LimitNOFILE in the unit, ulimit -n); 65536 is enough for any cluster"
        raise HostLimitError(f"{words}: {cure}", code="E_HANDLES", code_of_exit=ExitCode.USAGE)
    for room in rooms:
        if room.limit - room.used < THREADS_LEAST:
            words = f"{room.limit} threads are allowed and {room.used} of them used, and a daemon needs {THREADS_LEAST}"
            is_never_enough = room.limit <= THREADS_LEAST
            raise HostLimitError(
                f"{words} more at least: raise the limit ({room.setting})",
                code_of_exit=ExitCode.USAGE if is_never_enough else ExitCode.OTHER,
            )
