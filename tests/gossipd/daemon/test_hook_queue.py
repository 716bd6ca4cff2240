"""Which hook runs next, by values."""

from __future__ import annotations

from gossipd.daemon.hook_queue import RETRY_S, WAITING_MAX, Hook, HookFact, HookQueue

DONE, ALARM = Hook("complete", ("a",)), Hook("alarm", ("b",))
HOOKS = [DONE, ALARM]


def fact(number: int, kind: str = "complete", name: str = "org/m") -> HookFact:
    return HookFact(kind, (("code" if kind == "alarm" else "name", name), ("version", number)))


def told(queue: HookQueue) -> list[tuple[Hook, HookFact]]:
    found = []
    while (one := queue.next(0.0)) is not None:
        found.append(one)
        queue.ended(None, 0.0)
    return found


def test_each_fact_is_told_once_in_its_order() -> None:
    queue = HookQueue()
    queue.note([fact(1), fact(2)], HOOKS)
    queue.note([fact(2), fact(1), fact(3)], HOOKS)
    queue.note([fact(1), fact(2), fact(3)], HOOKS)
    assert told(queue) == [(DONE, fact(1)), (DONE, fact(2)), (DONE, fact(3))]
    assert queue.figures.done == 3


def test_a_fact_without_a_hook_is_not_told_when_one_is_set_later() -> None:
    queue = HookQueue()
    queue.note([fact(1, "failed")], HOOKS)
    queue.note([fact(1, "failed")], [Hook("failed", ("c",))])
    assert queue.next(0.0) is None


def test_a_hook_runs_for_the_names_that_its_patterns_match() -> None:
    queue, train = HookQueue(), Hook("complete", ("t",), ("train/*", "run-?"))
    steps = Hook("alarm", ("s",), ("E_STEPS",))
    alarms = [fact(1, "alarm", "E_STEPS"), fact(2, "alarm", "E_DRIFT")]
    models = [fact(1, name="train/a/b"), fact(2, name="prod/a"), fact(3, name="run-7"), fact(4, name="run-70")]
    queue.note([*models, *alarms], [train, steps])
    assert told(queue) == [(train, models[0]), (train, models[2]), (steps, alarms[0])]


def test_a_fact_is_told_to_every_hook_that_is_for_it() -> None:
    queue, second = HookQueue(), Hook("complete", ("c",), ("org/*",))
    queue.note([fact(1)], [DONE, second])
    assert told(queue) == [(DONE, fact(1)), (second, fact(1))]


def test_a_corrected_command_takes_over_and_a_removed_hook_drops_what_waits() -> None:
    queue, other = HookQueue(), Hook("complete", ("c",), ("org/*",))
    queue.note([fact(1), fact(2)], [DONE, other])
    queue.ended("no such file", 0.0)
    corrected = Hook("complete", ("/bin/a",))
    queue.note([], [corrected, other])
    assert queue.next(0.0) is None  # it is still the second try, after its pause
    assert queue.next(RETRY_S[0]) == (corrected, fact(1))
    queue.note([], [other])
    assert queue.next(RETRY_S[0]) == (other, fact(1))
    queue.note([], [])
    assert queue.waiting == 0


def test_a_failing_hook_is_tried_again_and_given_up_before_the_next() -> None:
    queue, now = HookQueue(), 0.0
    queue.note([fact(1), fact(2)], HOOKS)
    for pause_s in RETRY_S:
        assert queue.next(now) == (DONE, fact(1))
        queue.ended("ended with 1", now)
        assert queue.next(now + pause_s / 2) is None
        now += pause_s
    queue.ended("ended with 1", now)
    assert queue.next(now) == (DONE, fact(2))
    assert (queue.figures.failed, queue.figures.last_failure) == (1, "ended with 1")


def test_a_flood_of_facts_is_bounded_and_counted() -> None:
    queue = HookQueue()
    flood = [fact(number, "alarm") for number in range(WAITING_MAX + 5)]
    queue.note(flood, HOOKS)
    assert (queue.waiting, queue.figures.dropped) == (WAITING_MAX, 0)
    queue.ended(None, 0.0)
    queue.note(flood, HOOKS)
    assert (queue.waiting, queue.figures.dropped) == (WAITING_MAX, 0), "the next one has its place"
    queue.note([], HOOKS)
    assert queue.figures.dropped == 4, "they ended before there was room"


def test_all_that_is_complete_at_a_start_is_told_however_much_it_is() -> None:
    queue, facts, found = HookQueue(), [fact(number) for number in range(3 * WAITING_MAX)], 0
    while True:
        queue.note(facts, HOOKS)
        if not (now := told(queue)):
            break
        found += len(now)
    assert (found, queue.figures.dropped) == (len(facts), 0)


def test_a_fact_that_begins_again_is_told_again_and_other_words_are_no_beginning() -> None:
    queue = HookQueue()
    first, reworded = (HookFact("alarm", (("code", "E_STEPS"), ("sentence", one)), ("E_STEPS", 1)) for one in "ab")
    for facts, count in (([first], 1), ([reworded], 0), ([], 0), ([reworded], 1)):
        queue.note(facts, HOOKS)
        assert len(told(queue)) == count
