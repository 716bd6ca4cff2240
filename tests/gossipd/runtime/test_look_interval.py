"""Common moments of looks."""

from __future__ import annotations

import trio
import trio.testing

from gossipd.runtime.look_interval import next_look_s, until_next_look


async def test_tasks_with_intervals_that_divide_wake_at_one_moment(autojump_clock: trio.testing.MockClock) -> None:
    woken: list[float] = []

    async def look(interval_s: float, begins_s: float) -> None:
        await trio.sleep(begins_s)
        for _ in range(int(2 / interval_s)):
            await until_next_look(interval_s)
            woken.append(round(trio.current_time(), 6))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look, 0.25, 0.01)
        nursery.start_soon(look, 0.5, 0.13)
        nursery.start_soon(look, 1.0, 0.2)
    assert {moment % 0.25 for moment in woken} == {0.0}
    assert len(set(woken)) == 8


async def test_the_next_look_is_never_now(autojump_clock: trio.testing.MockClock) -> None:
    await until_next_look(0.5)
    now = trio.current_time()
    assert now < next_look_s(0.5) <= now + 0.5
