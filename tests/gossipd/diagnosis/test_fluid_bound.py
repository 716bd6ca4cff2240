"""The least time that links allowed: by each resource, at rates that are given or that the course shows."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from gossipd.diagnosis.fluid_bound import fluid_bound
from gossipd.diagnosis.report import summarise
from gossipd.sim.scenario import Scenario
from tests.gossipd.diagnosis.test_report import GB, report

SIZE = 2 * GB


def hosts(count: int, **one: Any) -> list[dict[str, Any]]:
    """The first reads storage, the others have it from peers."""
    first = {"name": "h0", "source_bytes": SIZE} | one
    return [first, *({"name": f"h{n}", "peer_bytes_same_rack": SIZE} | one for n in range(1, count))]


def course(*shares: int, step_s: float = 1.0, read: tuple[int, ...] = ()) -> dict[str, Any]:
    moved = [[one, 0, 0] for one in read or (0,) * len(shares)]
    told = {f"h{n}": b64encode(bytes(shares)).decode() for n in range(2)}
    return {"step_s": step_s, "moved": moved, "shares": told, "reasons": {}, "silences": {}, "told_s": 60.0}


@pytest.mark.parametrize(
    ("link", "external", "seconds", "resource"),
    [
        (1e9, 0.5e9, 4.0, "storage"),
        (0.5e9, 1e9, 4.0, "a host's downlink"),
        (1e9, 1e9, 2.0, "storage and a host's downlink"),
        (1e9, 1e12, 2.0, "a host's downlink"),
    ],
)
def test_the_slowest_resource_is_the_bound(link: float, external: float, seconds: float, resource: str) -> None:
    found = fluid_bound(report(hosts(10)), link=link, external=external)
    assert found is not None
    assert (found.seconds, found.limiting_resource, found.is_measured) == (seconds, resource, False)


def test_it_is_the_bound_of_a_cluster_that_is_planned_alike() -> None:
    for link, external in ((1e9, 1e9), (1e9, 0.2e9), (0.3e9, 2e9), (1e9, 50e9)):
        found = fluid_bound(report(hosts(10)), link=link, external=external)
        planned = Scenario(10, 1, SIZE, 100, link, external)
        assert found is not None
        assert found.seconds == pytest.approx(planned.bound_s, abs=0.06)


def test_rates_that_nobody_gives_are_the_highest_seen() -> None:
    # 127 of 254 in 5 seconds, 4 of them at a quarter a second or less: 2 GB * 100/254 in 4 s.
    shares = (255, 0, 25, 50, 75, 100, 100, 100, 110, 254, 254)
    read = (0, 100_000_000, 300_000_000, 300_000_000, 300_000_000, 0, 0, 0, 0, 0, 0)
    found = fluid_bound(report(hosts(2), timeline=course(*shares, read=read)))
    assert found is not None and found.is_measured
    assert found.link_bytes_per_s == int((254 - 100) / 254 / 4 * SIZE)
    assert found.external_bytes_per_s == 250_000_000
    assert (found.seconds, found.limiting_resource) == (8.0, "storage")
    given = fluid_bound(report(hosts(2), timeline=course(*shares, read=read)), external=1e9)
    assert given is not None and given.is_measured
    assert given.external_bytes_per_s == 10**9


def test_a_column_that_was_joined_lasts_longer() -> None:
    found = fluid_bound(report(hosts(2), timeline=course(0, 127, 254, step_s=16.0)), external=1e9)
    assert found is not None
    assert found.link_bytes_per_s == SIZE // 32


def test_equal_chunks_of_another_version_are_no_work_and_no_rate() -> None:
    reused = [{"name": "h0", "source_bytes": GB // 10}, {"name": "h1", "peer_bytes_same_rack": GB // 10}]
    assert fluid_bound(report(reused, timeline=course(0, 250, 254))) is None, "no host shows its rate"
    found = fluid_bound(report(reused), link=1e8, external=1e8)
    assert found is not None
    assert found.seconds == 1.0
    nothing = [{"name": "h0"}, {"name": "h1"}]
    assert fluid_bound(report(nothing), link=1e8, external=1e8) is None


def test_while_nobody_is_complete_the_whole_model_counts() -> None:
    under_way = hosts(2, state="downloading", elapsed_s=0)
    found = fluid_bound(report(under_way), link=1e9, external=1e9)
    assert found is not None
    assert found.seconds == 2.0
    assert fluid_bound(report(under_way)) is None


def test_a_report_says_how_near_the_last_host_came() -> None:
    told = report(hosts(4, elapsed_s=5))
    found = summarise(told, link=1e9, external=0.5e9)
    assert (found.reached_ratio, found.racks[0].first_seconds) == (1.25, 5)
    assert summarise(told).bound is None and summarise(told).reached_ratio is None
    told["deployment"]["hosts"][1]["state"] = "downloading"
    assert summarise(told, link=1e9, external=0.5e9).reached_ratio is None
