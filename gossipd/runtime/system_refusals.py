"""How often the system has refused this process a thread or a descriptor, for an alarm.

What lives here: two counts, the error of a refused thread, and a trial. What does not: the alarms
(``daemon.limits_watch``), and what each part does without: it waits, makes do, or drops one connection.

The limits are the process's, so there is one count of each. Threads add to them without a lock: a watcher asks only
whether they have changed.
"""

from __future__ import annotations

import errno
import os

from msgspec import Struct

from gossipd.core.errors import LocalError

REFUSED_WORDS = "can't start new thread"  # CPython, all versions; the class is a bare RuntimeError
NO_THREADS = "the system refuses new threads to this daemon: raise the limit (ulimit -u, TasksMax, pids.max)"
NO_DESCRIPTORS = "the system refuses new descriptors to this daemon: raise the limit (LimitNOFILE, ulimit -n)"
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""This host or process has run out; no fault of a peer."""
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)


class NoThreadError(LocalError, RuntimeError):
    """The system has refused a thread. Fault: a limit of this host. State: unchanged. Retry: when others have ended."""

    code = "E_THREADS"


class SystemRefusals(Struct):
    """Since the start."""

    threads: int = 0
    descriptors: int = 0


REFUSALS = SystemRefusals()


def thread_refused() -> None:
    REFUSALS.threads += 1


def note_refusal(error: OSError) -> None:
    """Count it, if it is for want of a descriptor."""
    if error.errno in _NO_DESCRIPTOR:
        REFUSALS.descriptors += 1


def try_descriptor() -> None:
    """Count a refusal if the process has no descriptor left. Takes some microseconds."""
    try:
        os.close(os.dup(2))
    except OSError as error:
        note_refusal(error)
