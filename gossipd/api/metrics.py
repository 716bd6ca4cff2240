"""The Prometheus page: every name, label and unit of ``/metrics``.

What lives here: one pass over the daemon's snapshot per scrape; nothing is kept in between. What does not: counting
(``counters``), serving (``routes``).

Names begin with ``gossipd_``, units are seconds and bytes, counters end in ``_total``. No label names a peer, because
1,000 hosts would make a million series. The label ``deployment`` is ``NAME@VERSION``; deployments beyond
``DEPLOYMENTS_MAX`` are only counted, in ``gossipd_deployments_left_out``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import TypeAlias

import trio
from msgspec.structs import replace
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gossipd.api.counters import HistogramFigures, LocalCounters
from gossipd.api.ports import StatusPort
from gossipd.api.schema import DeploymentRow, LimitsRow, MemberRow, StatusSnapshot
from gossipd.diagnosis.drift import compare, hosts_apart

CONTENT_TYPE = CONTENT_TYPE_LATEST
DEPLOYMENTS_MAX = 64  # a handful are live; 64 make about 2000 series
MEMBER_STATES = ("alive", "suspect", "dead", "left", "unheard")
STORE_CONDITIONS = ("ok", "full", "read_only", "failing", "handles", "silent")
_Rows: TypeAlias = Sequence[tuple[DeploymentRow, Counter[str]]]  # without hosts; how many are in each state


async def render(view: StatusPort) -> bytes:
    """The page; others have the loop between two deployments."""
    rows = []
    for row in islice(view.deployments(hosts_max=0), DEPLOYMENTS_MAX):
        states = Counter(host.state for host in row.hosts)
        for group in row.left_out:
            states[group.state] += group.hosts
        rows.append((replace(row, hosts=[]), states))
        await trio.lowlevel.checkpoint()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(view, rows))
    return generate_latest(registry)


class _Page(Collector):
    def __init__(self, view: StatusPort, rows: _Rows) -> None:
        self._view = view
        self._rows = rows

    def collect(self) -> Iterator[Metric]:
        snapshot, counters = self._view.snapshot(), self._view.counters()
        yield from _daemon(snapshot)
        yield from _deployments(self._rows)
        left_out = max(0, self._view.deployment_count() - len(self._rows))
        yield _gauge("deployments_left_out", "Deployments not shown here.", left_out)
        yield from _traffic(counters)
        yield from _limits(counters)
        yield from _rate_limits(snapshot.limits)


def _daemon(snapshot: StatusSnapshot) -> Iterator[Metric]:
    node, store = snapshot.node, snapshot.store
    build = GaugeMetricFamily("gossipd_build_info", "Always 1.", labels=["version", "rack"])
    build.add_metric([node.version, node.rack], 1)
    yield build
    yield _gauge("uptime_seconds", "Since this daemon started.", node.uptime_s)
    states = Counter(member.state for member in snapshot.members)
    members = GaugeMetricFamily("gossipd_members", "Hosts on the roster, as this one sees them.", labels=["state"])
    for state in MEMBER_STATES:
        members.add_metric([state], states[state])
    yield members
    versions = len({member.version for member in snapshot.members if member.version and member.state != "unheard"})
    yield _gauge("member_software_versions", "Different versions of gossipd on the roster.", versions)
    yield _gauge("seeds", "Hosts that read storage for their rack.", sum(member.seed for member in snapshot.members))
    yield _gauge("security_degraded", "1 when a protection is off.", snapshot.security.state != "ok")
    condition = GaugeMetricFamily("gossipd_store_condition", "1 for the present condition.", labels=["condition"])
    for name in STORE_CONDITIONS:
        condition.add_metric([name], store.condition == name)
    yield condition
    yield _gauge("disk_free_bytes", "Free for models.", store.free_bytes)
    yield _gauge("disk_need_bytes", "Missing for what is deployed.", store.need_bytes)
    yield _gauge("disk_used_ratio", "Of the file system, by anybody.", snapshot.watermark.used_percent / 100)
    yield _gauge(
        "disk_high_watermark_ratio", "Where eviction begins; 0 is never.", snapshot.watermark.high_percent / 100
    )
    evicted = CounterMetricFamily("gossipd_versions_evicted", "By the high watermark or prune, since the start.")
    evicted.add_metric([], snapshot.watermark.evicted)
    yield evicted
    if store.oldest_unchecked_s is not None:
        yield _gauge("oldest_unchecked_seconds", "Age of the oldest check of a chunk.", store.oldest_unchecked_s)
    inbox = CounterMetricFamily("gossipd_inbox_files", "Files judged in the inbox.", labels=["result"])
    inbox.add_metric(["accepted"], snapshot.inbox.accepted)
    inbox.add_metric(["refused"], snapshot.inbox.refused)
    yield inbox
    codes = {each.code for each in snapshot.alarms}
    yield _gauge("config_reload_ok", "0 since a reload that failed.", "E_RELOAD" not in codes)
    yield _gauge("config_needs_restart", "1 while a restart would apply more.", "E_RESTART_NEEDED" in codes)
    yield _gauge("drift_hosts", "Hosts with other keys or settings than the most.", _drift_hosts(snapshot.members))
    yield _gauge("alarms", "Things that wait for an operator.", len(snapshot.alarms))
    alarm = GaugeMetricFamily("gossipd_alarm", "Alarms that are shown, by code.", labels=["code"])
    for code, count in Counter(each.code for each in snapshot.alarms).items():
        alarm.add_metric([code], count)
    yield alarm


def _drift_hosts(members: Sequence[MemberRow]) -> int:
    rows = [{"name": one.name, "state": one.state, "prints": one.prints} for one in members]
    return len(hosts_apart(compare(rows)))


def _deployments(rows: _Rows) -> Iterator[Metric]:
    def family(name: str, text: str, *extra: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"gossipd_{name}", text, labels=["deployment", *extra])

    size = family("deployment_bytes", "Size of the model.")
    ratio = family("deployment_verified_ratio", "Verified share over all targets; exactly 1 at the end.")
    hosts = family("deployment_hosts", "Targets.", "state")
    ready = family("deployment_ready", "1 when every target is complete.")
    done = family("deployment_completion_timestamp_seconds", "When the last target completed.")
    stalled = family("deployment_stalled", "1 while no chunk arrives here.", "reason")
    source = family("deployment_source_bytes", "Read from external storage by the whole cluster.")
    source_ratio = family("source_bytes_ratio", "Read from external storage, in sizes of the model; 1 is best.")
    budget = family("deployment_source_budget_bytes", "What may be read from external storage; 0 is no limit.")
    corrupt = family("deployment_corrupt_chunks", "Chunks with a wrong digest, found by any host.")
    for row, states in rows:
        label = f"{row.name}@{row.version_label or row.version}"
        size.add_metric([label], row.bytes_total)
        whole = row.cluster_bytes_total
        ratio.add_metric([label], row.cluster_bytes_verified / whole if whole else 0.0)
        for state, count in states.items():
            hosts.add_metric([label, state], count)
        ready.add_metric([label], row.state == "complete")
        if row.completed_at is not None:
            done.add_metric([label], datetime.fromisoformat(row.completed_at).timestamp())
        if row.stall is not None:
            stalled.add_metric([label, row.stall], 1)
        source.add_metric([label], row.source_bytes)
        source_ratio.add_metric([label], row.source_bytes / row.bytes_total if row.bytes_total else 0.0)
        budget.add_metric([label], row.source_budget_bytes or 0)
        corrupt.add_metric([label], row.corrupt_chunks)
    yield from (size, ratio, hosts, ready, done, stalled, source, source_ratio, budget, corrupt)


def _traffic(counters: LocalCounters) -> Iterator[Metric]:
    def family(name: str, text: str, *labels: str) -> CounterMetricFamily:
        return CounterMetricFamily(f"gossipd_{name}", text, labels=labels)

    received = family("received_bytes", "Verified chunk bytes received here.", "deployment", "source")
    sent = family("sent_bytes", "Chunk bytes sent from here.", "deployment", "scope")
    failures = family("chunk_verify_failures", "Chunks with a wrong digest.", "deployment", "source")
    wasted = family("wasted_bytes", "Bytes received for nothing.", "deployment", "reason")
    chunks = GaugeMetricFamily("gossipd_chunks", "Chunks of a deployment here.", labels=["deployment", "state"])
    for each in counters.deployments[:DEPLOYMENTS_MAX]:
        label = each.deployment
        for family_of, figures in (
            (received, each.received_bytes),
            (sent, each.sent_bytes),
            (failures, each.verify_failures),
            (wasted, each.wasted_bytes),
            (chunks, each.chunks),
        ):
            for word, value in figures.items():
                family_of.add_metric([label, word], value)
    requests = family("source_requests", "Requests to external storage.", "scheme", "result")
    for (scheme, result), value in counters.source_requests.items():
        requests.add_metric([scheme, result], value)
    refused = family("refused", "Refused connections, requests and messages.", "reason")
    for reason, value in counters.refused.items():
        refused.add_metric([reason], value)
    failed = family("uploads_failed", "Transfers from here that began and failed.", "code")
    control_bytes = family("control_bytes", "Bytes of control messages.", "direction")
    control_events = family("control_events", "What control links do: dialled, accepted, asked again.", "event")
    for counted, by_word in (
        (failed, counters.uploads_failed),
        (control_bytes, counters.control_bytes),
        (control_events, counters.control_events),
    ):
        for word, value in by_word.items():
            counted.add_metric([word], value)
    yield from (received, sent, failures, wasted, chunks, requests, refused, failed, control_bytes, control_events)
    for name, text, count in (
        ("planner_events", "What the planner has heard: chunks, holdings, members.", counters.planner_events),
        ("planner_turns", "How often the planner has looked what to do.", counters.planner_turns),
    ):
        counted = family(name, text)
        counted.add_metric([], count)
        yield counted


def _limits(counters: LocalCounters) -> Iterator[Metric]:
    text = "When this host's credentials for storage end, where that is known."
    ends = GaugeMetricFamily("gossipd_source_credentials_end_timestamp_seconds", text, labels=["scheme"])
    for scheme, end_s in counters.credential_ends.items():
        ends.add_metric([scheme], end_s)
    yield ends
    yield _gauge("uploads_busy", "Upload slots in use.", counters.uploads_busy)
    yield _gauge("uploads_max", "Upload slots there are.", counters.uploads_max)
    yield _gauge("buffers_busy_bytes", "Receive buffers in use.", counters.buffers_busy_bytes)
    yield _gauge("buffers_max_bytes", "Receive buffers there are.", counters.buffers_max_bytes)
    if counters.fetch_seconds is not None:
        text = "From asking for a chunk to having it verified."
        yield _histogram("chunk_fetch_seconds", text, counters.fetch_seconds)
    if counters.loop_lag_seconds is not None:
        yield _histogram("event_loop_lag_seconds", "How late the loop wakes a due task.", counters.loop_lag_seconds)


def _rate_limits(limits: LimitsRow) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "gossipd_limit_bytes_per_second", "The limit in force; 0 is none.", labels=["direction"]
    )  # fmt: skip
    family.add_metric(["upload"], limits.upload_bytes_per_s)
    family.add_metric(["download"], limits.download_bytes_per_s)
    family.add_metric(["source"], limits.source_bytes_per_s)
    family.add_metric(["shared"], limits.shared_bytes_per_s)
    yield family


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"gossipd_{name}", text, value=value)


def _histogram(name: str, text: str, figures: HistogramFigures) -> HistogramMetricFamily:
    sums, running = [], 0
    for bound, count in zip((*figures.bounds, "+Inf"), figures.counts, strict=True):
        running += count
        sums.append((str(bound), running))
    return HistogramMetricFamily(f"gossipd_{name}", text, buckets=sums, sum_value=figures.total)
