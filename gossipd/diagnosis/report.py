"""What a deployment did, summed up: times, bytes by rack and host, egress and its price, stragglers and their reasons.

What lives here: from the daemon's answer to one summary, pure. What does not: what daemons keep (``api.report_row``,
``deployment.history``), and display (``cli.report``, ``web/static/report.js``).

Times of hosts are whole seconds, as their records have them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Any

from gossipd.core.start_time import began_s
from gossipd.core.versions import label_words
from gossipd.diagnosis.fluid_bound import FluidBound, fluid_bound

GB = 1_000_000_000  # what storage vendors charge by
STRAGGLERS_MAX = 10
# One host is no straggler for being the last of many: half as long again as the median, and at least some seconds.
STRAGGLER_FACTOR, STRAGGLER_LEAST_S = 1.5, 3
_DELETED = ("removed", "evicted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Bytes by source, of a host, a rack or all. ``hosts`` and ``complete`` count targets."""

    name: str
    rack: str
    state: str = ""
    seconds: int | None = None
    """Until it was complete, from the beginning of the first host; of a rack, its last host. None: it is not."""
    first_seconds: int | None = None
    """Of a rack, until its first host was."""
    hosts: int = 1
    complete: int = 0
    source_bytes: int = 0
    peer_bytes_same_rack: int = 0
    peer_bytes_cross_rack: int = 0
    duplicate_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Straggler:
    """A host that is not complete, was so much later than most, or told nothing for long. ``reasons``: for how many
    seconds it told which, the longest first. ``silent_s``: without a word, ``silent_from_s`` after the beginning; None
    where it was not."""

    name: str
    rack: str
    state: str
    seconds: int | None
    reason: str
    reasons: tuple[tuple[str, float], ...]
    silent_s: float | None = None
    silent_from_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All of it. ``quantiles``: seconds until the first host, half of the targets, 95 % and all were complete; None for
    what has not come. ``source_ratio``: copies of the model that storage sent. ``money``: None where no price is
    known. ``bound``: what the links allowed, for the last host; ``reached_ratio``: how many times that it took."""

    label: str
    state: str
    bytes_total: int
    hosts_total: int
    hosts_complete: int
    began_s: int
    quantiles: dict[str, int | None]
    bound: FluidBound | None
    reached_ratio: float | None
    source_bytes: int
    source_ratio: float
    money: float | None
    money_per_gb: float
    cross_rack_bytes: int
    cross_rack_ratio: float
    duplicate_bytes: int
    corrupt_chunks: int
    corrupt_bytes: int
    """Of chunks that came damaged. ``cancelled_bytes``: of chunks that did not come whole."""
    cancelled_bytes: int
    readers: tuple[str, ...]
    """Who read storage, the most first."""
    racks: tuple[Moved, ...]
    hosts: tuple[Moved, ...]
    stragglers: tuple[Straggler, ...]


def summarise(
    report: Mapping[str, Any], *, money_per_gb: float | None = None, link: float | None = None,
    external: float | None = None,
) -> Summary:  # fmt: skip
    """``report``: the answer of ``GET /v1/report``. ``money_per_gb``: another price than the daemon's. ``link``,
    ``external``: what a host and storage can send, in bytes a second, where that is known."""
    row = report["deployment"]
    traffic = {one["name"]: one for one in report["traffic"]}
    begun_s = began_s(one["started_s"] for one in report["traffic"])
    targets = {one["name"]: one for one in row["hosts"]}
    hosts = [_host(name, targets.get(name), traffic.get(name), begun_s) for name in sorted({*targets, *traffic})]
    price = report["money_per_gb"] if money_per_gb is None else money_per_gb
    size, source, cross = max(1, row["bytes_total"]), row["source_bytes"], row["peer_bytes_cross_rack"]
    done = sorted(one.seconds for one in hosts if one.seconds is not None and one.name in targets)
    quantiles, bound = _quantiles(done, len(targets)), fluid_bound(report, link=link, external=external)
    last, least_s = quantiles["last"], 0.0 if bound is None else bound.seconds
    readers = sorted((one for one in hosts if one.source_bytes), key=lambda one: (-one.source_bytes, one.name))
    return Summary(
        label=label_words(row), state=row["state"],
        bytes_total=row["bytes_total"], hosts_total=row["hosts_total"], hosts_complete=row["hosts_complete"],
        began_s=begun_s, quantiles=quantiles, bound=bound,
        reached_ratio=round(last / least_s, 2) if last is not None and least_s else None, source_bytes=source,
        source_ratio=round(source / size, 4), money=round(source / GB * price, 4) if price else None,
        money_per_gb=price, cross_rack_bytes=cross, cross_rack_ratio=round(cross / size, 4),
        duplicate_bytes=row["duplicate_bytes"], corrupt_chunks=row["corrupt_chunks"],
        corrupt_bytes=row.get("corrupt_bytes", 0), cancelled_bytes=row.get("cancelled_bytes", 0),
        readers=tuple(one.name for one in readers), racks=_racks(hosts, targets), hosts=tuple(hosts),
        stragglers=_stragglers([one for one in hosts if one.name in targets], targets, report["timeline"], done),
    )  # fmt: skip


def _host(name: str, target: Mapping[str, Any] | None, told: Mapping[str, Any] | None, begun_s: int) -> Moved:
    state = "" if target is None else target["state"]
    rack = (target or told or {"rack": ""})["rack"]
    is_complete = state == "complete"
    if told is None:
        return Moved(name=name, rack=rack, state=state, hosts=target is not None, complete=is_complete)
    ended_s = max(0, told["started_s"] + told["elapsed_s"] - begun_s) if is_complete and told["started_s"] else None
    return Moved(
        name=name, rack=rack, state=state, seconds=ended_s, hosts=target is not None, complete=is_complete,
        source_bytes=told["source_bytes"], peer_bytes_same_rack=told["peer_bytes_same_rack"],
        peer_bytes_cross_rack=told["peer_bytes_cross_rack"], duplicate_bytes=told["duplicate_bytes"],
    )  # fmt: skip


def _racks(hosts: Sequence[Moved], targets: Mapping[str, Any]) -> tuple[Moved, ...]:
    by_rack: defaultdict[str, list[Moved]] = defaultdict(list)
    for one in hosts:
        by_rack[one.rack].append(one)
    return tuple(_rack(rack, by_rack[rack], targets) for rack in sorted(by_rack))


def _rack(rack: str, hosts: Sequence[Moved], targets: Mapping[str, Any]) -> Moved:
    ends = [one.seconds for one in hosts if one.name in targets]
    told = [end for end in ends if end is not None]
    sums = {
        name: sum(getattr(one, name) for one in hosts)
        for name in ("source_bytes", "peer_bytes_same_rack", "peer_bytes_cross_rack", "duplicate_bytes")
    }
    return Moved(
        name=rack, rack=rack, hosts=len(ends), complete=sum(one.complete for one in hosts),
        seconds=max(told) if told and len(told) == len(ends) else None, first_seconds=min(told, default=None), **sums,
    )  # fmt: skip


def _quantiles(done: Sequence[int], targets: int) -> dict[str, int | None]:
    """``done``: ascending."""
    counts = {"first": 1, "half": ceil(targets / 2), "p95": ceil(0.95 * targets), "last": targets}
    return {name: done[count - 1] if 0 < count <= len(done) else None for name, count in counts.items()}


def _stragglers(
    hosts: Sequence[Moved], targets: Mapping[str, Any], timeline: Mapping[str, Any] | None, done: Sequence[int]
) -> tuple[Straggler, ...]:
    median = done[(len(done) - 1) // 2] if done else 0
    late_s = max(STRAGGLER_FACTOR * median, median + STRAGGLER_LEAST_S)
    silent = {} if timeline is None else timeline["silences"]
    waited_for = [one for one in hosts if one.state not in (*_DELETED, "complete") or one.seconds is not None]
    late = [one for one in waited_for if one.seconds is None or one.seconds > late_s or one.name in silent]
    late.sort(key=lambda one: (one.seconds is not None, -(one.seconds or 0), one.name))
    return tuple(_straggler(one, targets[one.name]["reason"], timeline) for one in late[:STRAGGLERS_MAX])


def _straggler(one: Moved, reason: str, timeline: Mapping[str, Any] | None) -> Straggler:
    known = timeline or {"reasons": {}, "silences": {}, "told_s": 0.0}
    lasted: defaultdict[str, float] = defaultdict(float)
    told = [*known["reasons"].get(one.name, ()), (known["told_s"], "")]
    for (since_s, word), (until_s, _) in pairwise(told):
        if word:
            lasted[word] += max(0.0, until_s - since_s)
    longest = tuple(sorted(((word, round(for_s, 1)) for word, for_s in lasted.items()), key=lambda each: -each[1]))
    silence = known["silences"].get(one.name)
    told_silence = (None, None) if silence is None else (silence[0], silence[1])
    return Straggler(one.name, one.rack, one.state, one.seconds, reason, longest, *told_silence)
