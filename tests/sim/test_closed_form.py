"""The rivals' figures are the classical ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gossipd.sim.closed_form import STRATEGIES, completion_times
from gossipd.sim.outcome import closed_form
from gossipd.sim.scenario import Scenario, chunk_count_of

LINK = 10e9 / 8
HUNDRED = Scenario(hosts=100, racks=5, size=500 * 10**9, chunks=500, link=LINK, external=LINK)


@pytest.mark.parametrize(
    ("strategy", "hosts", "seconds"),
    [
        ("sequential", 100, 40_000),
        ("parallel", 100, 40_000),
        ("tree", 100, 811),
        ("chain", 100, 479),
        ("chain", 1_000, 1_199),
    ],
)
def test_the_classical_figures(strategy: str, hosts: int, seconds: float) -> None:
    outcome = closed_form(replace(HUNDRED, hosts=hosts), strategy)
    assert int(outcome.seconds_last) == seconds
    assert outcome.bound_s == 400


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_times_ascend(strategy: str) -> None:
    times = completion_times(HUNDRED, strategy)
    assert times == sorted(times)
    assert len(times) == 100


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(ValueError, match="swarm"):
        completion_times(HUNDRED, "flood")


def test_the_bound_names_what_limits() -> None:
    assert replace(HUNDRED, external=LINK / 4).limiting_resource == "external link"
    assert replace(HUNDRED, external=LINK * 4).limiting_resource == "host downlink"
    assert replace(HUNDRED, external=LINK * 4, oversubscription=40).limiting_resource == "rack uplink"


def test_chunks_are_counted_as_a_publisher_does() -> None:
    assert chunk_count_of(256 << 20) == 1024
    assert chunk_count_of(500 * 10**9) == 29_803
    assert chunk_count_of(1) == 1
