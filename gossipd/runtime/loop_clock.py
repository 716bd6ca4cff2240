"""The clock of the event loop, by which one task sleeps without a cancel scope.

What lives here: that clock, and the same sleep by trio's own means. What does not: when the loop rests
(``turn_interval``), and all other sleeping tasks, which are seldom woken.

A cancel scope for each rest of the loop is a tenth of what a turn costs: it is made, registered, cancelled, and ends in
an exception. trio asks its clock how long it may wait for sockets; so this one answers with the task's time too, and
lets the task run when it has come. Rejected: a timer's descriptor among the sockets, because registering for it again
costs as much; a thread, because each hand-over costs a switch.
"""

from __future__ import annotations

import math
from random import SystemRandom
from time import monotonic
from typing import Protocol

import trio

_AHEAD_S = (1e4, 1e6)  # as trio's own clock: daemons that share a machine do not look at things at the same moments


class Sleeper(Protocol):
    """Lets one task sleep. From the loop only."""

    async def sleep(self, until_s: float) -> None:
        """Return at that time by the loop's clock, or after ``wake``; at the earliest after others had a turn."""

    def wake(self) -> None:
        """End the present sleep; no effect on a later one."""


class LoopClock(trio.abc.Clock, trio.abc.Instrument):
    """Give it to ``trio.run`` both as its clock and as an instrument; it is the ``Sleeper`` of that loop."""

    def __init__(self) -> None:
        self._ahead_s = SystemRandom().uniform(*_AHEAD_S)
        self._task: trio.lowlevel.Task | None = None
        self._until_s = math.inf

    def start_clock(self) -> None:
        """It always runs."""

    def current_time(self) -> float:
        return self._ahead_s + monotonic()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return min(deadline, self._until_s) - self.current_time()

    def after_io_wait(self, timeout: float) -> None:
        if self._until_s <= self._ahead_s + monotonic():
            self.wake()

    async def sleep(self, until_s: float) -> None:
        """See ``Sleeper``."""
        if until_s <= self.current_time():
            await trio.lowlevel.checkpoint()
            return
        if self._task is not None:
            raise RuntimeError("another task sleeps by this clock")
        self._task, self._until_s = trio.lowlevel.current_task(), until_s
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def wake(self) -> None:
        """See ``Sleeper``."""
        task, self._task, self._until_s = self._task, None, math.inf
        if task is not None:
            trio.lowlevel.reschedule(task)

    def _abort(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._task, self._until_s = None, math.inf
        return trio.lowlevel.Abort.SUCCEEDED


class ScopeSleeper:
    """The sleeper of a loop that runs by another clock, as in tests."""

    def __init__(self) -> None:
        self._woken = trio.Event()

    async def sleep(self, until_s: float) -> None:
        """See ``Sleeper``."""
        self._woken = trio.Event()
        with trio.move_on_at(until_s):
            await self._woken.wait()

    def wake(self) -> None:
        """See ``Sleeper``."""
        self._woken.set()


def sleeper_of_loop() -> Sleeper:
    """Of the running loop, for its one task that sleeps so."""
    clock = trio.lowlevel.current_clock()
    return clock if isinstance(clock, LoopClock) else ScopeSleeper()
