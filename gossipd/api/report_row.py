"""The answer of ``GET /v1/report``: the course of one deployment, made from what the daemon keeps of it.

What lives here: pure functions. What does not: the course itself (``deployment.history``), and what a report says of it
(``diagnosis.report``).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping

from gossipd.api.schema import TimelineRow, TrafficRow
from gossipd.core.ids import short
from gossipd.deployment.counters import counters_of
from gossipd.deployment.history import History, HostHistory
from gossipd.deployment.progress_table import HostProgress
from membership.member import NodeId

# Enough to see each second of ten minutes, in small clusters; so many for each of 4,096 hosts are a quarter of a MiB.
COLUMNS_LEAST, COLUMNS_MOST, CELLS_MAX = 64, 600, 1 << 18
SILENCE_LEAST_S = 5.0  # records come each second in small clusters, and one may be lost; not where a host was restarted


def traffic_rows(rows: Mapping[NodeId, HostProgress], known: Mapping[NodeId, tuple[str, str]]) -> list[TrafficRow]:
    """What each host moved, by name. ``known``: names and racks of hosts on the roster."""
    found = []
    for node, row in rows.items():
        name, rack = known.get(node, (short(node), ""))
        told = row.progress
        times = {"started_s": told.started_s, "elapsed_s": told.elapsed_s}
        found.append(TrafficRow(name=name, rack=rack, **times, **counters_of(told)))
    return sorted(found, key=lambda one: one.name)


def timeline_row(history: History, known: Mapping[NodeId, tuple[str, str]], now_s: float) -> TimelineRow:
    """The course. ``now_s``: seconds since 1970. Hosts that are off the roster have moved bytes, and no line."""
    hosts = {known[node][0]: host for node, host in history.hosts.items() if node in known}
    now = now_s - history.began_wall_s
    silences = {name: _silence(host, now, len(hosts)) for name, host in hosts.items()}
    step_s, places = history.columns(min(COLUMNS_MOST, max(COLUMNS_LEAST, CELLS_MAX // max(1, len(hosts)))))
    return TimelineRow(
        began_s=round(history.began_wall_s, 1), step_s=step_s, moved=history.moved_by(places),
        shares={name: b64encode(host.shares(places)).decode() for name, host in hosts.items()},
        reasons={name: list(host.reasons) for name, host in hosts.items() if host.reasons},
        silences={name: (round(one[0], 1), round(one[1], 1)) for name, one in silences.items() if one is not None},
        told_s=round(now, 1),
        sketches={name: b64encode(host.marks(places)).decode() for name, host in hosts.items() if host.reached},
    )  # fmt: skip


def _silence(host: HostHistory, now_s: float, host_count: int) -> tuple[float, float] | None:
    """How long a host was not heard, and since when; None where that is as usual."""
    longest = host.silence(now_s)
    is_long = longest[0] >= max(SILENCE_LEAST_S, host_count / 10)  # five refreshes of a large cluster
    return longest if is_long else host.restart
