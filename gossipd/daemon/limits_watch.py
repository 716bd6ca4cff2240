"""Looks every second whether threads, descriptors or connections have run out, and whether the audit log is written.

What lives here: the alarms ``E_THREADS``, ``E_HANDLES``, ``E_PORT_FULL`` and ``E_AUDIT``, and a record of each address
that floods a port. What does not: the limits, the count of refusals (``runtime.system_refusals``), and writing the log
(``audit.log``).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Protocol

import trio

from gossipd.daemon.alarms import Alarms
from gossipd.runtime.logs import get_logger
from gossipd.runtime.look_interval import until_next_look
from gossipd.runtime.system_refusals import (
    NO_DESCRIPTORS,
    NO_THREADS,
    REFUSALS,
    SystemRefusals,
    try_descriptor,
)

log = get_logger("limits")
LOOK_S = 1.0
CROWDED_S = 60.0  # without a connection turned away before the alarm ends
REFUSED_S = 10.0  # without a refusal before the alarm ends
CROWDED = (
    "more new connections come to this host's {port} than it has places for: the oldest silent ones are cut, and those "
    "of addresses that make no others are dropped. See who makes them (`stranger refused` in the audit log, `ss -tn "
    "state established`) and keep all but members from the port"
)


class ListeningPort(Protocol):
    """A port that bounds its new connections."""

    @property
    def turned_away(self) -> int:
        """Since the start, what connections had to make room for others, or found none."""

    @property
    def dropped_addresses(self) -> Collection[str]:
        """The addresses from which the kernel drops new connections for now."""


class LimitsWatch:
    """One per daemon. ``ports``: by the setting that names each."""

    def __init__(
        self, alarms: Alarms, ports: dict[str, ListeningPort], refusals: SystemRefusals = REFUSALS
    ) -> None:  # fmt: skip
        self._alarms = alarms
        self._ports = ports
        self._turned_away = dict.fromkeys(ports, 0)
        self._dropped: dict[str, frozenset[str]] = dict.fromkeys(ports, frozenset())
        self._crowded_s = -math.inf
        self._refusals = refusals
        self._refused = {"E_THREADS": refusals.threads, "E_HANDLES": refusals.descriptors}
        self._refused_s: dict[str, float] = {}
        """By alarm that rings, the time of the last refusal."""

    async def run(self) -> None:
        """Never returns: work that waits for a thread, and members among strangers, go on by themselves."""
        while True:
            await until_next_look(LOOK_S)
            if "E_HANDLES" in self._refused_s:  # what was refused need not be tried again by itself
                try_descriptor()
            self.look(trio.current_time())

    def look(self, now: float) -> None:
        """Compare with the last look."""
        self._look_at_refusals("E_THREADS", NO_THREADS, self._refusals.threads, now)
        self._look_at_refusals("E_HANDLES", NO_DESCRIPTORS, self._refusals.descriptors, now)
        if trouble := self._alarms.audit.trouble:
            self._alarms.ring("E_AUDIT", trouble)
        else:
            self._alarms.cured("E_AUDIT")
        for name, port in self._ports.items():
            if port.turned_away != self._turned_away[name]:
                self._turned_away[name] = port.turned_away
                self._crowded_s = now
                self._alarms.ring("E_PORT_FULL", CROWDED.format(port=name))
                self._record_dropped(name, frozenset(port.dropped_addresses))
        if now - self._crowded_s >= CROWDED_S:
            self._alarms.cured("E_PORT_FULL")

    def _look_at_refusals(self, code: str, sentence: str, count: int, now: float) -> None:
        if count != self._refused[code]:
            if code not in self._refused_s:
                log.warning("the system refuses", code=code, reason=sentence)
            self._refused[code], self._refused_s[code] = count, now
            self._alarms.ring(code, sentence)
        elif now - self._refused_s.get(code, math.inf) >= REFUSED_S:
            del self._refused_s[code]
            self._alarms.cured(code)
            log.info("the system refuses no longer", code=code)

    def _record_dropped(self, name: str, addresses: frozenset[str]) -> None:
        for address in sorted(addresses - self._dropped[name]):
            self._alarms.audit.record("stranger refused", subject=address, reason=f"flood of {name}")
        self._dropped[name] = addresses
