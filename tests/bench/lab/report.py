"""From an outcome to one row: ratios to the single download of the same run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.bench.lab.fabric import Counters
from tests.bench.lab.systems.base import Bench, Outcome

# Above this share of all cores' time the figure may be the machine's and not the system's.
BUSY_MAX = 0.9
# While a virtual machine stands still so do all links and hosts of the lab, but for the few packets on their way: a run
# that lost 1 % of both cores in pauses of 0.1 to 0.5 s took 1.085 downloads where the one before it took 1.060.
STOLEN_MAX = 0.005


def row(bench: Bench, outcome: Outcome, single_s: float, single: Counters, slow: Mapping[str, float]) -> dict[str, Any]:
    """The published fields, in order.

    Args:
        slow: rates of hosts whose links are slower, in Mbit/s: not in ``healthy_last_s``.
    """
    took_s = {name: done - outcome.began_s for name, done in outcome.done_s.items()}
    last_s, mean_s = max(took_s.values()), sum(took_s.values()) / len(took_s)
    healthy_last_s = max((one for name, one in took_s.items() if name not in slow), default=last_s)
    racks = [sum(host.rack == rack for host in bench.fabric.hosts) for rack in range(bench.fabric.racks)]
    return {
        "system": outcome.system,
        "hosts": len(bench.fabric.hosts),
        "racks": racks,
        "congestion": bench.fabric.congestion,
        "bytes": bench.size,
        "single_s": round(single_s, 3),
        "last_s": round(last_s, 3),
        "mean_s": round(mean_s, 3),
        "ratio_last": round(last_s / single_s, 4),
        "ratio_mean": round(mean_s / single_s, 4),
        "healthy_last_s": round(healthy_last_s, 3),
        "ratio_healthy_last": round(healthy_last_s / single_s, 4),
        "external_x": round(outcome.counters.external / bench.size, 4),
        "external_over_single": round(outcome.counters.external / single.external, 4),
        "crossrack_x": round(outcome.counters.crossrack / bench.size, 4),
        "crossrack_over_single_per_rack": round(outcome.counters.crossrack / single.external / len(racks), 4),
        # Payload, headers, control and what was cancelled on its way: all that came, over what one download brings.
        "moved_over_single": round(sum(outcome.counters.hosts.values()) / len(outcome.done_s) / single.external, 4),
        **_ratios_by_rate(bench, took_s, single_s, slow),
        "duplicate_x": round(outcome.duplicate_bytes / bench.size, 4),
        "cpu_s": round(sum(one.cpu_s for one in outcome.usage.values()), 2),
        "rss_max_bytes": max((one.rss_max_bytes for one in outcome.usage.values()), default=0),
        "verified_hosts": outcome.verified_hosts,
        "killed": outcome.killed,
        "cpu_busy": round(outcome.busy, 3),
        "cpu_stolen": round(outcome.stolen, 4),
        "cpu_limited": outcome.busy > BUSY_MAX or outcome.stolen > STOLEN_MAX,
        **outcome.figures,
    }


def _ratios_by_rate(
    bench: Bench, took_s: Mapping[str, float], single_s: float, slow: Mapping[str, float]
) -> dict[str, float]:
    """By link rate in Mbit/s: the last of these hosts, over what its own link needs for one download."""
    last_s: dict[float, float] = {}
    for name, seconds in took_s.items():
        mbit = slow.get(name, bench.fabric.mbit)
        last_s[mbit] = max(seconds, last_s.get(mbit, 0.0))
    needs_s = {mbit: single_s * bench.fabric.mbit / mbit for mbit in last_s}
    return {f"ratio_at_{mbit:g}": round(last_s[mbit] / needs_s[mbit], 4) for mbit in sorted(last_s)}


_COLUMNS = (
    ("system", "system", "s"), ("last s", "last_s", ".2f"), ("last / single", "ratio_last", ".3f"),
    ("mean / single", "ratio_mean", ".3f"), ("external x", "external_x", ".3f"),
    ("ext / single", "external_over_single", ".3f"), ("cross-rack x", "crossrack_x", ".2f"),
    ("duplicate x", "duplicate_x", ".3f"), ("CPU s", "cpu_s", ".1f"), ("verified", "verified_hosts", "d"),
)  # fmt: skip


def table(rows: Sequence[dict[str, Any]]) -> str:
    """For people."""
    cells = [[name for name, _, _ in _COLUMNS]]
    cells += [[format(one[key], form) for _, key, form in _COLUMNS] for one in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_COLUMNS))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    limited = [one["system"] for one in rows if one["cpu_limited"]]
    lines += [
        f"{one['system']}: the last of the hosts that are not slow took {one['healthy_last_s']:.2f} s, "
        f"{one['ratio_healthy_last']:.3f} of one plain download"
        for one in rows
        if one["healthy_last_s"] < one["last_s"]
    ]
    lines += [
        f"the simulator says {one['predicted_last_s']:.2f} s of this cluster: {one['system']} took "
        f"{one['last_over_predicted']:.3f} of that"
        for one in rows
        if one.get("predicted_last_s")
    ]
    lines += [
        f"{one['system']}: control channel and membership sent {one['control_bytes_per_node_s'] / 1000:.1f} KB/s "
        f"per host, {one['control_over_moved']:.2%} of all bytes that came to hosts"
        for one in rows
        if "control_over_moved" in one
    ]
    if limited:
        lines.append(f"the machine's CPU was the limit for: {', '.join(limited)}; these figures do not count")
    return "\n".join(lines)
