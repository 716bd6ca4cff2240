"""Courses of hosts: what each one went through for a deployment, joined from the events that a daemon tells.

What lives here: from events to courses that have ended, pure. What does not: events (``api.events``), and what
becomes of a course (``cli.traces``). Times are to a second, as those of events are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, TypeAlias

OPEN_MAX = 65_536  # 64 deployments under way on a thousand hosts
PHASES_MAX = 200  # of one; then the last one lasts until the end
FAILED = ("failed", "expired")
_ENDS = (*FAILED, "complete", "cancelled", "removed", "evicted")
Phase: TypeAlias = tuple[str, str, float, float]
"""A state, its reason if somebody must cure it, its beginning and end in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class HostCourse:
    """Of one host and deployment. ``state``, ``reason``: in which it ended."""

    host: str
    deployment: str
    state: str
    reason: str
    phases: tuple[Phase, ...]


class HostCourses:
    """Those that have begun. One whose beginning was not heard begins with the first word of it."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], list[tuple[str, str, float]]] = {}

    def heard(self, event: Mapping[str, Any]) -> HostCourse | None:
        """An event as ``GET /v1/events`` tells it; the course that it ends. In a gap may be the end of any."""
        body = event["body"]
        if body["type"] == "gap":
            self._open.clear()
        if body["type"] != "host-state":
            return None
        host, deployment = key = body["host"], body["deployment"]
        steps = self._open.pop(key, [])
        step = (body["state"], body["reason"], datetime.fromisoformat(event["at"]).timestamp())
        if step[0] in _ENDS:
            phases = [(*one, max(one[2], after[2])) for one, after in pairwise([*steps, step])]
            return HostCourse(host, deployment, step[0], step[1], tuple(phases)) if phases else None
        if len(self._open) >= OPEN_MAX:
            del self._open[next(iter(self._open))]
        self._open[key] = [*steps, step] if len(steps) < PHASES_MAX else steps
        return None
