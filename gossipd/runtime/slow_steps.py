"""What holds up the event loop: the tasks, and the parts of the turn loop, whose steps took long.

What lives here: an instrument of trio, and its figures. What does not: how late the loop is (``api.counters``), which
shows that something holds it up, but not what.

A step that took long and little CPU time waited: for the interpreter's lock, or because other processes had the
machine. Nothing is noted of a step that was quick, which is nearly every one: its price is two looks at a clock. The
thread's CPU time is looked at seldom, because that is a system call. That of a slow step is what the thread has used
since the last look, less the time of the quick steps in between.
"""

from __future__ import annotations

import math
from time import perf_counter, thread_time

import trio
from msgspec import Struct

STEP_S = 0.02  # the aim for the p99 of the loop's lag
# Of quick steps, after which the thread's CPU time is looked at: what trio takes between them counts, too.
_LOOK_S = 0.005
TASKS_MAX = 32


class SlowTask(Struct):
    """The slow steps of one task since the start. ``cpu_s``: the most CPU time that one of them took."""

    steps: int = 0
    longest_s: float = 0.0
    cpu_s: float = 0.0


class SlowSteps(trio.abc.Instrument):
    """One per daemon, added to trio; on the loop."""

    def __init__(self) -> None:
        self.tasks: dict[str, SlowTask] = {}
        self._begun_s = math.inf  # not of the step that adds the instrument
        self._cpu_s, self._quick_s = thread_time(), 0.0
        self._part, self._part_s = "", 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._part = ""
        self._begun_s = perf_counter()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        took_s = perf_counter() - self._begun_s
        if took_s >= STEP_S:
            self._note(self._part or task.name, took_s, min(took_s, max(0.0, self._look() - self._quick_s)))
        elif took_s > 0.0:
            self._quick_s += took_s
            if self._quick_s < _LOOK_S:
                return
            self._look()
        self._quick_s = 0.0

    def _look(self) -> float:
        """CPU seconds of the thread since the last look."""
        before_s, self._cpu_s = self._cpu_s, thread_time()
        return self._cpu_s - before_s

    def part_took(self, part: str, seconds: float) -> None:
        """A part of the present step took this long; the longest one names the step."""
        if not self._part or seconds > self._part_s:
            self._part, self._part_s = part, seconds

    def _note(self, name: str, took_s: float, cpu_s: float) -> None:
        task = self.tasks.get(name)
        if task is None:
            if len(self.tasks) >= TASKS_MAX:
                return
            task = self.tasks[name] = SlowTask()
        task.steps += 1
        task.longest_s, task.cpu_s = max(task.longest_s, took_s), max(task.cpu_s, cpu_s)
