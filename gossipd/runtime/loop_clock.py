"""The clock of the event loop, by which tasks sleep without a cancel scope.

What lives here: that clock, and the same sleeps by trio's own means. What does not: when the loop rests
(``turn_interval``), and moments that tasks share (``look_interval``).

A cancel scope for each sleep is made, registered and cancelled, and ends in an exception: dozens of calls, in every
turn of the loop. trio asks its clock how long it may wait for sockets; so this one answers with its sleepers' times
too, and lets each task run when its time has come. Rejected: a timer's descriptor among the sockets, because
registering for it again costs as much; a thread, because each hand-over costs a switch.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from random import SystemRandom
from time import monotonic
from typing import Protocol

import trio

_OVER_SPARE = 64  # sleeps that are over may be so many more than those that are not
_AHEAD_S = (1e4, 1e6)  # as trio's own clock: daemons that share a machine do not look at things at the same moments


class Sleeper(Protocol):
    """Lets one task sleep, and be woken. From the loop only."""

    async def sleep(self, until_s: float) -> None:
        """Return at that time by the loop's clock, or after ``wake``; at the earliest after others had a turn."""

    def wake(self) -> None:
        """End the present sleep; no effect on a later one."""


class _Sleep:
    """One sleep. ``task``: None when it is over."""

    __slots__ = ("task",)

    def __init__(self, task: trio.lowlevel.Task) -> None:
        self.task: trio.lowlevel.Task | None = task

    def end(self) -> None:
        task, self.task = self.task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def cancel(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        """trio asks for it when the task is cancelled."""
        self.task = None
        return trio.lowlevel.Abort.SUCCEEDED


class LoopClock(trio.abc.Clock, trio.abc.Instrument):
    """Give it to ``trio.run`` both as its clock and as an instrument."""

    def __init__(self) -> None:
        self._ahead_s = SystemRandom().uniform(*_AHEAD_S)
        self._sleeps: list[tuple[float, int, _Sleep]] = []  # a heap; one for each sleeping task, and some that are over
        self._count, self._tidy_at = 0, _OVER_SPARE

    def start_clock(self) -> None:
        """It always runs."""

    def current_time(self) -> float:
        return self._ahead_s + monotonic()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        sleeps = self._sleeps
        while sleeps and sleeps[0][2].task is None:
            heappop(sleeps)
        return (min(deadline, sleeps[0][0]) if sleeps else deadline) - self._ahead_s - monotonic()

    def after_io_wait(self, timeout: float) -> None:
        sleeps = self._sleeps
        if not sleeps:
            return
        now = self._ahead_s + monotonic()
        while sleeps and sleeps[0][0] <= now:
            heappop(sleeps)[2].end()

    def begun(self, until_s: float) -> _Sleep:
        """A sleep of the present task, which is to wait for it next."""
        sleep = _Sleep(trio.lowlevel.current_task())
        if until_s < math.inf:
            self._count += 1
            heappush(self._sleeps, (until_s, self._count, sleep))
            if len(self._sleeps) >= self._tidy_at:
                self._tidy()
        return sleep

    def _tidy(self) -> None:
        """Drop those that were ended long before their time."""
        self._sleeps = [one for one in self._sleeps if one[2].task is not None]
        heapify(self._sleeps)
        self._tidy_at = 2 * len(self._sleeps) + _OVER_SPARE


class ClockSleeper:
    """The sleeper of a loop that runs by a ``LoopClock``."""

    def __init__(self, clock: LoopClock) -> None:
        self._clock = clock
        self._sleep: _Sleep | None = None

    async def sleep(self, until_s: float) -> None:
        """See ``Sleeper``."""
        if until_s <= self._clock.current_time():
            await trio.lowlevel.checkpoint()
            return
        self._sleep = self._clock.begun(until_s)
        await trio.lowlevel.wait_task_rescheduled(self._sleep.cancel)

    def wake(self) -> None:
        """See ``Sleeper``."""
        if self._sleep is not None:
            self._sleep.end()


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


def make_sleeper() -> Sleeper:
    """For one task of the running loop."""
    clock = trio.lowlevel.current_clock()
    return ClockSleeper(clock) if isinstance(clock, LoopClock) else ScopeSleeper()


async def sleep_until(until_s: float) -> None:
    """As ``trio.sleep_until``."""
    await make_sleeper().sleep(until_s)
