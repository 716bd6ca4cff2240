"""The rivals' figures are the classical ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gossipd.sim.closed_form import STRATEGIES, completion_times, limit_words
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
@pytest.mark.parametrize("hosts_racks", [(1, 1), (7, 3), (100, 5), (100, 100)])
@pytest.mark.parametrize("external", [LINK / 10, LINK, LINK * 1000])
@pytest.mark.parametrize("oversubscription", [1.0, 30.0, 1000.0])
def test_no_strategy_beats_the_bound(
    strategy: str, hosts_racks: tuple[int, int], external: float, oversubscription: float
) -> None:
    hosts, racks = hosts_racks
    scenario = replace(HUNDRED, hosts=hosts, racks=racks, external=external, oversubscription=oversubscription)
    assert closed_form(scenario, strategy).efficiency <= 1 + 1e-9


@pytest.mark.parametrize(("strategy", "behind_s"), [("chain", 99 * 0.8), ("tree", 7 * 1.6)])
def test_slow_storage_slows_the_first_hop_only(strategy: str, behind_s: float) -> None:
    slow = completion_times(replace(HUNDRED, external=LINK / 10), strategy)
    assert slow[-1] == pytest.approx(4_000 + behind_s)


def test_a_narrow_uplink_slows_the_hops_that_cross_racks_only() -> None:
    narrow = replace(HUNDRED, oversubscription=40)  # half a host's link for each rack
    chunk_s, across_s = 0.8, 1.6
    expected = 500 * across_s + 4 * across_s + 95 * chunk_s
    assert completion_times(narrow, "chain")[-1] == pytest.approx(expected)
    assert completion_times(replace(narrow, racks=1, oversubscription=1), "chain")[-1] == pytest.approx(479.2)
    assert completion_times(narrow, "tree")[-1] == pytest.approx(500 * 3.2 + 3 * 3.2 + 4 * 1.6 - (3.2 - 1.6))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_times_ascend(strategy: str) -> None:
    times = completion_times(HUNDRED, strategy)
    assert times == sorted(times)
    assert len(times) == 100


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(ValueError, match="swarm"):
        completion_times(HUNDRED, "flood")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"external": LINK / 4}, "external link"),
        ({"external": LINK * 4}, "host downlinks"),
        ({"external": LINK * 4, "oversubscription": 40}, "rack uplinks"),
        ({"hosts": 50}, "external link and host downlinks"),
        ({"hosts": 1000}, "external link, host downlinks and host uplinks"),
        ({"hosts": 50, "external": LINK / 1.02}, "external link"),
    ],
)
def test_the_bound_names_every_resource_that_limits(change: dict[str, float], named: str) -> None:
    assert replace(HUNDRED, **change).limiting_resource == named  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("strategy", "named"),
    [
        ("sequential", "storage sends the model 100 times, to one host after the other"),
        ("parallel", "storage sends the model 100 times, to all hosts at once"),
        ("tree", "every host sends each chunk twice"),
        ("chain", "the last host is 99 hops behind"),
    ],
)
def test_where_links_would_allow_more_the_strategy_is_named(strategy: str, named: str) -> None:
    assert limit_words(HUNDRED, strategy).startswith(f"the strategy: {named}")


def test_where_a_strategy_reaches_the_bound_the_links_are_named() -> None:
    assert limit_words(replace(HUNDRED, external=LINK * 1000), "parallel") == "host downlinks"
    assert limit_words(replace(HUNDRED, chunks=29_803, external=LINK / 10), "chain") == "external link"


def test_chunks_are_counted_as_a_publisher_does() -> None:
    assert chunk_count_of(256 << 20) == 1024
    assert chunk_count_of(500 * 10**9) == 29_803
    assert chunk_count_of(1) == 1
