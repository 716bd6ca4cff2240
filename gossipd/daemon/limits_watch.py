"""Looks every second whether threads or connections have run out, and whether the audit log is written: three alarms.

What lives here: the alarms ``E_THREADS``, ``E_PORT_FULL`` and ``E_AUDIT``, and a record of each address that floods a
port. What does not: the limits, and writing the log (``audit.log``).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Protocol

import trio

from gossipd.daemon.alarms import Alarms
from gossipd.runtime.look_interval import until_next_look
from gossipd.runtime.worker_threads import calls_without_a_thread

LOOK_S = 1.0
CROWDED_S = 60.0  # without a connection turned away before the alarm ends
NO_THREADS = "the system refuses new threads to this daemon: raise the limit (ulimit -u, TasksMax, pids.max)"
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

    def __init__(self, alarms: Alarms, ports: dict[str, ListeningPort]) -> None:
        self._alarms = alarms
        self._ports = ports
        self._turned_away = dict.fromkeys(ports, 0)
        self._dropped: dict[str, frozenset[str]] = dict.fromkeys(ports, frozenset())
        self._crowded_s = -math.inf

    async def run(self) -> None:
        """Never returns: work that waits for a thread, and members among strangers, go on by themselves."""
        while True:
            await until_next_look(LOOK_S)
            if calls_without_a_thread():
                self._alarms.ring("E_THREADS", NO_THREADS)
            else:
                self._alarms.cured("E_THREADS")
            self.look(trio.current_time())

    def look(self, now: float) -> None:
        """Compare with the last look."""
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

    def _record_dropped(self, name: str, addresses: frozenset[str]) -> None:
        for address in sorted(addresses - self._dropped[name]):
            self._alarms.audit.record("stranger refused", subject=address, reason=f"flood of {name}")
        self._dropped[name] = addresses
