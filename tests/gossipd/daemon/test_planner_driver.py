"""The planner's turn: plans at its deadlines, at events, and when told to look again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import trio
import trio.testing

from gossipd.core.events import Command, Event, SlotsChanged
from gossipd.daemon.planner_driver import PlannerDriver
from gossipd.runtime.turn_loop import TurnLoop
from gossipd.swarm.planner import Planner


class FakePlanner:
    """Notes when it plans. Its deadline counts from when it is asked, as the planner's does while all are busy."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s
        self.heard: list[Event] = []
        self.planned: list[float] = []

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
        driver.post(SlotsChanged(3))
        driver.post(SlotsChanged(4))
        await trio.testing.wait_all_tasks_blocked()
        assert planner.heard == [SlotsChanged(3), SlotsChanged(4)]
        assert planner.planned == [trio.current_time()]


async def test_an_event_of_a_later_time_is_heard_then(autojump_clock: trio.testing.MockClock) -> None:
    planner = FakePlanner(100)
    async with running(planner) as driver:
        begun_s = trio.current_time()
        driver.post(SlotsChanged(3), 20.0)
        driver.post(SlotsChanged(4), 10.0)
        driver.post(SlotsChanged(5))
        for seconds, heard in ((9.0, [5]), (11.0, [5, 4]), (21.0, [5, 4, 3])):
            await trio.sleep_until(begun_s + seconds)
            assert planner.heard == [SlotsChanged(free) for free in heard]


async def test_it_plans_when_told_to_look_again(autojump_clock: trio.testing.MockClock) -> None:
    planner = FakePlanner(100)
    async with running(planner) as driver:
        planner.planned.clear()
        driver.look_again()
        await trio.testing.wait_all_tasks_blocked()
        assert planner.planned == [trio.current_time()]
