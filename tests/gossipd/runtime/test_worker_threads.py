"""Calls of the event loop in threads, when the system has none to give."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from unittest.mock import patch

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from gossipd.runtime.system_refusals import REFUSALS, NoThreadError
from gossipd.runtime.worker_threads import run_blocking, submitted


@contextmanager
def no_threads() -> Iterator[None]:
    """As the system refuses: trio's idle threads are of no use either."""

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    with patch.object(trio._threads, "start_thread_soon", refuse):
        yield


async def test_a_call_waits_for_a_thread_and_then_runs_once(autojump_clock: MockClock) -> None:
    ran: list[int] = []
    refused = REFUSALS.threads
    async with trio.open_nursery() as nursery:
        with no_threads():
            nursery.start_soon(run_blocking, ran.append, 7)
            await wait_all_tasks_blocked()
            await trio.sleep(5.0)
            assert ran == []
            assert REFUSALS.threads - refused > 5, "each try counts"
    assert ran == [7]


async def test_a_call_that_waits_for_a_thread_can_be_cancelled_and_gives_its_place_back(
    autojump_clock: MockClock,
) -> None:
    limiter = trio.CapacityLimiter(1)
    with no_threads(), trio.move_on_after(3.0) as scope:
        await run_blocking(threading.get_ident, limiter=limiter)
    assert scope.cancelled_caught
    assert await run_blocking(threading.get_ident, limiter=limiter) != threading.get_ident()


@pytest.mark.parametrize("words", ["can't start new thread", "something else"])
async def test_what_the_call_itself_raises_is_passed_on(words: str) -> None:
    def fail() -> None:
        raise RuntimeError(words)

    calls: list[Callable[[], None]] = [fail]
    with pytest.raises(RuntimeError, match=words):
        await run_blocking(calls.pop())


@pytest.mark.parametrize("given", [0, 1, 3])
def test_work_is_done_by_as_many_threads_as_there_are(given: int) -> None:
    left = given
    start = threading.Thread.start

    def some(thread: threading.Thread) -> None:
        nonlocal left
        if not left:
            raise RuntimeError("can't start new thread")
        left -= 1
        start(thread)

    held, refused = threading.Event(), REFUSALS.threads

    def wait() -> None:
        held.wait()

    with patch.object(threading.Thread, "start", some), ThreadPoolExecutor(3) as pool:
        if not given:
            with pytest.raises(NoThreadError):
                submitted(pool, lambda: None, 3)
        else:
            assert len(submitted(pool, wait, 3)) == given
        held.set()
    assert REFUSALS.threads - refused == (given < 3)
