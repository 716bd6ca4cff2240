"""Threads that move bytes give way to the one that decides.

What lives here: lowering the calling thread's share of the CPU. Linux keeps niceness per thread, and threads that it
starts inherit it (so do obstore's). With two cores full of copying and hashing, the loop was woken 50 to 250 ms late;
see ``tests.bench.pair``. Rejected: to raise the loop instead, which needs a privilege.
"""

from __future__ import annotations

import os
import threading

BULK_NICENESS = 5  # a third of the loop's weight (sched(7)); the loop needs far less than what that leaves it
_NICENESS_MAX = 19


def give_way() -> None:
    """Make this thread nicer than the process for good, whatever it was before. Nothing where that is forbidden."""
    niceness = os.getpriority(os.PRIO_PROCESS, os.getpid()) + BULK_NICENESS
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(_NICENESS_MAX, niceness))
    except OSError:  # a sandbox's rule: the thread stays as it is, and only the loop's lag suffers
        return
