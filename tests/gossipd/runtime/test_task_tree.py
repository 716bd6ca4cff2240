"""The tree of tasks of a real trio run."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from gossipd.runtime import task_tree as module
from gossipd.runtime.task_tree import task_tree


async def waits_for_ever() -> None:
    await trio.sleep_forever()


async def has_two_below() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waits_for_ever, name="second")
        nursery.start_soon(waits_for_ever, name="first")


async def test_each_task_stands_below_its_parent_with_the_line_it_waits_at() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(has_two_below, name="parent")
        await trio.testing.wait_all_tasks_blocked()
        rows = task_tree()
        nursery.cancel_scope.cancel()
    at = [row.name for row in rows].index("parent")
    parent, first, second = rows[at : at + 3]
    assert [parent.name, first.name, second.name] == ["parent", "first", "second"]
    assert [first.depth, second.depth] == [parent.depth + 1] * 2
    line = waits_for_ever.__code__.co_firstlineno + 1
    assert first.waits_at == f"{__name__}:{line} waits_for_ever"
    assert parent.waits_at.endswith(" has_two_below")
    assert rows[0].depth == 0


async def test_a_task_that_has_not_begun_waits_nowhere_and_rows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(waits_for_ever)
        rows = task_tree()
        monkeypatch.setattr(module, "ROWS_MAX", 10)
        assert len(task_tree()) == 10
        nursery.cancel_scope.cancel()
    assert len([row for row in rows if row.name.endswith(".waits_for_ever")]) == 20
