"""What the loop of a daemon has done: frames that it sent, events that its planner handled, turns in which it planned.

What lives here: one look at the daemon's metrics, and the difference between two. What does not: when to look
(``lab``), and what threads have used (``thread_costs``).
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from gossipd.api.client import StatusClient


@dataclass(frozen=True, slots=True)
class LoopCosts:
    """Since the daemon's start, or between two looks."""

    frames: int
    events: int
    turns: int

    def since(self, before: LoopCosts) -> LoopCosts:
        """What came between the two looks."""
        return LoopCosts(self.frames - before.frames, self.events - before.events, self.turns - before.turns)


def look_at_loops(client: StatusClient) -> LoopCosts:
    """Since the daemon's start. Raises DaemonUnreachableError; KeyError when the daemon lacks the counters."""
    families = text_string_to_metric_families(client.metrics())
    values = {(one.name, *one.labels.values()): int(one.value) for family in families for one in family.samples}
    return LoopCosts(
        values.get(("gossipd_control_events_total", "link_sent"), 0),  # nothing is there before the first frame
        values["gossipd_planner_events_total",],
        values["gossipd_planner_turns_total",],
    )
