"""The least time that the links allowed a deployment (the fluid bound), from a report.

What lives here: the bound, and the rates of links as the report shows them. What does not: times that were reached
(``report``), and the bound of a cluster that is planned (``sim.scenario``).

No schedule is faster than the slowest of these: storage sends what had to be read of it, a host takes in what it
wanted, and storage and hosts together send what all took in (Kumar and Ross 2006). Rates that nobody gives are the
highest that the course shows: of one host, and of storage. So the bound says what the cluster could have done at the
rates that it has shown; a link that was never filled is faster than that.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

EQUAL_SHARE = 0.01  # runs lose 2 to 3 % (tests/bench/RESULTS.md): no run could tell apart what is closer
# Records come at some distance, so that what one column shows may have come in two; of a large cluster, in many.
_WINDOW_COLUMNS, _WINDOW_SHARE = 4, 16
_NOTHING, _SHARE_MAX = 255, 254


@dataclass(frozen=True, slots=True)
class FluidBound:
    """``seconds`` from the first host's beginning to the last one's end. Rates in bytes a second, of a host's link each
    way and of storage. ``is_measured``: whether one of them is taken from the course."""

    seconds: float
    limiting_resource: str
    link_bytes_per_s: int
    external_bytes_per_s: int
    is_measured: bool


def fluid_bound(
    report: Mapping[str, Any], *, link: float | None = None, external: float | None = None
) -> FluidBound | None:
    """``report``: the answer of ``GET /v1/report``. None where a rate is neither given nor to be seen."""
    row, targets = report["deployment"], {one["name"]: one["state"] for one in report["deployment"]["hosts"]}
    received = {one["name"]: _received(one) for one in report["traffic"] if one["name"] in targets}
    done = [received.get(name, 0) for name, state in targets.items() if state == "complete"]
    # What equal chunks of other versions have spared is no time of the links.
    host_bytes = max(done, default=0) or (0 if done else row["bytes_total"])
    external_bytes = min(row["source_bytes"], row["bytes_total"]) if done else row["bytes_total"]
    all_bytes = sum(done) + host_bytes * (len(targets) - len(done))
    link_rate = link or _highest_of_hosts(report["timeline"], received, row)
    external_rate = external or _highest_of_storage(report["timeline"]) or link_rate
    if not link_rate or not external_rate or not all_bytes:
        return None
    times = times_of(external_bytes, host_bytes, all_bytes, len(targets), link=link_rate, external=external_rate)
    is_measured = not (link and external)
    return FluidBound(round(max(times.values()), 1), slowest(times), int(link_rate), int(external_rate), is_measured)


def times_of(
    external_bytes: int, host_bytes: int, all_bytes: int, hosts: int, *, link: float, external: float
) -> dict[str, float]:  # fmt: skip
    """Seconds that each resource alone needs: for what storage sends, what one host takes in, what all do."""
    return {
        "storage": external_bytes / external,
        "a host's downlink": host_bytes / link,
        "all uplinks": all_bytes / (external * bool(external_bytes) + hosts * link),
    }


def slowest(times: Mapping[str, float]) -> str:
    """The resources that need longest, in words: every one within a hundredth of the slowest. A cluster is often
    planned so that several are equal; making one of them faster then gains nothing."""
    names = [name for name, seconds in times.items() if seconds >= (1 - EQUAL_SHARE) * max(times.values())]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _received(traffic: Mapping[str, Any]) -> int:
    return sum(traffic[name] for name in ("source_bytes", "peer_bytes_same_rack", "peer_bytes_cross_rack"))


def _highest_of_storage(timeline: Mapping[str, Any] | None) -> float:
    if timeline is None:
        return 0.0
    read = [moved[0] for moved in timeline["moved"]]
    window = _window(len(read))
    sums = [sum(read[at : at + window]) for at in range(len(read) - window + 1)]
    seconds: float = max(timeline["step_s"] * window, 1.0)
    return max(sums, default=0) / seconds


def _highest_of_hosts(
    timeline: Mapping[str, Any] | None, received: Mapping[str, int], row: Mapping[str, Any]
) -> float:  # fmt: skip
    """Of hosts that have received all or most of what they have: the others had equal chunks, which came at once."""
    if timeline is None:
        return 0.0
    rates = [0.0]
    for name, shares in timeline["shares"].items():
        cells = b64decode(shares)
        held_bytes = max((one for one in cells if one != _NOTHING), default=0) / _SHARE_MAX * row["bytes_total"]
        if held_bytes and received.get(name, 0) >= 0.9 * held_bytes:
            rates.append(_highest(cells, timeline["step_s"]) * row["bytes_total"])
    return max(rates)


def _window(columns: int) -> int:
    """Over how many columns a rate is taken."""
    return min(columns, max(_WINDOW_COLUMNS, columns // _WINDOW_SHARE))


def _highest(cells: Sequence[int], step_s: float) -> float:
    """The highest rate over some columns, in shares a second."""
    known = [one for one in cells if one != _NOTHING]
    rises = [at for at in range(1, len(known)) if known[at] > known[at - 1]]
    if not rises:
        return 0.0
    known, window = known[: rises[-1] + 1], min(_window(len(cells)), rises[-1])
    risen = [known[at + window] - known[at] for at in range(len(known) - window)]
    return max(risen) / _SHARE_MAX / (window * step_s)
