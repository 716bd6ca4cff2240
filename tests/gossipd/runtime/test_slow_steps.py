"""Which task, and which part of a turn, held up the loop."""

from __future__ import annotations

import functools

import pytest
import trio

from gossipd.runtime import slow_steps
from gossipd.runtime.slow_steps import TASKS_MAX, SlowSteps, SlowTask
from gossipd.runtime.turn_loop import Phase, TurnLoop


class Clocks:
    """Time passes when a step says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_s = self.cpu_s = 0.0
        monkeypatch.setattr(slow_steps, "perf_counter", lambda: self.wall_s)
        monkeypatch.setattr(slow_steps, "thread_time", lambda: self.cpu_s)
        monkeypatch.setattr("gossipd.runtime.turn_loop.perf_counter", lambda: self.wall_s)

    def spend(self, wall_s: float, cpu_s: float) -> None:
        self.wall_s += wall_s
        self.cpu_s += cpu_s


async def holder(clocks: Clocks, *steps: tuple[float, float]) -> None:
    for wall_s, cpu_s in steps:
        clocks.spend(wall_s, cpu_s)
        await trio.lowlevel.checkpoint()


NAME = "tests.gossipd.runtime.test_slow_steps.holder"


async def test_a_task_whose_steps_take_long_is_named_with_the_most_that_one_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks, slow = Clocks(monkeypatch), SlowSteps()
    trio.lowlevel.add_instrument(slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(holder, clocks, (0.015625, 0.015625), (0.5, 0.03125), (0.0625, 0.0625))
    trio.lowlevel.remove_instrument(slow)
    assert slow.tasks == {NAME: SlowTask(2, 0.5, 0.0625)}


async def test_quick_steps_cost_few_looks_at_the_threads_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks, slow = Clocks(monkeypatch), SlowSteps()
    looks: list[float] = []

    def thread_time() -> float:
        looks.append(clocks.cpu_s)
        return clocks.cpu_s

    monkeypatch.setattr(slow_steps, "thread_time", thread_time)
    trio.lowlevel.add_instrument(slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(holder, clocks, *([(0.0001, 0.00005)] * 500 + [(0.5, 0.25)]))
    trio.lowlevel.remove_instrument(slow)
    assert len(looks) <= 12
    [(_, task)] = slow.tasks.items()
    assert task.steps == 1
    assert task.longest_s == pytest.approx(0.5)
    assert task.cpu_s == pytest.approx(0.25, abs=0.005)


async def test_of_the_turn_loop_the_part_is_named_that_took_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks, slow = Clocks(monkeypatch), SlowSteps()

    def quick(_now: float) -> bool:
        clocks.spend(0.01, 0.01)
        return False

    def long(clocks: Clocks, _now: float) -> bool:
        clocks.spend(0.04, 0.04)
        return False

    turn_loop = TurnLoop(slow=slow)
    trio.lowlevel.add_instrument(slow)
    with turn_loop.joined(Phase.HEAR, quick), turn_loop.joined(Phase.SAY, functools.partial(long, clocks)):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turn_loop.run)
            await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
    trio.lowlevel.remove_instrument(slow)
    [(name, task)] = slow.tasks.items()
    assert name.endswith("test_of_the_turn_loop_the_part_is_named_that_took_longest.<locals>.long")
    assert task.steps >= 1


def test_the_figures_are_bounded() -> None:
    slow = SlowSteps()
    for number in range(2 * TASKS_MAX):
        slow._note(f"task {number}", 1.0, 1.0)
    slow._note("task 1", 2.0, 1.0)
    assert len(slow.tasks) == TASKS_MAX
    assert slow.tasks["task 1"] == SlowTask(2, 2.0, 1.0)
