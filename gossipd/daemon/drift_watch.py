"""Looks each minute whether hosts differ for long in what should be the same, and tells the operator.

What lives here: the alarm ``E_DRIFT``, and how long a difference must last. What does not: comparing
(``diagnosis.drift``), and what is compared (``config.prints``). Clocks have an alarm of their own (``clock_watch``).

A rotation of keys, a change of settings and an upgrade pass from host to host: only what has lasted longer than they
take is worth an alarm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import trio

from gossipd.api.schema import MemberRow
from gossipd.daemon.alarms import Alarms
from gossipd.daemon.live_settings import LiveSettings
from gossipd.diagnosis.drift import ASPECTS, Aspect, compare
from gossipd.runtime.look_interval import until_next_look

ALARM = "E_DRIFT"
LOOK_S = 60.0
LASTS_S = 600.0
VERSION_LASTS_S = 86_400.0  # an upgrade, some hosts at a time, takes a day
HOSTS_NAMED = 5


class MemberRows(Protocol):
    """Who belongs to the cluster, and what each host tells of itself."""

    def members(self) -> Sequence[MemberRow]: ...


class DriftWatch:
    """One per daemon, on the trio loop."""

    def __init__(self, roster: MemberRows, live: LiveSettings, alarms: Alarms) -> None:
        self.roster = roster
        self.live = live
        self.alarms = alarms
        self._since_s: dict[str, float] = {}
        """When each aspect that differs was first seen to."""

    async def run(self) -> None:
        """Never returns."""
        while True:
            await until_next_look(LOOK_S)
            self.look(trio.current_time())

    def look(self, now: float) -> None:
        """Begin or end the alarm."""
        wanted = self.live.config.status.drift_alarm
        rows = [
            {"name": one.name, "state": one.state, "version": one.version, "prints": one.prints}
            for one in self.roster.members()
        ]
        found = {one.name: one for one in compare(rows) if one.differs and one.name in wanted}
        self._since_s = {name: self._since_s.get(name, now) for name in found}
        lasting = [found[name] for name, since_s in self._since_s.items() if now - since_s >= _lasts_s(name)]
        if lasting:
            self.alarms.ring_as(ALARM, sentence(lasting))
        else:
            self.alarms.cured(ALARM)


def _lasts_s(aspect: str) -> float:
    return VERSION_LASTS_S if aspect == "version" else LASTS_S


def sentence(aspects: Sequence[Aspect]) -> str:
    """Which hosts are the fewest, of each aspect, and what they have."""
    told = "; ".join(f"{_words(one)} ({ASPECTS[one.name].replace('`', '')})" for one in aspects)
    return f"hosts differ that should be the same: {told}; see: gossipd members --drift"


def _words(aspect: Aspect) -> str:
    hosts = aspect.fewest.hosts
    named = ", ".join(hosts[:HOSTS_NAMED]) + (f" and {len(hosts) - HOSTS_NAMED} more" if hosts[HOSTS_NAMED:] else "")
    return f"{aspect.name}: {named} {'has' if len(hosts) == 1 else 'have'} {aspect.fewest.value}"
