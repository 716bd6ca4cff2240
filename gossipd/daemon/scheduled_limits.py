"""Looks every second which entry of ``limits.schedule`` is in force, and sets the limits by it.

What lives here: asking the timetable with the wall clock, applying, telling. What does not: the timetable
(``core.limit_schedule``), and holding limits (``runtime.rate_limit``). A clock that is set is followed within a second.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gossipd.api.schema import LimitsRow
from gossipd.audit.log import AuditLog
from gossipd.config.kinds import time_zone
from gossipd.config.model_sections import LimitsSection
from gossipd.core.limit_schedule import LIMITS, InForce, in_force, parse_entry
from gossipd.core.units import timestamp
from gossipd.daemon.live_settings import LiveSettings
from gossipd.runtime.look_interval import until_next_look
from gossipd.runtime.rate_limit import RateLimit

LOOK_S = 1.0


class LimitsInForce(Struct, frozen=True):
    """``bytes_per_s``: by limit, 0 for none."""

    bytes_per_s: Mapping[str, int]
    timetable: InForce


def limits_in_force(section: LimitsSection, wall_s: float) -> LimitsInForce:
    """What ``section`` says at that moment."""
    rates = {name: getattr(section, f"{name}_bytes_per_s") for name in LIMITS}
    entries = [parse_entry(text) for text in section.schedule]
    timetable = in_force(entries, time_zone(section.schedule_zone), wall_s)
    if timetable.entry is not None:
        rates |= dict(timetable.entry.bytes_per_s)
    return LimitsInForce(rates, timetable)


class LimitsSchedule:
    """One per daemon, on the trio loop. ``limiters``: by limit."""

    def __init__(self, live: LiveSettings, limiters: Mapping[str, RateLimit], audit: AuditLog) -> None:
        self._live = live
        self._limiters = limiters
        self._audit = audit
        self.now = limits_in_force(live.config.limits, time.time())
        self._apply()

    async def run(self) -> None:
        """Never returns."""
        while True:
            await until_next_look(LOOK_S)
            self.look(time.time())

    def look(self, wall_s: float) -> None:
        """Compare with what is in force."""
        before, self.now = self.now, limits_in_force(self._live.config.limits, wall_s)
        if self.now.bytes_per_s != before.bytes_per_s:
            self._apply()
            entry = self.now.timetable.entry
            limits: dict[str, Any] = dict(self.now.bytes_per_s)
            self._audit.record("limits changed", entry="" if entry is None else entry.text, **limits)

    def row(self) -> LimitsRow:
        """The limits in force, for the status."""
        entry, until_s = self.now.timetable.entry, self.now.timetable.until_s
        return LimitsRow(
            entry="" if entry is None else entry.text,
            until=None if until_s is None else timestamp(until_s),
            **{f"{name}_bytes_per_s": rate for name, rate in self.now.bytes_per_s.items()},
        )

    def _apply(self) -> None:
        for name, limiter in self._limiters.items():
            limiter.set_rate(float(self.now.bytes_per_s[name]) or None)
