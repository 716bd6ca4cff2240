"""Carries a plan out: begins what is due, ends what has lasted long enough.

What lives here: signals, cables, starts. What does not: what is due when (``schedule``) and what it means
(``oracle``, which looks at each host that has died before it is started again).
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from gossipd.demo.hosts import DemoHost
from tests.bench.lab.fabric import Fabric, LabError
from tests.chaos.cluster.oracle import Oracle
from tests.chaos.cluster.schedule import SEED, Fault, Kind, Plan

IMPATIENCE_S = 40.0  # a run that makes no progress has its faults all the same, spread over this time


@dataclass
class _Running:
    fault: Fault
    host: DemoHost
    ends_s: float
    has_died: bool = False


class Trouble:
    """``look`` is called often, with the mean progress of all hosts."""

    def __init__(self, plan: Plan, fabric: Fabric, hosts: list[DemoHost], oracle: Oracle) -> None:
        self._plan = plan
        self._fabric = fabric
        self._hosts = {host.name: host for host in hosts}
        self._oracle = oracle
        self._left = list(plan.faults)
        self._running: list[_Running] = []
        self._began_s = time.monotonic()
        self.counts: Counter[Kind] = Counter()
        self.killed: set[str] = set()
        self.killed_seeds = 0
        self.events: list[str] = []

    @property
    def is_over(self) -> bool:
        """Nothing is due any more, and everything has been undone."""
        return not self._left and not self._running

    def look(self, progress: float) -> None:
        """Begin and end what is due."""
        now = time.monotonic()
        reached = max(progress, (now - self._began_s) / IMPATIENCE_S)
        due = [fault for fault in self._left if fault.at <= reached]
        for fault in due:
            if self._begin(fault, now):
                self._left.remove(fault)
        for running in list(self._running):
            self._go_on(running, now)

    def is_down(self, host: DemoHost) -> bool:
        """Its process is not there, or stopped, on purpose."""
        kinds = (Kind.KILL, Kind.RESTART, Kind.STOP)
        return any(running.host is host and running.fault.kind in kinds for running in self._running)

    # ---- beginning -------------------------------------------------------------------------------

    def _begin(self, fault: Fault, now: float) -> bool:
        """False when everybody it could hit is down: a moment later."""
        host = self._victim(fault)
        if host is None:
            return False
        assert host.process is not None
        self.events.append(f"{now - self._began_s:.2f} {fault.kind.value} {host.name} for {fault.for_s:.1f} s")
        running = _Running(fault, host, now + fault.for_s)
        match fault.kind:
            case Kind.KILL:
                self.killed_seeds += host.name in self._seeds()
                self.killed.add(host.name)
                host.kill()
                self._died(running)
            case Kind.RESTART:
                host.ask_to_stop()
            case Kind.STOP:
                host.process.send_signal(signal.SIGSTOP)
            case Kind.CUT | Kind.CUT_RACK:
                self._set_cable(running, "down")
        self.counts[fault.kind] += 1
        self._running.append(running)
        return True

    def _victim(self, fault: Fault) -> DemoHost | None:
        unhurt = [name for name, host in self._hosts.items() if name not in self.killed and not self.is_down(host)]
        if fault.kind is Kind.KILL and fault.who in self.killed:  # as a seed, before its turn: so many hosts, not kills
            spare = [name for name in unhurt if name != self._plan.rotten]
            return self._hosts[spare[0]] if spare else None
        if fault.who != SEED:
            host = self._hosts[fault.who]
            # A daemon that is still starting has no handler for SIGTERM yet: it would simply end.
            is_deaf = fault.kind is Kind.RESTART and host.status() is None
            return None if self.is_down(host) or is_deaf else host
        planned = {one.who for one in self._plan.faults if one.kind is Kind.KILL}
        up = [name for name in self._seeds() if name in unhurt and name != self._plan.rotten]
        fresh = [name for name in up if name not in planned]
        return self._hosts[(fresh or up)[0]] if up else None

    def _seeds(self) -> list[str]:
        """Hosts that claim to read storage, as anybody who answers sees it."""
        for host in self._hosts.values():
            page = None if self.is_down(host) else host.status()
            if page is not None:
                return [str(one["name"]) for one in page["members"] if one["seed"] and one["state"] == "alive"]
        return []

    # ---- ending ----------------------------------------------------------------------------------

    def _go_on(self, running: _Running, now: float) -> None:
        host = running.host
        assert host.process is not None
        if running.fault.kind is Kind.RESTART and not running.has_died:
            if host.process.poll() is None:
                if now > running.ends_s + IMPATIENCE_S:
                    raise LabError(f"{host.name} does not end on SIGTERM")
                return
            if host.process.returncode:
                raise LabError(f"{host.name} ended with {host.process.returncode} on SIGTERM")
            self._died(running)
        if now < running.ends_s:
            return
        match running.fault.kind:
            case Kind.KILL | Kind.RESTART:
                host.start()
            case Kind.STOP:
                host.process.send_signal(signal.SIGCONT)
            case Kind.CUT | Kind.CUT_RACK:
                self._set_cable(running, "up")
        self._running.remove(running)

    def _died(self, running: _Running) -> None:
        running.has_died = True
        self._oracle.look_at_dead(running.host)

    def _set_cable(self, running: _Running, state: str) -> None:
        station = next(one for one in self._fabric.hosts if one.name == running.host.name)
        port = station.port if running.fault.kind is Kind.CUT else f"u{station.rack}"
        subprocess.run(["ip", "-n", self._fabric.switches, "link", "set", port, state], check=True, capture_output=True)


def wait(is_true: Callable[[], bool], seconds_max: float, why: Callable[[], str], *, every_s: float = 0.1) -> None:
    """Look until it is so. Raises LabError."""
    deadline = time.monotonic() + seconds_max
    while not is_true():
        if time.monotonic() > deadline:
            raise LabError(why())
        time.sleep(every_s)
