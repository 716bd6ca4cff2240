"""Bulk threads give way to the loop, and to nobody's surprise only they do; a daemon's threads interrupt nobody."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

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
