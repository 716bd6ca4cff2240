"""One sleep, by the loop's own clock and by a cancel scope: both end at their time, at a wake, or with their task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from gossipd.runtime.loop_clock import LoopClock, Sleeper, sleeper_of_loop

Scenario = Callable[[Sleeper], Awaitable[None]]


async def runs(scenario: Scenario) -> None:
    await scenario(sleeper_of_loop())


@pytest.fixture(params=["loop clock", "cancel scope"])
def play(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    """Runs a scenario in a loop of its own."""

    def run(scenario: Scenario) -> None:
        if request.param == "cancel scope":
            trio.run(runs, scenario)
            return
        clock = LoopClock()
        trio.run(runs, scenario, clock=clock, instruments=[clock])

    return run


def test_a_sleep_ends_at_its_time_and_not_before(play: Callable[[Scenario], None]) -> None:
    async def scenario(sleeper: Sleeper) -> None:
        for _ in range(3):
            until_s = trio.current_time() + 0.01
            await sleeper.sleep(until_s)
            assert trio.current_time() >= until_s

    play(scenario)


def test_a_wake_ends_the_present_sleep_and_no_later_one(play: Callable[[Scenario], None]) -> None:
    async def scenario(sleeper: Sleeper) -> None:
        ended: list[str] = []

        async def sleep() -> None:
            await sleeper.sleep(trio.current_time() + 3600.0)
            ended.append("long")
            await sleeper.sleep(trio.current_time() + 3600.0)

        async with trio.open_nursery() as nursery:
            sleeper.wake()
            nursery.start_soon(sleep)
            await trio.testing.wait_all_tasks_blocked()
            assert ended == []
            sleeper.wake()
            await trio.testing.wait_all_tasks_blocked()
            assert ended == ["long"]
            nursery.cancel_scope.cancel()

    play(scenario)


def test_a_sleep_that_is_over_at_once_gives_others_a_turn(play: Callable[[Scenario], None]) -> None:
    async def scenario(sleeper: Sleeper) -> None:
        turns: list[int] = []

        async def other() -> None:
            for turn in range(3):
                turns.append(turn)
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            for _ in range(5):
                await sleeper.sleep(trio.current_time() - 1.0)
            assert turns

    play(scenario)


def test_a_task_that_is_cancelled_in_its_sleep_leaves_the_sleeper_to_another(play: Callable[[Scenario], None]) -> None:
    async def scenario(sleeper: Sleeper) -> None:
        with trio.move_on_after(0.005) as scope:
            await sleeper.sleep(trio.current_time() + 3600.0)
        assert scope.cancelled_caught
        until_s = trio.current_time() + 0.005
        await sleeper.sleep(until_s)
        assert trio.current_time() >= until_s

    play(scenario)


def test_other_tasks_sleep_by_the_clock_as_by_trios_own(play: Callable[[Scenario], None]) -> None:
    async def scenario(sleeper: Sleeper) -> None:
        order: list[str] = []

        async def other() -> None:
            await trio.sleep(0.005)
            order.append("other")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            await sleeper.sleep(trio.current_time() + 0.03)
            order.append("sleeper")
        assert order == ["other", "sleeper"]

    play(scenario)


def test_two_tasks_cannot_sleep_by_one_clock_at_once() -> None:
    async def scenario() -> None:
        sleeper = sleeper_of_loop()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleeper.sleep, trio.current_time() + 3600.0)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(RuntimeError, match="another task"):
                await sleeper.sleep(trio.current_time() + 1.0)
            nursery.cancel_scope.cancel()

    clock = LoopClock()
    trio.run(scenario, clock=clock, instruments=[clock])


def test_clocks_of_daemons_on_one_machine_differ() -> None:
    assert abs(LoopClock().current_time() - LoopClock().current_time()) > 0.01
