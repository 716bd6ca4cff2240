"""The rule by values."""

from __future__ import annotations

from membership.unsealed_rate import FILTER_S, UNSEALED_PER_S, UnsealedRate


def test_a_second_with_too_many_is_a_flood_for_a_while() -> None:
    rate = UnsealedRate()
    assert not rate.is_flood(0, 100.0)
    assert not rate.is_flood(UNSEALED_PER_S, 100.9)
    assert rate.is_flood(UNSEALED_PER_S + 1, 101.0)
    assert rate.is_flood(UNSEALED_PER_S + 1, 101.0 + FILTER_S - 0.01)
    assert not rate.is_flood(UNSEALED_PER_S + 1, 101.0 + FILTER_S)


def test_the_same_number_over_more_seconds_is_no_flood() -> None:
    rate = UnsealedRate()
    assert not any(rate.is_flood(second * UNSEALED_PER_S, 1.01 * second) for second in range(100))


def test_a_flood_that_goes_on_is_one_again_after_the_filter() -> None:
    rate = UnsealedRate()
    rate.is_flood(0, 0.0)
    assert rate.is_flood(UNSEALED_PER_S + 1, 0.5)
    assert not rate.is_flood(UNSEALED_PER_S + 2, 0.5 + FILTER_S)
    assert rate.is_flood(2 * UNSEALED_PER_S + 3, 0.6 + FILTER_S)
