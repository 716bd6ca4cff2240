"""The store's two threads: one commits windows and probes the disk, one scrubs at a fixed rate.

What lives here: when to call. What does not: the work (``windows``, ``condition``, ``scrub``). Tests call the steps
themselves and start no thread.

The first thread sleeps until a window or a probe is due; without writes it never wakes. The scrub thread reads one
chunk and then waits as its rate demands, holding nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

from gossipd.runtime.thread_priority import lower_priority

_SCRUB_IDLE_S = 60.0  # nothing is published
_JOIN_S = 30.0  # a sync of a whole window on a slow disk


class Background:
    """Runs ``step`` when it is due and ``scrub`` at its pace."""

    def __init__(self, *, step: Callable[[], float | None], scrub: Callable[[], float | None]) -> None:
        """
        Args:
            step: does what is due; returns the seconds until the next step, None to wait for ``wake``.
            scrub: reads one chunk; returns the seconds to wait, None when there is nothing to read.
        """
        self._step = step
        self._scrub = scrub
        self._woken = Event()
        self._stopped = Event()
        self._threads: list[Thread] = []

    def start(self, *, with_scrub: bool) -> None:
        bodies = [("gossipd-commit", self._run_steps)]
        if with_scrub:
            bodies.append(("gossipd-scrub", self._run_scrub))
        for name, body in bodies:
            thread = Thread(target=body, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def wake(self) -> None:
        """A step may be due earlier than the last one said."""
        self._woken.set()

    def stop(self) -> None:
        self._stopped.set()
        self._woken.set()
        for thread in self._threads:
            thread.join(_JOIN_S)
        self._threads.clear()

    def _run_steps(self) -> None:
        lower_priority()
        while not self._stopped.is_set():
            self._woken.clear()
            wait_s = self._step()
            self._woken.wait(wait_s)

    def _run_scrub(self) -> None:
        lower_priority()
        while not self._stopped.is_set():
            wait_s = self._scrub()
            self._stopped.wait(_SCRUB_IDLE_S if wait_s is None else wait_s)
