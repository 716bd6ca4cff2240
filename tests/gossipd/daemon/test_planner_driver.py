"""The planner's turn: plans at its deadlines, at events, and when told to look again."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import trio
import trio.testing

from gossipd.core.events import Command, Event, IsolationChanged
from gossipd.daemon.planner_driver import PlannerDriver
from gossipd.runtime.turn_loop import TurnLoop
from gossipd.swarm.planner import Planner


class FakePlanner:
    """Notes when it plans. Its deadline counts from when it is asked, as the planner's does while all are busy."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s
        self.heard: list[Event] = []
        self.planned: list[float] = []
        self.free_slots = 0

    def handle(self, event: Event, _now: float) -> None:
        self.heard.append(event)

    def plan(self, now: float) -> None:
        self.planned.append(now)

    def drain(self) -> list[Command]:
        return []

    def next_deadline(self, now: float) -> float:
        return now + self.pause_s

    def chunk_time_s(self) -> float:
        return 0.0


@asynccontextmanager
async def running(planner: FakePlanner) -> AsyncIterator[PlannerDriver]:
    """A driver on a turn loop, a second after its start."""
    turn_loop = TurnLoop()
    driver = PlannerDriver(cast(Planner, planner), turn_loop)
    nothing = SimpleNamespace(perform=lambda command: None, note=lambda event: None, start_threads=lambda: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn_loop.run)
        nursery.start_soon(driver.run, nothing)
        await trio.sleep(1)
        yield driver
        nursery.cancel_scope.cancel()


async def test_a_deadline_that_counts_from_now_is_kept(autojump_clock: trio.testing.MockClock) -> None:
    planner = FakePlanner(0.05)
    async with running(planner):
        assert 19 <= len(planner.planned) <= 21


async def test_events_are_heard_at_once_and_before_the_plan(autojump_clock: trio.testing.MockClock) -> None:
    planner = FakePlanner(100)
    async with running(planner) as driver:
        planner.planned.clear()
        driver.post(IsolationChanged(True))
        driver.post(IsolationChanged(False))
        await trio.testing.wait_all_tasks_blocked()
        assert planner.heard == [IsolationChanged(True), IsolationChanged(False)]
        assert planner.planned == [trio.current_time()]


async def test_free_slots_are_taken_along_and_worth_no_turn(autojump_clock: trio.testing.MockClock) -> None:
    planner = FakePlanner(100)
    async with running(planner) as driver:
        planner.planned.clear()
        driver.free_slots = 3
        await trio.sleep(10)
        assert (planner.planned, planner.free_slots) == ([], 0)
        driver.post(IsolationChanged(True))
        await trio.testing.wait_all_tasks_blocked()
        assert (len(planner.planned), planner.free_slots) == (1, 3)


async def test_threads_know_the_time_by_which_it_plans() -> None:
    driver = PlannerDriver(cast(Planner, FakePlanner(100)), TurnLoop())
    before = trio.current_time()
    told = time.monotonic() + driver.clock_ahead_s
    assert before - 1e-6 <= told <= trio.current_time() + 1e-6


async def test_it_plans_when_told_to_look_again(autojump_clock: trio.testing.MockClock) -> None:
    planner = FakePlanner(100)
    async with running(planner) as driver:
        planner.planned.clear()
        driver.look_again()
        await trio.testing.wait_all_tasks_blocked()
        assert planner.planned == [trio.current_time()]
