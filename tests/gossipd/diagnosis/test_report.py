"""What a report says, by values: quantiles, racks, price, who was late and why."""

from __future__ import annotations

from typing import Any

import pytest

from gossipd.diagnosis.report import STRAGGLERS_MAX, summarise

GB = 1_000_000_000
NO_COURSE: dict[str, Any] = {"step_s": 1.0, "moved": [], "shares": {}}


def report(hosts: list[dict[str, Any]], *, timeline: dict[str, Any] | None = None, **row: Any) -> dict[str, Any]:
    """``hosts``: name, and where they differ from the rule rack, state, elapsed_s, counters, reason."""
    rows, traffic = [], []
    for one in hosts:
        known = {"rack": "r1", "state": "complete", "reason": "", "started_s": 1000, "elapsed_s": 10} | one
        rows.append({key: known[key] for key in ("name", "rack", "state", "reason")})
        if known["started_s"]:
            counters = ("source_bytes", "peer_bytes_same_rack", "peer_bytes_cross_rack", "duplicate_bytes")
            moved = {name: one.get(name, 0) for name in counters}
            times = {key: known[key] for key in ("name", "rack", "started_s", "elapsed_s")}
            traffic.append({**times, **moved, "corrupt_chunks": 0})
    sums = {
        name: sum(one[name] for one in traffic)
        for name in ("source_bytes", "peer_bytes_same_rack", "peer_bytes_cross_rack", "duplicate_bytes")
    }
    deployment = {
        "name": "m", "version": 1, "version_label": "", "state": "distributing", "bytes_total": 2 * GB, "hosts": rows,
        "hosts_total": len(rows), "hosts_complete": sum(one["state"] == "complete" for one in rows),
        "corrupt_chunks": 0, **sums, **row,
    }  # fmt: skip
    return {"money_per_gb": 0.0, "deployment": deployment, "traffic": traffic, "timeline": timeline}


def test_times_count_from_the_first_host_that_began() -> None:
    hosts: list[dict[str, Any]] = [{"name": f"h{n:02d}", "started_s": 1000 + n, "elapsed_s": 10} for n in range(20)]
    found = summarise(report(hosts))
    assert found.began_s == 1000
    assert found.quantiles == {"first": 10, "half": 19, "p95": 28, "last": 29}
    hosts[7] |= {"state": "downloading", "elapsed_s": 0}
    assert summarise(report(hosts)).quantiles["last"] is None, "one is not there yet"


def test_a_host_that_lies_of_its_beginning_stretches_no_time() -> None:
    hosts: list[dict[str, Any]] = [{"name": f"h{n}", "started_s": 1000 + n, "elapsed_s": 10} for n in range(4)]
    found = summarise(report([*hosts, {"name": "liar", "started_s": 1, "elapsed_s": 10}]))
    assert found.began_s == 1000
    assert found.quantiles["last"] == 13


def test_bytes_are_summed_by_rack_and_the_readers_named() -> None:
    hosts: list[dict[str, Any]] = [
        {"name": "a", "source_bytes": 2 * GB, "elapsed_s": 5},
        {"name": "b", "peer_bytes_same_rack": 2 * GB, "duplicate_bytes": 7},
        {"name": "c", "rack": "r2", "peer_bytes_cross_rack": 2 * GB, "state": "downloading", "elapsed_s": 0},
        {"name": "d", "rack": "r2", "source_bytes": 3 * GB},
    ]
    told = report(hosts)
    assert summarise(told).cancelled_bytes == 0, "a daemon of 0.1 does not tell it"
    told["deployment"] |= {"cancelled_bytes": 3, "corrupt_bytes": 2}
    found = summarise(told)
    assert (found.cancelled_bytes, found.corrupt_bytes) == (3, 2)
    one, two = found.racks
    assert (one.name, one.hosts, one.complete, one.seconds) == ("r1", 2, 2, 10)
    assert (one.source_bytes, one.peer_bytes_same_rack, one.duplicate_bytes) == (2 * GB, 2 * GB, 7)
    assert (two.complete, two.seconds, two.peer_bytes_cross_rack) == (1, None, 2 * GB)
    assert found.readers == ("d", "a")
    assert (found.source_ratio, found.cross_rack_ratio) == (2.5, 1.0)


@pytest.mark.parametrize(("ours", "theirs", "money"), [(0.0, None, None), (0.1, None, 0.5), (0.1, 0.2, 1.0)])
def test_external_bytes_have_the_daemons_price_or_the_one_that_is_given(
    ours: float, theirs: float | None, money: float | None
) -> None:
    told = report([{"name": "a", "source_bytes": 5 * GB}])
    told["money_per_gb"] = ours
    assert summarise(told, money_per_gb=theirs).money == money


def test_late_hosts_come_with_their_reasons_and_silences() -> None:
    timeline = {
        **NO_COURSE, "told_s": 40.0, "silences": {"late": [12.0, 3.0]},
        "reasons": {"late": [[2.0, "all_busy"], [5.0, "source_auth"], [25.0, ""], [30.0, "all_busy"]]},
    }  # fmt: skip
    hosts: list[dict[str, Any]] = [
        *({"name": f"h{n}"} for n in range(8)),
        {"name": "late", "elapsed_s": 40},
        {"name": "never", "state": "failed", "reason": "refused_key", "started_s": 0},
        {"name": "gone", "state": "removed", "elapsed_s": 0},
    ]
    found = summarise(report(hosts, timeline=timeline)).stragglers
    assert [one.name for one in found] == ["never", "late"]
    assert found[0].reason == "refused_key"
    assert found[1].reasons == (("source_auth", 20.0), ("all_busy", 13.0))
    assert (found[1].silent_s, found[1].silent_from_s) == (12.0, 3.0)


def test_a_host_that_was_away_and_came_back_in_time_is_named_with_its_gap() -> None:
    timeline = {**NO_COURSE, "told_s": 20.0, "silences": {"h1": [7.1, 3.4]}, "reasons": {}}
    found = summarise(report([{"name": f"h{n}"} for n in range(4)], timeline=timeline)).stragglers
    assert [(one.name, one.silent_s, one.silent_from_s) for one in found] == [("h1", 7.1, 3.4)]


def test_of_many_late_hosts_those_that_never_came_are_first() -> None:
    hosts: list[dict[str, Any]] = [{"name": f"h{n:03d}"} for n in range(100)]
    hosts += [{"name": f"x{n:02d}", "elapsed_s": 100 + n} for n in range(20)]
    hosts += [{"name": "y", "state": "downloading", "elapsed_s": 0}]
    found = summarise(report(hosts)).stragglers
    assert len(found) == STRAGGLERS_MAX
    assert [one.name for one in found[:3]] == ["y", "x19", "x18"]


def test_the_last_of_hosts_that_are_close_together_is_not_late() -> None:
    assert not summarise(report([{"name": f"h{n}", "elapsed_s": 1 + n} for n in range(4)])).stragglers


def test_a_deployment_of_which_nobody_has_told_has_no_figures() -> None:
    found = summarise(report([{"name": "a", "state": "init", "started_s": 0}]))
    assert found.began_s == 0
    assert set(found.quantiles.values()) == {None}
    assert [one.name for one in found.stragglers] == ["a"]


def test_hosts_that_are_off_the_roster_count_in_bytes_and_not_as_targets() -> None:
    told = report([{"name": "a"}])
    told["traffic"].append({**told["traffic"][0], "name": "00ff", "rack": "", "source_bytes": GB})
    found = summarise(told)
    assert found.quantiles["last"] == 10
    assert [(one.name, one.hosts, one.source_bytes) for one in found.racks] == [("", 0, GB), ("r1", 1, 0)]
