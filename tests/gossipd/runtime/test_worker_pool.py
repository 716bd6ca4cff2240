"""A pool of threads: it grows with the work, shrinks at rest, and tells of what fails."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from queue import Queue

import pytest

from gossipd.runtime.system_refusals import NoThreadError
from gossipd.runtime.thread_priority import BULK_NICE_VALUE
from gossipd.runtime.worker_pool import WorkerPool

PATIENCE_S = 120.0


class Bench:
    """A pool whose jobs wait until the test lets them go."""

    def __init__(self, threads_max: int = 5, idle_s: float = PATIENCE_S) -> None:
        self.failures: Queue[BaseException] = Queue()
        self.begun: Queue[int] = Queue()
        self.go = threading.Event()
        self.pool = WorkerPool(threads_max, "bulk", self.failures.put, idle_s=idle_s)

    def hold(self, number: int) -> None:
        self.begun.put(number)
        assert self.go.wait(PATIENCE_S)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.go.set()
    made.pool.close()


def test_threads_come_with_the_work_up_to_the_limit(bench: Bench) -> None:
    assert len(bench.pool) == 1
    for number in range(8):
        bench.pool.submit(bench.hold, number)
    assert sorted(bench.begun.get(timeout=PATIENCE_S) for _ in range(5)) == [0, 1, 2, 3, 4]
    assert (len(bench.pool), bench.begun.empty()) == (5, True), "the rest waits for a thread"
    bench.go.set()
    assert [bench.begun.get(timeout=PATIENCE_S) for _ in range(3)] == [5, 6, 7]


def test_what_is_queued_begins_when_threads_are_woken(bench: Bench) -> None:
    bench.pool.submit(bench.hold, 0)
    assert bench.begun.get(timeout=PATIENCE_S) == 0
    for number in (1, 2):
        bench.pool.queue(bench.hold, number)
    assert bench.begun.empty()
    bench.pool.wake()
    assert sorted(bench.begun.get(timeout=PATIENCE_S) for _ in range(2)) == [1, 2]


def test_the_thread_that_fell_idle_last_goes_first_so_that_the_others_can_end(bench: Bench) -> None:
    used: Queue[int] = Queue()
    for number in range(4):
        bench.pool.submit(bench.hold, number)
    for _ in range(4):
        bench.begun.get(timeout=PATIENCE_S)
    bench.go.set()
    while len(bench.pool._idle) < len(bench.pool):
        os.sched_yield()
    for _ in range(8):
        bench.pool.submit(lambda: used.put(threading.get_native_id()))
        first = used.get(timeout=PATIENCE_S)
        while len(bench.pool._idle) < len(bench.pool):
            os.sched_yield()
        bench.pool.submit(lambda: used.put(threading.get_native_id()))
        assert used.get(timeout=PATIENCE_S) == first
        while len(bench.pool._idle) < len(bench.pool):
            os.sched_yield()


def test_the_submitter_starts_no_thread(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    start, starters = threading.Thread.start, []

    def noted(thread: threading.Thread) -> None:
        starters.append(threading.current_thread())
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noted)
    for number in range(3):
        bench.pool.submit(bench.hold, number)
    for _ in range(3):
        bench.begun.get(timeout=PATIENCE_S)
    assert starters
    assert threading.main_thread() not in starters


def test_idle_threads_end_until_one_is_left() -> None:
    bench = Bench(idle_s=0.02)
    for number in range(4):
        bench.pool.submit(bench.hold, number)
    for _ in range(4):
        bench.begun.get(timeout=PATIENCE_S)
    bench.go.set()
    many = [thread for thread in threading.enumerate() if thread.name == "bulk"]

    for thread in many:
        thread.join(1.0 if len(bench.pool) > 1 else 0.0)
    assert len(bench.pool) == 1

    bench.pool.submit(bench.hold, 9)
    assert bench.begun.get(timeout=PATIENCE_S) == 9, "and it still works"
    bench.pool.close()
    assert len(bench.pool) == 0


def test_what_fails_is_told_and_the_thread_goes_on(bench: Bench) -> None:
    def fail() -> None:
        raise ValueError("a bug")

    bench.pool.submit(fail)
    bench.pool.submit(bench.begun.put, 7)
    assert str(bench.failures.get(timeout=PATIENCE_S)) == "a bug"
    assert bench.begun.get(timeout=PATIENCE_S) == 7


def test_threads_give_way_to_the_event_loop(bench: Bench) -> None:
    values: Queue[int] = Queue()
    bench.pool.submit(lambda: values.put(os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))
    assert values.get(timeout=PATIENCE_S) == os.getpriority(os.PRIO_PROCESS, os.getpid()) + BULK_NICE_VALUE


def test_closing_drops_what_waits_and_ends_what_runs(bench: Bench) -> None:
    for number in range(7):
        bench.pool.submit(bench.hold, number)
    for _ in range(5):
        bench.begun.get(timeout=PATIENCE_S)
    bench.go.set()
    bench.pool.close()
    bench.pool.submit(bench.hold, 99)
    assert len(bench.pool) == 0
    assert 99 not in list(bench.begun.queue)


def test_a_pool_makes_do_with_the_threads_that_the_system_allows(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        for number in range(8):
            bench.pool.submit(bench.begun.put, number)
        assert [bench.begun.get(timeout=PATIENCE_S) for _ in range(8)] == list(range(8))
    assert len(bench.pool) == 1


def test_a_pool_without_its_first_thread_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(NoThreadError):
        WorkerPool(3, "bulk", lambda error: None)
