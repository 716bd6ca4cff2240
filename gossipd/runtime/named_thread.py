"""A thread whose name the operating system shows, too, so that ``top -H`` and ``perf`` tell threads apart.

What lives here: that thread. What does not: what threads are called (those who start them say so).

Python 3.11 tells nobody the name of a thread: the system shows that of the thread which started it. Rejected: to write
to ``/proc/self/task``, because a process without a free descriptor cannot.
"""

from __future__ import annotations

import ctypes
import threading

from gossipd.runtime.system_refusals import NO_THREADS, REFUSED_WORDS, NoThreadError, thread_refused

_PR_SET_NAME = 15  # linux/prctl.h; of what is longer than 15 bytes the kernel keeps as many
_prctl = getattr(ctypes.CDLL(None), "prctl", None)


class NamedThread(threading.Thread):
    """A ``threading.Thread``; outside Linux its name stays within Python."""

    def start(self) -> None:
        """Raises NoThreadError when the system refuses one."""
        try:
            super().start()
        except RuntimeError as error:
            if str(error) != REFUSED_WORDS:
                raise
            thread_refused()
            raise NoThreadError(NO_THREADS) from None

    def run(self) -> None:
        if _prctl is not None:
            _prctl(_PR_SET_NAME, ctypes.c_char_p(self.name.encode()), 0, 0, 0)
        super().run()
