"""Threads that move bytes give way to the one that decides, and the daemon interrupts nobody, least of all itself.

What lives here: how the kernel is to schedule the calling thread. Linux keeps both properties per thread, and threads
that it starts inherit them (so do obstore's and libzmq's).

Niceness: with two cores full of copying and hashing, the loop was woken 50 to 250 ms late; see ``tests.bench.pair``.
Rejected: to raise the loop instead, which needs a privilege.

No preemption at wake-up: a thread for which bytes have come would otherwise take the CPU from the one that holds the
interpreter's lock, only to wait for that lock. Sixteen daemons on two cores switch between threads a fifth less often
and wait for locks a quarter less often (18,900 and 12,900 times a second for 23,600 and 18,200, lab, four pairs of runs
in turn; 43.0 for 45.1 CPU seconds). The loop's lag beside eight busy processes is the same, 6 to 10 ms (p99).
"""

from __future__ import annotations

import os
import threading

BULK_NICE_VALUE = 5  # a third of the loop's weight (sched(7)); the loop needs far less than what that leaves it
_NICE_VALUE_MAX = 19


def lower_priority() -> None:
    """Make this thread nicer than the process for good, whatever it was before. Nothing where that is forbidden."""
    nice_value = os.getpriority(os.PRIO_PROCESS, os.getpid()) + BULK_NICE_VALUE
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(_NICE_VALUE_MAX, nice_value))
    except OSError:  # a sandbox's rule: the thread stays as it is, and only the loop's lag suffers
        return


def use_batch_policy() -> None:
    """Have this thread wait for its turn when it wakes up, instead of taking it (SCHED_BATCH, sched(7)); for good.

    Nothing where it is forbidden, or where somebody has given the process another policy than the usual one.
    """
    try:
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except OSError:  # a sandbox's rule
        return
