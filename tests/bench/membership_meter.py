"""What the membership benchmark measures on a simulated cluster: deaths true and false, traffic, full views."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Any

from membership.events import Event, MemberDown, MemberUp
from tests.membership.simulated_cluster import SimulatedCluster

FIELDS = (
    "members", "scenario", "seed", "join_known_p99_s", "last_full_view_s", "crash_known_p50_s", "crash_known_p99_s",
    "full_view_after_heal_s", "false_deaths", "false_deaths_healthy_by_healthy", "node_hours", "bytes_per_node_s_mean",
    "bytes_per_node_s_max", "datagrams_per_node_s_mean", "datagrams_per_node_s_max",
)  # fmt: skip
SHARES = (0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


def quantile(values: list[float], share: float) -> float | None:
    """Nearest rank; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)


class Meter:
    """Watches a cluster from now on. ``sick`` are hosts with a fault at some time: what concerns them is apart."""

    def __init__(self, cluster: SimulatedCluster, *, count_joins: bool = False) -> None:
        self.cluster = cluster
        self.sick: set[int] = set()
        self.crashed_at: dict[int, float] = {}
        self.known_by: dict[int, int] = defaultdict(int)
        self.known_at: dict[int, float] = {}
        self.waits_s: dict[int, list[float]] = defaultdict(list)
        self.false_deaths = 0
        self.false_healthy = 0
        self.started_at: dict[int, float] = {}
        self.joined_at: dict[int, float] = {}
        self._ups: dict[int, int] = defaultdict(int)
        self._count_joins = count_joins
        self._began = cluster.now
        self._rows: list[tuple[float, int, float, int]] = []
        self._last = self._totals()
        cluster.on_event = self._on_event
        cluster.at(cluster.now + 1.0, self._tick)

    def crash(self, index: int) -> None:
        """Kill a host and watch who learns of it when."""
        self.crashed_at[index] = self.cluster.now
        self.cluster.crash(index)

    def crash_times(self) -> list[float]:
        """For each crash, how long until the last living member knew; 1e9 where somebody never did."""
        living = sum(host.up for host in self.cluster.hosts)
        return [
            self.known_at[index] - at if self.known_by[index] >= living else 1e9
            for index, at in self.crashed_at.items()
        ]

    def crash_quantiles(self) -> dict[str, list[float | None]]:
        """Who learns of a crash when, at ``SHARES``: medians over the observers, and their distances from them."""
        medians = {subject: median(waits) for subject, waits in self.waits_s.items()}
        spread = [wait - medians[subject] for subject, waits in self.waits_s.items() for wait in waits]
        return {
            "crash_median_s": [quantile([*medians.values()], share) for share in SHARES],
            "crash_spread_s": [quantile(spread, share) for share in SHARES],
        }

    def has_full_views(self) -> bool:
        """Everybody who runs believes the same, and that everybody who runs lives."""
        running = [host.swim for host in self.cluster.hosts if host.up and host.swim is not None]
        digest = running[0].view_digest
        return all(swim.view_digest == digest and swim.statistics()["members_live"] == len(running) for swim in running)

    def row(self, scenario: str, seed: int, **more: Any) -> dict[str, Any]:
        """One line of the benchmark's output."""
        crashes = self.crash_times()
        count = len(self.cluster.hosts)
        seconds = [row for row in self._rows if row[0] >= 0]
        joins = [at - self.started_at[index] for index, at in self.joined_at.items()]
        found = {
            "members": count,
            "scenario": scenario,
            "seed": seed,
            "join_known_p99_s": quantile(joins, 0.99) if joins else None,
            "crash_known_p50_s": quantile(crashes, 0.5),
            "crash_known_p99_s": quantile(crashes, 0.99),
            "false_deaths": self.false_deaths,
            "false_deaths_healthy_by_healthy": self.false_healthy,
            "node_hours": round(count * (self.cluster.now - self._began) / 3600, 3),
            "bytes_per_node_s_mean": round(sum(row[0] for row in seconds) / max(1, len(seconds)), 1),
            "bytes_per_node_s_max": max((row[1] for row in seconds), default=None),
            "datagrams_per_node_s_mean": round(sum(row[2] for row in seconds) / max(1, len(seconds)), 2),
            "datagrams_per_node_s_max": max((row[3] for row in seconds), default=None),
        }
        row = {field: found.get(field) for field in FIELDS}
        return row | more

    def forget_traffic(self) -> None:
        """Set the traffic figures to zero."""
        self._rows.clear()

    def _tick(self) -> None:
        now, last = self._totals(), self._last
        self._last = now
        bytes_sent = [new[0] - old[0] for new, old in zip(now, last, strict=False)]
        datagrams = [new[1] - old[1] for new, old in zip(now, last, strict=False)]
        count = len(bytes_sent)
        self._rows.append((sum(bytes_sent) / count, max(bytes_sent), sum(datagrams) / count, max(datagrams)))
        self.cluster.at(self.cluster.now + 1.0, self._tick)

    def _totals(self) -> list[tuple[int, int]]:
        return [(host.sent_bytes, host.sent + host.received) for host in self.cluster.hosts]

    def _on_event(self, index: int, event: Event) -> None:
        if type(event) is MemberDown:
            subject = self.cluster.by_node[event.member.node]
            if self.cluster.hosts[subject].node != event.member.node:
                return  # a liar's second name
            if not self.cluster.hosts[subject].up:
                self.known_by[subject] += 1
                self.known_at[subject] = self.cluster.now
                if subject in self.crashed_at:
                    self.waits_s[subject].append(self.cluster.now - self.crashed_at[subject])
                return
            self.false_deaths += 1
            if index not in self.sick and subject not in self.sick:
                self.false_healthy += 1
        elif self._count_joins and type(event) is MemberUp:
            subject = self.cluster.by_node[event.member.node]
            self._ups[subject] += 1
            if self._ups[subject] == len(self.cluster.hosts) - 1:
                self.joined_at[subject] = self.cluster.now
