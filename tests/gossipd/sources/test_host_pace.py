"""When a host may be asked, by values, and how close a pace comes to what hosts allow, on a virtual clock."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from gossipd.sources.host_pace import FOLLOWER_WAIT_S, Pace, Turn
from gossipd.sources.settings import SourceSettings
from tests.gossipd.sources.pace_simulation import Host, Simulation

SETTINGS = SourceSettings()


def fail(pace: Pace, now: float, *, retry_after_s: float | None = None) -> Turn:
    """One request that fails at once."""
    turn = pace.begin(now)
    pace.failed(turn, now, retry_after_s)
    pace.ended(turn, is_good=False)
    return turn


def failing(times: int, *, now: float = 100.0) -> tuple[Pace, float]:
    """A pace after so many failures in a row, and the time of the last."""
    pace = Pace(SETTINGS, Random(1))
    fail(pace, now)
    for _ in range(times - 1):
        now += pace.wait_s(now)
        assert pace.wait_s(now) == 0.0
        fail(pace, now)
    return pace, now


def test_a_host_that_answers_is_asked_by_ever_more_without_waiting() -> None:
    pace = Pace(SETTINGS, Random(1))
    for _ in range(20):
        assert pace.wait_s(1.0) == 0.0
        pace.answered(pace.begin(1.0), 1.0)
    assert pace.connections.under_way == 20


@pytest.mark.parametrize("times", [1, 2, 3, 5, 20])
def test_each_failure_doubles_the_pause_up_to_the_longest(times: int) -> None:
    pace, now = failing(times)
    ceiling = min(SETTINGS.backoff_max_s, SETTINGS.backoff_first_s * 2 ** (times - 1))
    assert ceiling / 2 <= pace.wait_s(now) <= ceiling


def test_two_seeds_do_not_come_back_together() -> None:
    one, other = Pace(SETTINGS, Random(1)), Pace(SETTINGS, Random(2))
    fail(one, 0.0)
    fail(other, 0.0)
    assert one.wait_s(0.0) != other.wait_s(0.0)


def test_failures_of_requests_that_were_under_way_together_count_once() -> None:
    pace = Pace(SETTINGS, Random(1))
    turns = [pace.begin(100.0) for _ in range(8)]
    for turn in turns:
        pace.failed(turn, 100.0)
    assert pace.failures == 1


def test_a_failure_while_the_host_answers_others_holds_up_nobody_else() -> None:
    pace = Pace(SETTINGS, Random(1))
    pace.answered(pace.begin(100.0), 100.0)
    pace.failed(pace.begin(100.0), 100.1)
    assert pace.failures == 0
    turn = pace.begin(100.2)
    pace.answered(turn, 100.3)
    pace.failed(turn, 100.4)
    assert pace.failures == 0, "its body broke off, which says nothing of the host"


def test_after_the_pause_one_goes_first_and_the_others_wait_for_its_answer() -> None:
    pace, now = failing(1)
    later = now + 1.0
    assert pace.wait_s(later) == 0.0
    scout = pace.begin(later)
    assert scout.is_struggling
    assert pace.wait_s(later) == FOLLOWER_WAIT_S
    pace.answered(scout, later)
    assert pace.wait_s(later) == 0.0


def test_a_scout_that_was_stopped_is_replaced() -> None:
    pace, now = failing(1)
    pace.ended(pace.begin(now + 1.0), is_good=False)
    assert pace.wait_s(now + 1.0) == 0.0


def test_retry_after_is_obeyed_within_its_limit_by_all_requests() -> None:
    pace = Pace(SETTINGS, Random(1))
    pace.answered(pace.begin(100.0), 100.0)
    fail(pace, 100.0, retry_after_s=7.0)
    assert 7.0 <= pace.wait_s(100.0) <= 7.7
    pace = Pace(SETTINGS, Random(1))
    fail(pace, 100.0, retry_after_s=86400.0)
    assert pace.wait_s(100.0) <= SETTINGS.retry_after_max_s * 1.1


def test_repeats_are_a_share_of_good_requests_once_the_reserve_is_used() -> None:
    pace = Pace(replace(SETTINGS, retry_reserve=2.0), Random(1))
    assert [pace.take_retry() for _ in range(3)] == [True, True, False]
    granted = 0
    for _ in range(1000):
        pace.ended(pace.begin(0.0), is_good=True)
        granted += pace.take_retry()
    assert abs(granted - 1000 * SETTINGS.retry_share) <= 1


@pytest.mark.parametrize("rng", range(3))
@pytest.mark.parametrize("connections", [1, 2, 5])
def test_a_host_that_allows_few_connections_is_driven_at_as_many(connections: int, rng: int) -> None:
    host = Host(connections=connections)
    assert Simulation(host, reads=229, read_s=0.065, rng=rng).run() <= 1.25 * 229 * 0.065 / connections
    assert host.refused <= 229 / 6


@pytest.mark.parametrize("rng", range(3))
def test_two_seeds_share_what_a_host_allows(rng: int) -> None:
    host = Host(connections=5)
    simulation = Simulation(host, reads=1200, read_s=0.065, seeds=2, rng=rng)
    assert simulation.run() <= 1.25 * 1200 * 0.065 / 5
    assert host.most_at_once == 5


@pytest.mark.parametrize("rng", range(3))
def test_a_seed_that_comes_late_gets_a_part_of_a_host_that_is_full(rng: int) -> None:
    simulation = Simulation(Host(connections=4), reads=10_000, read_s=0.3, seeds=2, late_s=5.0, rng=rng)
    simulation.run(40.0)
    first, late = simulation.readers
    assert late.done >= 0.1 * first.done


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("read_s", [0.01, 0.1, 0.5])
def test_a_host_that_takes_five_requests_a_second_gets_five(status: int, read_s: float) -> None:
    host = Host(requests_per_s=5, burst=5, status=status)
    assert Simulation(host, reads=60, read_s=read_s).run() <= 1.25 * 55 / 5


@pytest.mark.parametrize("read_s", [0.01, 0.1])
@pytest.mark.parametrize("rate", [2, 5, 20])
def test_even_one_that_counts_from_each_request_to_the_next(read_s: float, rate: int) -> None:
    host = Host(requests_per_s=rate, burst=1, status=429)
    assert Simulation(host, reads=46, read_s=read_s).run() <= 1.25 * 45 / rate
    assert host.refused <= 10


def test_a_retry_after_makes_trials_rare() -> None:
    host = Host(connections=2, retry_after_s=1.0)
    assert Simulation(host, reads=460, read_s=0.065).run() <= 1.25 * 460 * 0.065 / 2
    assert host.refused <= 4


@pytest.mark.parametrize("rng", range(3))
def test_refusals_whatever_the_number_do_not_end_in_one_connection(rng: int) -> None:
    host = Host(refuses_each=3, refuses_when=lambda now: now % 10 < 5)
    assert Simulation(host, reads=460, read_s=0.2, rng=rng).run() <= 1.5 * 460 * 0.2 / 8
