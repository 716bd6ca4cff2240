"""By how much a clock is off, by values: most decide, liars do not."""

from __future__ import annotations

import pytest

from gossipd.deployment.cluster_clock import FRESH_S, WRONG_S, ClusterClock
from membership.member import NodeId

WALL_S = 1_800_000_000.0


def clock_after(*peers_ahead_s: float, own_ahead_s: float = 0.0) -> ClusterClock:
    """Peers whose clocks are ahead by so much have told at second 100 of ours; look at second 110."""
    clock = ClusterClock()
    for number, ahead_s in enumerate(peers_ahead_s):
        clock.heard(NodeId(bytes([number]) * 16), WALL_S + ahead_s, 100.0)
    clock.look(WALL_S + 10.0 + own_ahead_s, 110.0)
    return clock


@pytest.mark.parametrize("off_s", [-7_200.0, 7_200.0])
def test_a_clock_that_most_others_contradict_is_wrong(off_s: float) -> None:
    clock = clock_after(0.0, 1.0, -1.0, own_ahead_s=off_s)
    assert clock.is_wrong
    assert clock.offset_s == pytest.approx(off_s, abs=2.0)
    assert clock.true_s(WALL_S + off_s) == pytest.approx(WALL_S, abs=2.0)
    assert clock.latest_s(WALL_S + off_s) == pytest.approx(max(WALL_S, WALL_S + off_s), abs=2.0)


@pytest.mark.parametrize("others", [(), (7_200.0,), (7_200.0, 0.0), (7_200.0, 7_200.0, 0.0), (9e9, -9e9)])
def test_liars_that_are_not_most_of_all_hosts_change_nothing(others: tuple[float, ...]) -> None:
    clock = clock_after(*others)
    assert not clock.is_wrong
    assert clock.true_s(WALL_S) == WALL_S


def test_liars_do_not_hide_a_wrong_clock() -> None:
    assert clock_after(0.0, 0.0, 0.0, 7_200.0, own_ahead_s=7_200.0).is_wrong


def test_a_step_of_the_own_clock_shows_without_another_word() -> None:
    clock = clock_after(0.0, 0.0)
    clock.look(WALL_S + 7_211.0, 111.0)
    assert clock.is_wrong
    clock.look(WALL_S + 12.0, 112.0)
    assert not clock.is_wrong


def test_old_words_count_no_longer_and_a_little_is_no_error() -> None:
    clock = clock_after(0.0, 0.0, own_ahead_s=7_200.0)
    clock.look(WALL_S + 7_200.0 + FRESH_S + 1.0, 100.0 + FRESH_S + 1.0)
    assert (clock.is_wrong, clock.hosts) == (False, 0)
    assert not clock_after(0.0, 0.0, own_ahead_s=WRONG_S - 1.0).is_wrong
    assert clock_after(0.0, 0.0, own_ahead_s=WRONG_S + 1.0).is_wrong
