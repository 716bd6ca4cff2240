"""When a host may be asked, by values."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from gossipd.sources.pace import FOLLOWER_WAIT_S, Pace
from gossipd.sources.settings import SourceSettings

SETTINGS = SourceSettings()


def failing(times: int, *, now: float = 100.0) -> tuple[Pace, float]:
    """A pace after so many failures in a row, and the time of the last."""
    pace = Pace(SETTINGS, Random(1))
    pace.failed(now)
    for _ in range(times - 1):
        now += pace.wait_s(now)
        assert pace.wait_s(now) == 0.0
        pace.failed(now)
    return pace, now


def test_a_host_that_answers_is_asked_without_waiting() -> None:
    pace = Pace(SETTINGS, Random(1))
    assert [pace.wait_s(1.0) for _ in range(5)] == [0.0] * 5


@pytest.mark.parametrize("times", [1, 2, 3, 5, 20])
def test_each_failure_doubles_the_pause_up_to_the_longest(times: int) -> None:
    pace, now = failing(times)
    ceiling = min(SETTINGS.backoff_max_s, SETTINGS.backoff_first_s * 2 ** (times - 1))
    assert ceiling / 2 <= pace.wait_s(now) <= ceiling


def test_two_seeds_do_not_come_back_together() -> None:
    one, other = Pace(SETTINGS, Random(1)), Pace(SETTINGS, Random(2))
    one.failed(0.0)
    other.failed(0.0)
    assert one.wait_s(0.0) != other.wait_s(0.0)


def test_failures_of_requests_that_were_under_way_together_count_once() -> None:
    pace = Pace(SETTINGS, Random(1))
    for _ in range(8):
        pace.failed(100.0)
    assert pace.failures == 1


def test_after_the_pause_one_goes_first_and_the_others_wait_for_it() -> None:
    pace, now = failing(1)
    later = now + 1.0
    assert pace.wait_s(later) == 0.0
    assert pace.wait_s(later) == FOLLOWER_WAIT_S
    pace.succeeded()
    assert [pace.wait_s(later) for _ in range(3)] == [0.0] * 3


def test_a_scout_that_was_stopped_is_replaced() -> None:
    pace, now = failing(1)
    assert pace.wait_s(now + 1.0) == 0.0
    pace.left()
    assert pace.wait_s(now + 1.0) == 0.0


def test_retry_after_is_obeyed_within_its_limit() -> None:
    pace = Pace(SETTINGS, Random(1))
    pace.failed(100.0, retry_after_s=7.0)
    assert 7.0 <= pace.wait_s(100.0) <= 7.7
    pace = Pace(SETTINGS, Random(1))
    pace.failed(100.0, retry_after_s=86400.0)
    assert pace.wait_s(100.0) <= SETTINGS.retry_after_max_s * 1.1


def test_repeats_are_a_tenth_of_good_requests_once_the_reserve_is_used() -> None:
    pace = Pace(replace(SETTINGS, retry_reserve=2.0), Random(1))
    assert [pace.take_retry() for _ in range(3)] == [True, True, False]
    granted = 0
    for _ in range(1000):
        pace.succeeded()
        granted += pace.take_retry()
    assert 99 <= granted <= 101
