"""Bulk threads give way to the loop, and to nobody's surprise only they do; a daemon's threads interrupt nobody."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from gossipd.daemon.executor import pool_with_threads
from gossipd.runtime.thread_priority import BULK_NICE_VALUE, lower_priority, use_batch_policy


def nice_value() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_a_thread_that_gives_way_is_nicer_than_the_process_and_those_that_it_starts_are_too() -> None:
    own = nice_value()
    with ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            pool.submit(lower_priority).result()
            assert pool.submit(nice_value).result() == own + BULK_NICE_VALUE
        with pool.submit(ThreadPoolExecutor, 1).result() as others:
            assert pool.submit(lambda: others.submit(nice_value).result()).result() == own + BULK_NICE_VALUE
    assert nice_value() == own


def test_a_thread_that_interrupts_nobody_waits_for_its_turn_and_so_do_those_that_it_starts() -> None:
    def policy() -> int:
        return os.sched_getscheduler(0)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(use_batch_policy).result()
        assert pool.submit(policy).result() == os.SCHED_BATCH
        with pool.submit(ThreadPoolExecutor, 1).result() as others:
            assert pool.submit(lambda: others.submit(policy).result()).result() == os.SCHED_BATCH
    assert policy() == os.SCHED_OTHER


def test_a_policy_that_somebody_has_chosen_stays() -> None:
    def chosen() -> int:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        use_batch_policy()
        return os.sched_getscheduler(0)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(chosen).result() == os.SCHED_IDLE


def test_a_pool_has_all_its_threads_before_it_has_work_and_they_give_way() -> None:
    before = threading.active_count()
    pool = pool_with_threads(5, "bulk")
    try:
        assert threading.active_count() == before + 5
        assert pool.submit(nice_value).result() == nice_value() + BULK_NICE_VALUE
    finally:
        pool.shutdown()


def test_a_pool_makes_do_with_the_threads_that_the_system_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = iter(range(3))
    start = threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if next(starts, None) is None:
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", limited)
        pool = pool_with_threads(5, "bulk")
    try:
        assert [pool.submit(lambda: 7).result(timeout=10.0) for _ in range(8)] == [7] * 8
    finally:
        pool.shutdown()
