"""How many requests may be under way, by values."""

from __future__ import annotations

from gossipd.sources.connection_limit import LEVELS_MAX, START, ConnectionLimit


def begun(limit: ConnectionLimit, count: int, now: float = 0.0) -> list[int]:
    """The levels of so many requests that begin."""
    levels = []
    for _ in range(count):
        assert limit.under_way < limit.places(now)
        levels.append(limit.begin())
    return levels


def climbed(count: int) -> ConnectionLimit:
    """A limit with that many requests under way, all answered many times."""
    limit = ConnectionLimit()
    for level in range(1, count + 1):
        assert begun(limit, 1) == [level]
        limit.answered(level)
    for _ in range(20):
        for level in range(1, count + 1):
            limit.answered(level)
    return limit


def test_each_answer_at_the_limit_adds_one_place() -> None:
    limit = ConnectionLimit()
    assert begun(limit, START) == [1, 2]
    assert limit.under_way == limit.places(0.0)
    limit.answered(1)
    assert limit.limit == START
    limit.answered(2)
    assert limit.limit == START + 1


def test_the_limit_never_goes_beyond_the_most() -> None:
    assert climbed(LEVELS_MAX).limit == LEVELS_MAX


def test_a_level_that_is_only_refused_is_left() -> None:
    limit = climbed(3)
    for _ in range(4):
        limit.begin()
        limit.refused(4, 1.0)
        limit.ended(4)
    assert limit.limit == 3


def test_a_third_of_refusals_leaves_the_limit() -> None:
    limit = climbed(8)
    for turn in range(300):
        if turn % 3:
            limit.answered(8)
        else:
            limit.refused(8, float(turn))
    assert limit.limit >= 8


def test_after_a_while_one_more_is_tried_and_a_refused_trial_doubles_the_while() -> None:
    limit = climbed(2)
    for _ in range(4):
        limit.refused(3, 0.0)
    limit = _full(limit)
    waits, now = [], 0.0
    for _ in range(4):
        began = now
        while limit.places(now) <= 2:
            now += 0.01
        waits.append(now - began)
        level = limit.begin()
        assert level == 3
        limit.refused(level, now)
        limit.ended(level)
    assert waits == sorted(waits)
    assert waits[-1] >= 4 * waits[0]


def _full(limit: ConnectionLimit) -> ConnectionLimit:
    while limit.under_way < limit.limit:
        limit.begin()
    return limit


def test_after_a_refused_trial_one_place_rests_for_another_seed() -> None:
    limit = climbed(2)
    for _ in range(4):
        limit.refused(3, 0.0)
    level = limit.begin()
    limit.refused(level, 10.0)
    limit.ended(level)
    assert limit.places(10.0) == 1
    assert limit.places(11.0) >= 2


def test_a_trial_that_is_answered_raises_the_limit() -> None:
    limit = ConnectionLimit()
    limit.begin()
    for _ in range(4):
        limit.refused(2, 0.0)
    assert limit.limit == 1
    now = 0.0
    while limit.places(now) == 1:
        now += 0.01
    level = limit.begin()
    limit.answered(level)
    assert (level, limit.limit) == (2, 2)


def test_slow_requests_in_a_row_halve_those_that_begin_down_to_one() -> None:
    limit = climbed(8)
    limit.was_slow(0.0, 5.0)
    assert limit.places(5.0) >= 8, "one alone may hang"
    limit.was_slow(0.0, 5.0)
    assert limit.places(5.0) == 4
    limit.was_slow(0.0, 5.1)
    assert limit.places(5.1) == 4, "it was sent among more"
    for sent_s in (6.0, 7.0):
        limit.was_slow(sent_s, sent_s + 0.5)
    assert limit.places(8.0) == 1 and limit.is_single


def test_each_quick_range_gives_a_slow_host_one_place_more() -> None:
    limit = climbed(2)
    for _ in range(2):
        limit.was_slow(0.0, 5.0)
    assert limit.places(5.0) == 1
    limit.range_came(1 << 20, 9.0, 1 << 16)
    limit.small_came(0.6)
    assert limit.places(5.0) == 1, "they came, and not quickly"
    limit.range_came(1 << 20, 7.9, 1 << 16)
    assert limit.places(5.0) == 2 and not limit.is_single
    limit.was_slow(6.0, 7.0)
    assert limit.places(7.0) == 2, "the row begins again"


def test_small_files_that_come_at_once_give_a_host_its_places_back() -> None:
    limit = climbed(8)
    for sent_s in (0.0, 0.0, 6.0, 12.0):
        limit.was_slow(sent_s, sent_s + 5.0)
    assert limit.places(18.0) == 1
    for _ in range(10):
        limit.small_came(0.06)
    assert limit.places(20.0) >= 8


def test_a_host_that_was_slow_is_tried_with_one_more_after_a_while_that_doubles() -> None:
    limit = climbed(8)
    for sent_s in (0.0, 0.0, 6.0, 12.0):
        limit.was_slow(sent_s, sent_s + 5.0)
    assert limit.places(17.0 + 39.0) == 1, "it was narrowed three times in a row"
    assert [limit.places(57.0 + 10 * more) for more in range(4)] == [2, 3, 4, 5]
