"""When tasks that look at something now and then do so: at common moments, so that one wake-up serves all of them.

What lives here: the moments, multiples of an interval on the loop's clock. What does not: what is looked at, and the
turns of the loop while anything happens (``turn_loop``).
"""

from __future__ import annotations

import math

import trio

from gossipd.runtime.loop_clock import sleep_until


def next_look_s(interval_s: float, *, delay_s: float = 0.0) -> float:
    """The loop's time of the first look after ``delay_s``, at most ``interval_s`` later."""
    return (math.floor((trio.current_time() + delay_s) / interval_s) + 1) * interval_s


async def until_next_look(interval_s: float) -> None:
    """Sleep until the next multiple of ``interval_s``, above 0. Intervals of tasks should divide each other."""
    await sleep_until(next_look_s(interval_s))
