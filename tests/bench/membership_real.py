"""``python -m tests.bench.membership_real --json``: our agents and Debian's ``serf`` through the same faults, for real.

Each agent is a process in a network namespace of its own; veth pairs lead to one bridge. A cut takes the bridge's end
of a cable down. All agents of one system run in one CPU cgroup under a quota (namespaces do not split the CPU), where
the hogs run too. What an agent believes is read from its output as it comes. Needs root, iproute2 and serf;
everything it makes is named ``gmb*`` and taken away again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

PORT = 7946
CGROUP = Path("/sys/fs/cgroup/cpu/gmb")
QUOTA_CPUS = 1.5  # of two: the benchmark itself and the kernel need the rest
RACKS = 6
_SERF = re.compile(r"EventMember(Join|Failed|Leave): (\S+)")


def run(*command: str) -> None:
    """A system command that must succeed."""
    subprocess.run(command, check=True, capture_output=True)


class Agent:
    """One process and what it has said."""

    def __init__(self, lab: Lab, index: int) -> None:
        self.index = index
        self.name = f"host-{index}"
        self.downs: list[tuple[float, str]] = []
        self.believed: set[str] = {self.name}
        host, contact = lab.address(index), lab.address(0)
        prefix = ["ip", "netns", "exec", f"gmb{index}"]
        if lab.system == "serf":
            command = ["serf", "agent", f"-node={self.name}", f"-bind={host}:{PORT}", "-rpc-addr=127.0.0.1:7373"]
            command += ["-log-level=info", "-profile=lan"] + ([f"-join={contact}"] if index else [])
        else:
            command = [sys.executable, "-m", "tests.bench.membership_agent", self.name, f"rack-{index % RACKS}", host]
            command += [str(PORT)] + ([contact] if index else [])
        self.process = subprocess.Popen(
            prefix + command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        lab.confine(self.process.pid)
        self._reader = threading.Thread(target=self._read, args=(lab.system,), daemon=True)
        self._reader.start()

    def _read(self, system: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if system == "serf":
                found = _SERF.search(line)
                if not found:
                    continue
                is_up, name = found[1] == "Join", found[2]
            else:
                word, _, name = line.strip().partition(" ")
                if word not in ("up", "down"):
                    continue
                is_up = word == "up"
            if is_up:
                self.believed.add(name)
            else:
                self.believed.discard(name)
                self.downs.append((time.monotonic(), name))

    def signal(self, number: int) -> None:
        """To the agent and whatever it started."""
        os.killpg(self.process.pid, number)


class Lab:
    """Namespaces, cables, a cgroup, agents."""

    def __init__(self, system: str, count: int) -> None:
        self.system = system
        self.count = count
        self.agents: list[Agent] = []
        self.hogs: list[subprocess.Popen[bytes]] = []

    def address(self, index: int) -> str:
        """Inside the private network."""
        return f"10.77.0.{index + 1}"

    def __enter__(self) -> Lab:
        self._sweep()
        CGROUP.mkdir(exist_ok=True)
        (CGROUP / "cpu.cfs_quota_us").write_text(str(int(QUOTA_CPUS * 100_000)))
        run("ip", "netns", "add", "gmb-net")
        run("ip", "-n", "gmb-net", "link", "add", "br0", "type", "bridge")
        run("ip", "-n", "gmb-net", "link", "set", "br0", "up")
        for index in range(self.count):
            inside = f"gmb{index}"
            run("ip", "netns", "add", inside)
            run(
                "ip", "-n", "gmb-net", "link", "add", f"v{index}", "type", "veth", "peer", "name", "e0", "netns", inside
            )
            run("ip", "-n", "gmb-net", "link", "set", f"v{index}", "master", "br0", "up")
            run("ip", "-n", inside, "addr", "add", f"{self.address(index)}/24", "dev", "e0")
            run("ip", "-n", inside, "link", "set", "e0", "up")
            run("ip", "-n", inside, "link", "set", "lo", "up")
        return self

    def __exit__(self, *_: object) -> None:
        for hog in self.hogs:
            hog.kill()
        for agent in self.agents:
            try:
                agent.signal(signal.SIGKILL)
            except ProcessLookupError:
                continue
        for process in [agent.process for agent in self.agents] + self.hogs:
            process.wait()
        self._sweep()

    def _sweep(self) -> None:
        for name in [f"gmb{index}" for index in range(self.count)] + ["gmb-net"]:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        if CGROUP.exists():
            CGROUP.rmdir()

    def confine(self, pid: int) -> None:
        """Into the cgroup; children follow."""
        (CGROUP / "cgroup.procs").write_text(str(pid))

    def start(self) -> float:
        """All agents; returns how long until everybody knew everybody."""
        began = time.monotonic()
        for index in range(self.count):
            self.agents.append(Agent(self, index))
        self.wait(lambda: all(len(agent.believed) == self.count for agent in self.agents), 120.0)
        return round(time.monotonic() - began, 2)

    def wait(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Poll until it holds."""
        end = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def cable(self, index: int, state: str) -> None:
        """``up`` or ``down``, at the switch."""
        run("ip", "-n", "gmb-net", "link", "set", f"v{index}", state)

    def hog(self) -> None:
        """One busy loop beside the agents."""
        process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        self.confine(process.pid)
        self.hogs.append(process)

    def deaths(self, since: float, sick: set[int]) -> tuple[int, int]:
        """All verdicts about running members since then, and those of healthy ones about healthy ones."""
        names = {f"host-{index}" for index in sick}
        rows = [(agent.index, name) for agent in self.agents for at, name in agent.downs if at >= since]
        return len(rows), sum(index not in sick and name not in names for index, name in rows)


Switch = Callable[[int], None]


def flap(
    lab: Lab, sick: list[int], switches: tuple[Switch, Switch], timing: tuple[float, float], seconds: float
) -> dict[str, Any]:
    """Off and on again until the time is over; then how long until all views are full."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        for action, pause in zip(switches, timing, strict=True):
            for index in sick:
                action(index)
            time.sleep(pause)
    healed = time.monotonic()
    full = lab.wait(lambda: all(len(agent.believed) == lab.count for agent in lab.agents), 90.0)
    time.sleep(5.0)
    false_deaths, healthy = lab.deaths(began, set(sick))
    return {
        "false_deaths": false_deaths,
        "false_deaths_healthy_by_healthy": healthy,
        "full_view_after_heal_s": round(timing[1] + time.monotonic() - healed - 5.0, 1) if full else None,
    }


def scenario(name: str, lab: Lab, seconds: float) -> dict[str, Any]:
    """One scenario on a lab whose agents all know each other."""
    time.sleep(3.0)
    sick = list(range(2, lab.count, max(1, lab.count // (8 if name == "stop" else 4))))[: 8 if name == "stop" else 4]
    if name == "cut":
        switches = (lambda i: lab.cable(i, "down"), lambda i: lab.cable(i, "up"))
        return flap(lab, sick, switches, (10.0, 4.0), seconds)
    if name == "stop":
        switches = (lambda i: lab.agents[i].signal(signal.SIGSTOP), lambda i: lab.agents[i].signal(signal.SIGCONT))
        return flap(lab, sick, switches, (16.4, 4.1), seconds)
    began = time.monotonic()
    if name == "hogs":
        for _ in range(8):
            lab.hog()
        time.sleep(seconds)
        false_deaths, healthy = lab.deaths(began, set())
        return {"false_deaths": false_deaths, "false_deaths_healthy_by_healthy": healthy}
    times: list[float] = []
    for victim in sick:
        began = time.monotonic()
        lab.agents[victim].signal(signal.SIGKILL)
        lab.wait(partial(_all_know, lab, f"host-{victim}", set(sick)), 60.0)
        times.append(time.monotonic() - began)
    return {"crash_known_p50_s": round(median(times), 2), "crash_known_max_s": round(max(times), 2)}


def _all_know(lab: Lab, name: str, sick: set[int]) -> bool:
    return all(name not in agent.believed for agent in lab.agents if agent.index not in sick)


def main(arguments: list[str] | None = None) -> int:
    """Run the scenarios asked for, for both systems."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.membership_real", description=__doc__)
    parser.add_argument("--agents", type=int, default=24, help="at most 32: the kernel's neighbour table is small")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=112.0)
    parser.add_argument("--systems", default="ours,serf")
    parser.add_argument("--scenarios", default="kill,cut,stop,hogs")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    for name in options.scenarios.split(","):
        for number in range(options.runs):
            for system in options.systems.split(","):
                with Lab(system, options.agents) as lab:
                    full = lab.start()
                    row = {"scenario": name, "system": system, "run": number, "members": options.agents}
                    row |= {"join_full_s": full} | scenario(name, lab, options.seconds)
                    print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
