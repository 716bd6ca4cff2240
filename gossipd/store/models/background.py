"""A thread that works in the background; a store has three: one commits windows and probes the disk, one scrubs, one
reads into memory.

What lives here: when to call. What does not: the work (``upkeep``, ``scrub``, ``warming``).

The first thread sleeps until a window or a probe is due; without writes it never wakes. The scrub thread reads one
chunk and then waits as its rate demands, holding nothing. The third is not started before it has work.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock

from gossipd.runtime.named_thread import NamedThread
from gossipd.runtime.thread_priority import lower_priority

_JOIN_S = 30.0  # a sync of a whole window on a slow disk


class BackgroundThread:
    """Calls ``step`` when it is due."""

    def __init__(
        self, name: str, step: Callable[[], float | None], *, woken: Event, idle_s: float | None = None
    ) -> None:  # fmt: skip
        """``step``: does what is due; returns the seconds until the next step, None when there is nothing to do.
        ``woken``: set when a step may be due earlier than the last one said. ``idle_s``: how long to wait when there is
        nothing to do; None for until ``woken``.
        """
        self._step = step
        self._woken = woken
        self._idle_s = idle_s
        self._stopped = False
        self._starting = Lock()
        self._thread = NamedThread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin. One that has begun goes on."""
        with self._starting:
            if self._thread.ident is None and not self._stopped:
                self._thread.start()

    def stop(self) -> None:
        """End the thread; a step that is running ends first."""
        with self._starting:
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
