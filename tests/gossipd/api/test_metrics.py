"""The Prometheus page: valid, bounded, and what the dashboard and the alert rules in ``config/`` rely on."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import msgspec
import trio
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from gossipd.api.counters import LAG_BOUNDS_S, Histogram, LoopLag
from gossipd.api.metrics import DEPLOYMENTS_MAX, render
from gossipd.api.schema import AlarmRow, MemberRow, StatusSnapshot
from gossipd.store.disk.condition import StoreHealth
from tests.gossipd.api.fake_daemon import FakeDaemon, toy_row

ASSETS = Path(__file__).resolve().parents[3] / "gossipd" / "assets"
NAME = re.compile(r"gossipd_[a-z0-9_]+")


def samples(daemon: FakeDaemon) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(trio.run(render, daemon).decode())
        for sample in family.samples
    }


def names() -> set[str]:
    daemon = FakeDaemon(
        rows=[toy_row(), toy_row(4, hosts=5), toy_row(stall="disk")],
        alarms=[AlarmRow(code="E", sentence="", since="")],
    )
    done = [name for name, _ in samples(daemon)]
    return {*done, "gossipd_deployment_completion_timestamp_seconds"}


def test_the_page_says_what_the_snapshot_says() -> None:
    page = samples(FakeDaemon())
    toy = (("deployment", "org/toy@3"),)
    assert page["gossipd_members", (("state", "alive"),)] == 3
    assert page["gossipd_deployment_verified_ratio", toy] == 0.625
    assert page["gossipd_deployment_ready", toy] == 0
    states = {labels[1][1]: count for (name, labels), count in page.items() if name == "gossipd_deployment_hosts"}
    assert states == {"complete": 2, "downloading": 1, "init": 1}, "the complete ones are in two racks"
    assert page["gossipd_received_bytes_total", (*toy, ("source", "origin"))] == 128 << 20
    assert (page["gossipd_planner_events_total", ()], page["gossipd_planner_turns_total", ()]) == (7, 3)
    assert page["gossipd_chunk_fetch_seconds_count", ()] == 2
    assert page["gossipd_chunk_fetch_seconds_bucket", (("le", "0.025"),)] == 1
    assert page["gossipd_event_loop_lag_seconds_bucket", (("le", "0.001"),)] == 1
    assert page["gossipd_limit_bytes_per_second", (("direction", "shared"),)] == 0


@dataclass
class OtherKeys(FakeDaemon):
    """Of four hosts one lacks a publisher, one is dead, and one tells nothing."""

    def snapshot(self) -> StatusSnapshot:
        told = super().snapshot()
        prints = [{"trust": "aa", "settings": "1"}, {"trust": "bb", "settings": "1"}, {}, {"trust": "cc"}]
        more = MemberRow(name="e", rack="r", address="", state="alive", seed=False, prints=prints[0])
        members = [replace(one, prints=each) for one, each in zip(told.members, prints, strict=True)]
        return replace(told, members=[*members, more])


def test_a_step_has_the_same_label_in_every_family() -> None:
    daemon = FakeDaemon()
    step = msgspec.structs.replace(daemon.rows[0], name="org/run", version=(2 << 32) + 300, version_label="300.2")
    daemon.rows = [step]
    told = {dict(labels)["deployment"] for _, labels in samples(daemon) if "deployment" in dict(labels)}
    assert "org/run@300.2" in told
    assert not [label for label in told if label.startswith("org/run@") and label != "org/run@300.2"]


def test_a_failed_reload_a_needed_restart_and_other_keys_are_numbers() -> None:
    page = samples(FakeDaemon())
    found = [page[f"gossipd_{name}", ()] for name in ("config_reload_ok", "config_needs_restart", "drift_hosts")]
    assert found == [1, 0, 0]
    codes = ("E_RELOAD", "E_RESTART_NEEDED")
    page = samples(OtherKeys(alarms=[AlarmRow(code=code, sentence="", since="") for code in codes]))
    found = [page[f"gossipd_{name}", ()] for name in ("config_reload_ok", "config_needs_restart", "drift_hosts")]
    assert found == [0, 1, 1]


def test_every_condition_that_a_store_can_be_in_is_on_the_page() -> None:
    shown = {dict(labels)["condition"] for name, labels in samples(FakeDaemon()) if name == "gossipd_store_condition"}
    assert shown == {health.value for health in StoreHealth}


def test_every_name_has_the_prefix_and_a_unit_or_total_where_it_should() -> None:
    text = trio.run(render, FakeDaemon()).decode()
    for family in text_string_to_metric_families(text):
        assert family.name.startswith("gossipd_")
        if family.type == "counter":
            assert f"{family.name}_total" in text


def test_no_label_names_a_peer() -> None:
    daemon = FakeDaemon()
    hosts = {member.name for member in daemon.snapshot().members}
    for _, labels in samples(daemon):
        assert not hosts & {value for _, value in labels}


def test_a_flood_of_deployments_does_not_become_a_flood_of_series() -> None:
    daemon = FakeDaemon(rows=[toy_row()] * (DEPLOYMENTS_MAX + 10))
    assert samples(daemon)["gossipd_deployments_left_out", ()] == 10


def test_the_dashboard_and_the_alert_rules_name_only_metrics_that_exist() -> None:
    known = names()
    for file in ("prometheus-alerts.yml", "grafana.json", "../manual/operations.md"):
        used = set(NAME.findall((ASSETS / file).read_text()))
        assert used, file
        assert used <= known, f"{file} names {sorted(used - known)}"
    json.loads((ASSETS / "grafana.json").read_text())


def test_a_histogram_counts_each_value_in_the_first_bound_that_holds_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(value)
    assert histogram.figures().counts == (2, 1, 1)
    assert histogram.figures().total == 12.0


async def test_a_loop_that_is_not_held_up_has_no_lag(autojump_clock: MockClock) -> None:
    lag = LoopLag()
    assert lag.p99_s() == 0.0
    with trio.move_on_after(10):
        await lag.run()
    assert lag.p99_s() < 0.001
    assert sum(lag.histogram.figures().counts) >= 9


def test_the_99th_percentile_sees_the_worst_hundredth_of_the_last_minute() -> None:
    lag = LoopLag()
    for number in range(1200):
        lag.observe(0.5 if number % 100 == 0 else 0.001)
    assert lag.p99_s() == 0.5
    for _ in range(1200):
        lag.observe(0.002)
    assert lag.p99_s() == 0.002
    assert len(lag.histogram.figures().counts) == len(LAG_BOUNDS_S) + 1
