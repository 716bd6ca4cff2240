"""Blocking calls of the event loop, in trio's worker threads, also while the system refuses new threads.

What lives here: one call. What does not: the threads that move bytes (``transfer``, ``daemon.planner_executor``).

trio keeps idle threads for ten seconds, so a daemon often needs a new one. Under a limit of processes (``ulimit -u``, a
pids cgroup, systemd's TasksMax) the system may refuse, which would end the daemon. The call has not begun then, so it
waits and is tried again, while everything else goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import trio

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_AGAIN_S = 0.5
_REFUSAL = "can't start new thread"  # CPython, all versions; the class is a bare RuntimeError
_waiting = 0


async def run_blocking(
    call: Callable[[*Ts], T], *args: *Ts, limiter: trio.CapacityLimiter | None = None, abandon_on_cancel: bool = False
) -> T:
    """``trio.to_thread.run_sync`` that waits while no thread can be started."""
    global _waiting  # noqa: PLW0603 - one process, one system that gives it threads
    has_begun = False

    def run() -> T:
        nonlocal has_begun
        has_begun = True
        return call(*args)

    while True:
        try:
            return await trio.to_thread.run_sync(run, limiter=limiter, abandon_on_cancel=abandon_on_cancel)
        except RuntimeError as error:
            if has_begun or str(error) != _REFUSAL:
                raise
        _waiting += 1
        try:
            await trio.sleep(_AGAIN_S)
        finally:
            _waiting -= 1


def calls_without_a_thread() -> int:
    """How many calls wait for a thread now."""
    return _waiting
