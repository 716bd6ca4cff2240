"""Hosts whose links differ in one cluster, as in ``python -m tests.bench.lab --mixed``: by the rate of their link, the
time of each class beside what its own link needs.

Of eight draws the last quick host needs 1.16: 0.09 of it in the first third, while it waits for imports that hosts have
whose links are not known to be slower yet, the rest while the uplinks of quick hosts are full.
"""

from __future__ import annotations

import json

import pytest

from tests.sim.mixed_links import class_times_s, main


@pytest.mark.parametrize("rng", [2, 3])
def test_slower_hosts_need_what_their_links_need_and_faster_ones_do_not_wait_for_them(rng: int) -> None:
    own_s, times = class_times_s(rng)
    for share in (0.5, 0.1):
        assert max(times[share]) <= 1.1 * own_s / share
    # In the first quarter no host knows yet whose link is slower.
    assert max(times[1.0]) <= 1.25 * own_s, "equal hosts need 1.04 of it"


@pytest.mark.parametrize("rng", [36, 37])
def test_quick_hosts_do_not_wait_for_seeds_that_all_have_slow_links(rng: int) -> None:
    """Of three racks each seed has half of the quick hosts' rate, as one draw in seven has it."""
    own_s, times = class_times_s(rng)
    assert max(times[1.0]) <= 1.35 * own_s, "at the seeds' pace they need 2.03"
    assert max(times[0.5]) <= 1.1 * own_s / 0.5


def test_where_slower_hosts_have_equals_in_their_rack_the_quick_ones_are_served_first() -> None:
    """In one rack. In racks of three a slower host has one equal or none, and asks the only quick one, which also
    gives the other racks their copies."""
    own_s, times = class_times_s(1, racks=1)
    assert max(times[0.5]) <= 1.1 * own_s / 0.5
    assert max(times[1.0]) <= 1.2 * own_s, "equal hosts need 1.04"


def test_uplinks_of_half_the_rate_are_used_while_quick_ones_are_full() -> None:
    last = []
    for rng in range(1, 7):
        own_s, times = class_times_s(rng)
        last.append(max(times[1.0]) / own_s)
    assert sum(last) / len(last) <= 1.18, "1.20 where nobody asks them for what quick hosts hold, too"


def test_what_the_start_costs_quick_hosts_shrinks_with_larger_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--mb", "128", "--mb", "512", "--draws", "2", "--json"]) == 0
    small, large = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert small["model"] == "128 MB"
    assert large["ratio_at_100"] < small["ratio_at_100"]
    assert large["ratio_at_50"] <= 1.1
