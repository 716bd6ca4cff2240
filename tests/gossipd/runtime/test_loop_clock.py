"""One sleep, by the loop's own clock and by a cancel scope: both end at their time, at a wake, or with their task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from gossipd.runtime.loop_clock import LoopClock, Sleeper, make_sleeper, sleep_until

Scenario = Callable[[Sleeper], Awaitable[None]]


async def runs(scenario: Scenario) -> None:
    await scenario(make_sleeper())


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


def test_tasks_wake_in_the_order_of_their_times_and_those_that_are_over_wake_nobody(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(_sleeper: Sleeper) -> None:
        begun_s, woken = trio.current_time(), list[int]()

        async def sleep(place: int) -> None:
            # Further apart than a busy machine is late: trio shuffles tasks that are due at once.
            await sleep_until(begun_s + 0.2 * place)
            woken.append(place)

        async with trio.open_nursery() as nursery:
            for place in (5, 1, 3):
                nursery.start_soon(sleep, place)
            with trio.move_on_after(0.0):
                await sleep_until(begun_s + 0.1)
        assert woken == [1, 3, 5]

    play(scenario)


def test_a_sleep_that_was_ended_early_does_not_wake_the_loop_at_its_time() -> None:
    clock, waits = LoopClock(), list[float]()

    class Waits(trio.abc.Instrument):
        def before_io_wait(self, timeout: float) -> None:
            waits.append(timeout)

    async def scenario() -> None:
        for _ in range(100):
            with trio.move_on_after(0.0):
                await sleep_until(trio.current_time() + 0.02)
        await sleep_until(trio.current_time() + 0.05)

    trio.run(scenario, clock=clock, instruments=[clock, Waits()])
    assert len([one for one in waits if 0.0 < one < 10.0]) == 1
    assert clock.deadline_to_sleep_time(1e12) > 1e11, "nothing that is over is kept"


def test_sleeps_that_are_ended_long_before_their_time_do_not_pile_up() -> None:
    clock, most = LoopClock(), list[int]()

    async def scenario() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(sleep_until, trio.current_time() + 0.02)
            for _ in range(1000):
                with trio.move_on_after(0.0):
                    await sleep_until(trio.current_time() + 3600.0)
                most.append(len(clock._sleeps))

    trio.run(scenario, clock=clock, instruments=[clock])
    assert max(most) <= 100


def test_clocks_of_daemons_on_one_machine_differ() -> None:
    assert abs(LoopClock().current_time() - LoopClock().current_time()) > 0.01
