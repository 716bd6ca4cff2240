"""Scheduling of threads: those that move bytes give way to the event loop, and no thread preempts another at wake-up.

Linux keeps both properties per thread, and threads inherit them (also those of obstore and libzmq).

Niceness: with all cores copying and hashing, the loop would wake late. Rejected: raising the loop's priority, which
needs a privilege.

No preemption: otherwise a thread whose bytes have arrived takes the CPU from the thread that holds the GIL, only to
wait for the GIL. Without it there are fewer switches and waits, and the loop's lag is the same.
"""

from __future__ import annotations

import os
import threading

BULK_NICE_VALUE = 5  # a third of the loop's weight (sched(7))
_NICE_VALUE_MAX = 19


def lower_priority() -> None:
    """Make this thread nicer than the process, for good. Does nothing where that is forbidden."""
    nice_value = os.getpriority(os.PRIO_PROCESS, os.getpid()) + BULK_NICE_VALUE
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(_NICE_VALUE_MAX, nice_value))
    except OSError:  # a sandbox forbids it: only the loop's lag suffers
        return


def use_batch_policy() -> None:
    """Make this thread wait for its turn at wake-up (SCHED_BATCH, sched(7)), for good. Does nothing where that is
    forbidden, or when the process has a policy other than the default.
    """
    try:
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except OSError:  # a sandbox forbids it
        return
