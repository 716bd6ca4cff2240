"""Threads that move bytes give way to the one that decides.

What lives here: lowering the calling thread's share of the CPU. Linux keeps niceness per thread, and threads that it
starts inherit it (so do obstore's). With two cores full of copying and hashing, the loop was woken up to 250 ms late;
see ``tests.bench.pair``.
"""

from __future__ import annotations

import os
import threading

BULK_NICENESS = 5  # a third of the weight of a thread at 0 (sched(7)): the loop needs far less than that


def give_way() -> None:
    """Lower this thread's priority for good. Where the system has no such thing the thread stays as it is."""
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), BULK_NICENESS)
    except (OSError, AttributeError):
        return
