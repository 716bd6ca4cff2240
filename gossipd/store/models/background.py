"""The store's two threads: one ends windows and probes a refusing disk, one looks for rot at a fixed rate.

What lives here: when to call. What does not: what is done (``windows``, ``condition``, ``scrub``). Tests call the
steps themselves and start no thread.

The first sleeps until the earliest window is due or a probe is; with nothing written it does not wake at all.
The scrub reads one chunk and then waits as long as the rate makes it; it holds nothing while it waits.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

from gossipd.runtime.thread_priority import lower_priority

_SCRUB_IDLE_S = 60.0  # nothing published, or a whole pass younger than this
_JOIN_S = 30.0  # a sync of a whole window on a slow disk


class Background:
    """Runs ``step`` when it is due and ``scrub`` at its pace."""

    def __init__(self, *, step: Callable[[], float | None], scrub: Callable[[], float | None]) -> None:
        """
        Args:
            step: does what is due and returns the seconds until there is more, None for until ``wake``.
            scrub: reads one chunk and returns the seconds to wait, None when there is nothing to read.
        """
        self._step = step
        self._scrub = scrub
        self._woken = Event()
        self._stopped = Event()
        self._threads: list[Thread] = []

    def start(self, *, with_scrub: bool) -> None:
        """Start the threads."""
        bodies = [("gossipd-commit", self._run_steps)]
        if with_scrub:
            bodies.append(("gossipd-scrub", self._run_scrub))
        for name, body in bodies:
            thread = Thread(target=body, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def wake(self) -> None:
        """Something may be due earlier than was thought."""
        self._woken.set()

    def stop(self) -> None:
        """Ends both threads; a step that is running is waited for."""
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
