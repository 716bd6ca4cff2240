"""The tree of trio's tasks: which task runs below which, and the line of code at which each one waits.

What lives here: one look at all tasks, as rows. What does not: what holds up the loop (``slow_steps``).
"""

from __future__ import annotations

import trio
from msgspec import Struct

ROWS_MAX = 5000  # a task for each connection, some for each part


class TaskRow(Struct, frozen=True):
    """``depth``: 0 for trio's own root. ``waits_at``: the innermost code that is not trio's, as module, line and
    function; empty where a task has not begun."""

    depth: int
    name: str
    waits_at: str


def task_tree() -> list[TaskRow]:
    """Every task below its parent, by name. Called on the loop."""
    root = trio.lowlevel.current_root_task()
    waiting = [(0, root)] if root is not None else []
    rows: list[TaskRow] = []
    while waiting and len(rows) < ROWS_MAX:
        depth, task = waiting.pop()
        rows.append(TaskRow(depth, task.name, _waits_at(task)))
        below = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        waiting += [(depth + 1, child) for child in sorted(below, key=lambda one: one.name, reverse=True)]
    return rows


def _waits_at(task: trio.lowlevel.Task) -> str:
    place = ""
    for frame, line in task.iter_await_frames():
        module = frame.f_globals.get("__name__", "")
        if not module.startswith("trio."):
            place = f"{module}:{line} {frame.f_code.co_qualname}"
    return place
