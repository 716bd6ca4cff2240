"""A thread of the store that does what is due, again and again: one ends windows and probes, one looks for rot.

What lives here: when to call. What does not: what is done (``maintenance``, ``scrub``). Tests call the steps
themselves and start no thread.

The first sleeps until the earliest window is due or a probe is; with nothing written it does not wake at all.
The scrub reads one chunk and then waits as long as the rate makes it; it holds nothing while it waits.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

from gossipd.runtime.thread_priority import lower_priority

_JOIN_S = 30.0  # a sync of a whole window on a slow disk


class BackgroundThread:
    """Calls ``step`` when it is due."""

    def __init__(
        self, name: str, step: Callable[[], float | None], *, woken: Event, idle_s: float | None = None
    ) -> None:  # fmt: skip
        """
        Args:
            step: does what is due; the seconds until there is more, None when nothing is expected.
            woken: set by others when something may be due earlier than was thought.
            idle_s: how long to wait when nothing is expected; None for until ``woken``.
        """
        self._step = step
        self._woken = woken
        self._idle_s = idle_s
        self._stopped = False
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, if it was started; a step that is running is waited for."""
        self._stopped = True
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        lower_priority()
        while not self._stopped:
            self._woken.clear()
            wait_s = self._step()
            if not self._stopped:
                self._woken.wait(self._idle_s if wait_s is None else wait_s)
