"""When the room for models is told: coarsely, and not each time that it changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from gossipd.daemon.free_space import TOLD_AGAIN_S, FreeSpace
from gossipd.swarm.capabilities import NodeCapabilities, free_bytes, free_step

GIB = 1 << 30


def test_it_is_told_once_in_a_while_without_the_reserve() -> None:
    told: list[int] = []
    free = SimpleNamespace(free_bytes=9 * GIB)
    space = FreeSpace(
        cast(Any, SimpleNamespace(statistics=lambda: free)),
        cast(Any, SimpleNamespace(config=SimpleNamespace(store=SimpleNamespace(reserve_bytes=GIB)))),
        cast(Any, SimpleNamespace(tell_free_space=told.append)),
    )
    space.look(0.0)
    free.free_bytes = 0
    space.look(TOLD_AGAIN_S - 1)
    assert told == [free_step(8 * GIB)]
    space.look(TOLD_AGAIN_S)
    assert [free_bytes(step) for step in told] == [8 * GIB, 0]


def test_a_step_tells_never_more_than_there_is_and_at_most_a_sixth_less() -> None:
    for amount in (1 << 20, 3 * GIB, 123_456_789_012, 1 << 44):
        told = free_bytes(free_step(amount)) or 0
        assert 0.84 * amount < told <= amount or amount == 1 << 20
    assert free_bytes(0) is None


def test_the_step_travels_behind_the_prints() -> None:
    said = NodeCapabilities(True, 3, prints=bytes(20), free_step=77)
    assert NodeCapabilities.from_bytes(said.to_bytes()) == said
    assert NodeCapabilities.from_bytes(said.to_bytes()[:-1]).free_step == 0
