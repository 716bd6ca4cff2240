"""Rests follow how late the loop is woken: short where it is woken in time, longer where the CPU is short."""

from __future__ import annotations

import pytest

from gossipd.runtime.turn_interval import REST_S_MAX, TURN_S, TurnInterval


def after(*late_s: float, chunk_time_s: float = 0.0) -> float:
    """The next rest."""
    turn_interval = TurnInterval()
    turn_interval.chunk_time_s = chunk_time_s
    for each in late_s:
        turn_interval.woken(each)
    return turn_interval.rest_s


def test_a_loop_that_is_woken_in_time_rests_for_a_beat() -> None:
    assert after() == TURN_S
    assert after(*[0.0005] * 100) == TURN_S


def test_a_loop_that_is_always_woken_late_rests_longer_up_to_the_most() -> None:
    assert after(*[0.004] * 100) == pytest.approx(0.04, rel=0.01)
    assert after(*[1.0] * 100) == REST_S_MAX


def test_one_late_rest_changes_little_and_one_pause_of_the_host_is_forgotten() -> None:
    assert after(*[0.0005] * 100, 0.008) < 2 * TURN_S
    rests = [after(30.0, *[0.0005] * count) for count in range(40)]
    assert rests[-1] == TURN_S
    assert sum(rests) < 2.0


def test_the_rest_is_most_of_a_chunk_time_within_its_bounds() -> None:
    assert after(chunk_time_s=0.04) == pytest.approx(0.03)
    assert after(chunk_time_s=0.001) == TURN_S
    assert after(chunk_time_s=2.0) == REST_S_MAX
