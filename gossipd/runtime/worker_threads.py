"""Blocking calls of the event loop, in trio's worker threads, also while the system refuses new threads.

What lives here: one call, and one piece of work in several threads. What does not: the threads that move bytes
(``transfer``, ``daemon.planner_executor``).

trio keeps idle threads for ten seconds, so a daemon often needs a new one. Under a limit of processes (``ulimit -u``, a
pids cgroup, systemd's TasksMax) the system may refuse, which would end the daemon. The call has not begun then, so it
waits and is tried again, while everything else goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

import trio

from gossipd.runtime.system_refusals import NO_THREADS, REFUSED_WORDS, NoThreadError, thread_refused

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_AGAIN_S = 0.5


async def run_blocking(
    call: Callable[[*Ts], T], *args: *Ts, limiter: trio.CapacityLimiter | None = None, abandon_on_cancel: bool = False
) -> T:
    """``trio.to_thread.run_sync`` that waits while no thread can be started."""
    has_begun = False

    def run() -> T:
        nonlocal has_begun
        has_begun = True
        return call(*args)

    while True:
        try:
            return await trio.to_thread.run_sync(run, limiter=limiter, abandon_on_cancel=abandon_on_cancel)
        except RuntimeError as error:
            if has_begun or str(error) != REFUSED_WORDS:
                raise
        thread_refused()
        await trio.sleep(_AGAIN_S)


def submitted(pool: ThreadPoolExecutor, work: Callable[[], None], threads: int) -> list[Future[None]]:
    """``work`` in as many threads, or in as many as the system gives. Raises NoThreadError when it gives none."""
    runs: list[Future[None]] = []
    try:
        runs.extend(pool.submit(work) for _ in range(threads))  # keeps those before a refusal
    except RuntimeError as error:
        if str(error) != REFUSED_WORDS:
            raise
        thread_refused()
        if not runs:
            raise NoThreadError(NO_THREADS) from None
    return runs
