"""Requests per second, by values."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gossipd.sources.request_rate import RequestRate


def taken(rate: RequestRate, times: list[float]) -> None:
    for at in times:
        rate.sent(at)
        rate.answered(at, at)


def test_without_a_refusal_there_is_no_limit() -> None:
    rate = RequestRate()
    taken(rate, [0.0] * 100)
    assert rate.wait_s(0.0) == 0.0


def test_the_first_rate_is_what_was_taken_in_the_second_before() -> None:
    rate = RequestRate()
    taken(rate, [0.0, 9.1, 9.2, 9.3, 9.4, 9.5])
    rate.refused(9.6, 9.6)
    assert rate.rate == pytest.approx(4.8)
    assert 0.2 <= rate.wait_s(9.6) <= 0.22


def test_a_refusal_of_a_request_that_was_sent_before_the_change_says_nothing() -> None:
    rate = RequestRate()
    taken(rate, [0.1, 0.2, 0.3, 0.4])
    rate.refused(0.5, 0.5)
    before = rate.rate
    rate.refused(0.45, 0.6)
    assert rate.rate == before


def test_requests_go_out_at_even_distances() -> None:
    rate = RequestRate()
    taken(rate, [0.1, 0.2, 0.3, 0.4])
    rate.refused(0.5, 0.5)
    now, sent = 0.5, []
    for _ in range(5):
        now += rate.wait_s(now)
        rate.sent(now)
        sent.append(now)
    gaps = [later - earlier for earlier, later in pairwise(sent)]
    assert gaps == pytest.approx([1 / 3.84] * 4)


def test_a_host_that_takes_nothing_teaches_no_rate() -> None:
    rate = RequestRate()
    rate.refused(1.0, 1.0)
    assert rate.rate is None


def test_refusals_at_any_rate_end_the_search() -> None:
    rate = RequestRate()
    taken(rate, [0.1, 0.2, 0.3, 0.4])
    now = 0.5
    for turn in range(60):
        rate.sent(now)
        if turn % 3:
            rate.answered(now, now + 0.01)
        else:
            rate.refused(now, now + 0.01)
        now += 0.01 + rate.wait_s(now + 0.01)
        if turn and rate.rate is None:
            break
    assert rate.rate is None
    rate.refused(now, now)
    assert rate.rate is None, "it is not searched again at once"


def test_of_a_host_that_has_taken_one_request_the_time_until_the_next_is_found_by_asking() -> None:
    rate = RequestRate()
    taken(rate, [10.0])
    rate.refused(10.001, 10.002)
    now, asked = 10.002, 0
    while True:
        now += rate.wait_s(now)
        rate.sent(now)
        asked += 1
        if now >= 10.2:  # five a second, counted from one request to the next
            break
        rate.refused(now, now + 0.002)
        now += 0.002
    rate.answered(now, now + 0.002)
    assert asked <= 4 and now <= 10.45, "the wait doubles"
    assert rate.rate is not None and 2.5 <= rate.rate <= 10.0
