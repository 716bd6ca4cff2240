"""``python -m gossipd.demo.attached`` is ``gossipd`` for a process that ends when the one that started it has ended.

Its standard input is a pipe that the starter holds open and never writes to: the kernel closes it however the starter
ends, by SIGKILL too, and then this process gets a SIGTERM. Rejected: PR_SET_PDEATHSIG, because it follows the thread
that started the process, and a call between fork and exec is unsafe beside other threads.
"""

from __future__ import annotations

import functools
import os
import runpy
import signal
import threading

STDIN = 0


@functools.cache
def lifeline() -> int:
    """What this process gives to those that are to end with it, as their standard input; one for all of them."""
    reading, _ = os.pipe()  # the other end is closed when this process ends
    return reading


def _end_with_the_starter() -> None:
    while os.read(STDIN, 1):
        """Nothing is told on it."""
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_starter, name="starter watch", daemon=True).start()
    runpy.run_module("gossipd", run_name="__main__", alter_sys=True)
