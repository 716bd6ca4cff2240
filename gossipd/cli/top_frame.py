"""What ``gossipd top`` shows: rates between two looks at one daemon, fitted to a terminal. Pure.

What lives here: a look's figures, their differences, and lines of text. What does not: asking, keys and time (``top``).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gossipd.cli.layout import TextTable, cut_in_the_middle, laid_out
from gossipd.cli.options import time_words
from gossipd.core.units import show_bytes, show_count

SORTS = ("in", "out", "name", "rack")
RACKS_SHOWN = 4
ALARM_LINES_MAX = 3
NAME_LEAST = 12
FIGURES = 3  # columns of each table behind the names
_METRIC = re.compile(r'gossipd_(\w+?)(?:_total)?(?:\{.*?(?:source="(\w+)")?\})? ([0-9.e+-]+)')
_SOURCES = {"origin": "storage", "peer_rack": "same rack", "peer_far": "other racks"}


@dataclass(frozen=True, slots=True)
class PeerFigures:
    """Traffic with one peer: bytes since the daemon's start in a look, bytes a second in rates."""

    name: str
    rack: str
    bytes_in: float
    bytes_out: float
    busy: float
    """How often one of the two had no slot for the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look at a daemon, or what changed a second between two."""

    at_s: float
    uptime_s: float
    peers: Mapping[str, PeerFigures]
    received: Mapping[str, float] = field(default_factory=dict)
    """By storage, same rack and other racks."""
    gauges: Mapping[str, float] = field(default_factory=dict)


def look(page: Mapping[str, Any], peers: Mapping[str, Any], metrics: str, at_s: float) -> Look:
    """From the answers of a daemon."""
    members = {one["id"]: one for one in page["members"]}
    figures = {
        node: PeerFigures(
            members[node]["name"] if node in members else node[:12],
            members[node]["rack"] if node in members else "-",
            row["bytes_in"], row["bytes_out"], row["busy_in"] + row["busy_out"],
        )
        for node, row in peers.items()
    }  # fmt: skip
    received: defaultdict[str, float] = defaultdict(float)
    gauges: dict[str, float] = {}
    for name, source, value in _METRIC.findall(metrics):
        if name == "received_bytes" and source in _SOURCES:
            received[_SOURCES[source]] += float(value)
        elif not source:
            gauges[name] = float(value)
    return Look(at_s=at_s, uptime_s=page["node"]["uptime_s"], peers=figures, received=received, gauges=gauges)


def rates(before: Look, after: Look) -> Look:
    """Per second. A daemon that was started again counts from zero, and a deployment that has ended counts no more."""
    seconds = max(0.001, after.at_s - before.at_s)

    def rate(old: float, new: float) -> float:
        return max(0.0, new - old) / seconds

    peers = {}
    for node, now in after.peers.items():
        old = before.peers.get(node, PeerFigures("", "", 0, 0, 0)) if after.uptime_s >= before.uptime_s else now
        peers[node] = PeerFigures(
            now.name, now.rack, rate(old.bytes_in, now.bytes_in), rate(old.bytes_out, now.bytes_out),
            rate(old.busy, now.busy),
        )  # fmt: skip
    received = {source: rate(before.received.get(source, 0.0), after.received.get(source, 0.0))
                for source in _SOURCES.values()}  # fmt: skip
    return Look(at_s=after.at_s, uptime_s=after.uptime_s, peers=peers, received=received, gauges=after.gauges)


def by_rack(peers: Iterable[PeerFigures]) -> list[tuple[str, float, float, int]]:
    """Rack, bytes in, bytes out, peers; the busiest first."""
    sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for peer in peers:
        for at, value in enumerate((peer.bytes_in, peer.bytes_out, 1)):
            sums[peer.rack][at] += value
    rows = [(rack, into, out, int(count)) for rack, (into, out, count) in sums.items()]
    return sorted(rows, key=lambda row: (-row[1] - row[2], row[0]))


def ordered(peers: Iterable[PeerFigures], sort: str) -> list[PeerFigures]:
    """The rows by ``sort``, one of ``SORTS``; equal ones by name."""
    keys: dict[str, Any] = {
        "in": lambda one: (-one.bytes_in, -one.bytes_out, one.name),
        "out": lambda one: (-one.bytes_out, -one.bytes_in, one.name),
        "name": lambda one: one.name,
        "rack": lambda one: (one.rack, -one.bytes_in - one.bytes_out, one.name),
    }
    return sorted(peers, key=keys[sort])


def frame_lines(
    page: Mapping[str, Any], now: Look, sort: str, *, columns: int | None, lines_max: int, has_keys: bool = True
) -> list[str]:  # fmt: skip
    """At most that many lines of at most ``columns``, None for any width; what does not fit is counted in the last
    line. ``has_keys``: somebody can type there."""
    lines = laid_out(_head(page, now), columns)
    alarms = page["alarms"]
    if alarms:
        lines += _alarm(f"ALARM {alarms[0]['code']}: {alarms[0]['sentence']}", columns)
    lines += [f"ALARM and {len(alarms) - 1} more: gossipd status"] * (len(alarms) > 1)
    racks = by_rack(now.peers.values())
    cells = [(rack, _rate(into), _rate(out), str(count)) for rack, into, out, count in racks[:RACKS_SHOWN]]
    lines += ["", *_table(("RACK", "IN", "OUT", "PEERS"), cells, columns), ""]
    peers = ordered(now.peers.values(), sort)
    shown = max(1, lines_max - len(lines) - 2)
    rows = [(one.name, one.rack, _rate(one.bytes_in), _rate(one.bytes_out), f"{one.busy:.0f}/s") for one in peers]
    lines += _table(("PEER", "RACK", "IN", "OUT", "NO SLOT"), rows[:shown], columns)
    left_out = len(rows) - shown
    foot = f"{left_out} more peers; " if left_out > 0 else ""
    lines.append(f"{foot}sorted by {sort}" + ("; s: another order, q: quit" if has_keys else ""))
    return lines[: lines_max - 1] + lines[-1:] * (len(lines) >= lines_max)


def _head(page: Mapping[str, Any], now: Look) -> list[str]:
    node, gauges = page["node"], now.gauges
    sent = sum(peer.bytes_out for peer in now.peers.values())
    sources = ", ".join(f"{name} {_rate(value)}" for name, value in now.received.items())
    live = [row for row in page["deployments"] if row["state"] in ("init", "downloading", "distributing", "verifying")]
    return [
        f"{node['name']}  rack {node['rack']}  up {time_words(node['uptime_s'])}  "
        f"loop late {1000 * page['loop_lag_p99_s']:.1f} ms (p99)  {show_count(len(live), 'deployment')} under way",
        f"in   {_rate(sum(now.received.values()))}: {sources}",
        f"out  {_rate(sent)}  uploads {gauges.get('uploads_busy', 0):.0f} of {gauges.get('uploads_max', 0):.0f}  "
        f"buffers {show_bytes(int(gauges.get('buffers_busy_bytes', 0)))} of "
        f"{show_bytes(int(gauges.get('buffers_max_bytes', 0)))}",
    ]


def _rate(bytes_per_s: float) -> str:
    return f"{show_bytes(int(bytes_per_s))}/s"


def _alarm(words: str, columns: int | None) -> list[str]:
    """Some lines of it; that there is more, the last one says."""
    lines = laid_out([words], None if columns is None else columns - len(" ..."))
    more = len(lines) - ALARM_LINES_MAX
    return [*lines[: ALARM_LINES_MAX - 1], f"{lines[ALARM_LINES_MAX - 1]} ..."] if more > 0 else lines


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], columns: int | None) -> list[str]:
    """Names of a peer and its rack, or of a rack, and figures. Names that are too long are cut in the middle: a row is
    one line, so that rows keep their places while figures change."""
    if columns is None:
        return laid_out([TextTable(head, rows)], None)
    widths = [max(map(len, cells)) for cells in zip(head, *rows, strict=True)]
    spare = columns - sum(widths[-FIGURES:]) - len("  ") * (len(head) - 1)
    racks = [min(width, max(NAME_LEAST, spare // 3)) for width in widths[1:-FIGURES]]
    limits = [max(NAME_LEAST, spare - sum(racks)), *racks]
    cut = [
        (*(cut_in_the_middle(name, limit) for name, limit in zip(row, limits, strict=False)), *row[-FIGURES:])
        for row in rows
    ]
    return laid_out([TextTable(head, cut)], None)
