"""Which hook runs next, by values."""

from __future__ import annotations

from gossipd.daemon.hook_queue import RETRY_S, WAITING_MAX, HookFact, HookQueue

COMMANDS = {"complete": ("a",), "failed": (), "alarm": ("b",)}


def fact(number: int, kind: str = "complete") -> HookFact:
    return HookFact(kind, (("version", number),))


def test_each_fact_is_told_once_in_its_order() -> None:
    queue = HookQueue()
    queue.note([fact(1), fact(2)], COMMANDS)
    queue.note([fact(2), fact(1), fact(3)], COMMANDS)
    told = []
    while (one := queue.next(0.0)) is not None:
        told.append(one)
        queue.ended(None, 0.0)
    assert told == [fact(1), fact(2), fact(3)]
    assert queue.figures.done == 3


def test_a_fact_without_a_command_is_not_told_when_one_is_set_later() -> None:
    queue = HookQueue()
    queue.note([fact(1, "failed")], COMMANDS)
    queue.note([fact(1, "failed")], {"failed": ("c",)})
    assert queue.next(0.0) is None


def test_a_failing_hook_is_tried_again_and_given_up_before_the_next() -> None:
    queue, now = HookQueue(), 0.0
    queue.note([fact(1), fact(2)], COMMANDS)
    for pause_s in RETRY_S:
        assert queue.next(now) == fact(1)
        queue.ended("ended with 1", now)
        assert queue.next(now + pause_s / 2) is None
        now += pause_s
    queue.ended("ended with 1", now)
    assert queue.next(now) == fact(2)
    assert (queue.figures.failed, queue.figures.last_failure) == (1, "ended with 1")


def test_a_flood_of_facts_is_bounded_and_counted() -> None:
    queue = HookQueue()
    queue.note([fact(number, "alarm") for number in range(WAITING_MAX + 5)], COMMANDS)
    assert queue.waiting == WAITING_MAX
    assert queue.figures.dropped == 5
