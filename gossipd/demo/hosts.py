"""One daemon of the demo: its directory as ``gossipd init`` makes it, its process, its status socket.

This program starts the processes and ends them by their ids. Should it be killed itself, they end, too (``attached``).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from typing import Any

from gossipd.api.client import DaemonUnreachableError, RefusedByDaemonError, StatusClient
from gossipd.config.directory import make_directory
from gossipd.control.listener import BindError
from gossipd.demo.attached import lifeline

ADDRESS = "127.0.0.1"
PORTS = range(12_000, 22_000)  # Linux takes outgoing ports from 32,768 on
STOP_SECONDS_MAX = 8.0  # a daemon promises 5
LOG_TAIL_BYTES = 3000
PORT_TAKEN = BindError.code


@dataclass
class DemoHost:
    """One host. ``directory`` holds its configuration, keys, models, inbox and log."""

    name: str
    rack: str
    directory: Path
    port: int
    environment: dict[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    """A prefix of the daemon's command line, such as ``ip netns exec``."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def models(self) -> Path:
        return self.directory / "models"

    @property
    def inbox(self) -> Path:
        return self.directory / "inbox"

    @property
    def log(self) -> Path:
        return self.directory / "gossipd.log"

    @property
    def client(self) -> StatusClient:
        return StatusClient(self.directory / "gossipd.sock")

    def start(self) -> None:
        config = str(self.directory / "gossipd.toml")
        command = [*self.command, sys.executable, "-m", "gossipd.demo.attached", "run", "--config", config]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=lifeline(), stdout=log, stderr=log, env=os.environ | self.environment,
                start_new_session=True,
            )  # fmt: skip

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(STOP_SECONDS_MAX)

    def ask_to_stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def stop(self) -> int | None:
        if self.process is None:
            return None
        self.ask_to_stop()
        try:
            return self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait(STOP_SECONDS_MAX)

    @property
    def cpu_s(self) -> float:
        """CPU seconds that the process has taken; 0 when it has ended, as those are its parent's then."""
        if self.process is None:
            return 0.0
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime, proc(5)

    @property
    def has_ended(self) -> bool:
        """Whether the process ended by itself."""
        return self.process is not None and self.process.poll() is not None

    def status(self) -> dict[str, Any] | None:
        """The whole status page; None while the daemon does not answer, or is too busy to."""
        try:
            return self.client.status()
        except (DaemonUnreachableError, RefusedByDaemonError):
            return None

    def start_elsewhere(self, others: Sequence[DemoHost]) -> bool:
        """Start a host again that has ended because another process had taken its ports meanwhile, at other ports,
        where it joins ``others``. False when it ended for another reason."""
        if not self.has_ended or PORT_TAKEN not in self.log_tail():
            return False
        (self.port,) = free_ports(1)
        joins = ", ".join(f'"{ADDRESS}:{other.port}"' for other in others if other is not self)
        self.environment |= {"GOSSIPD_NET__PORT": str(self.port), "GOSSIPD_NET__JOIN": f"[{joins}]"}
        self.start()
        return True

    def log_tail(self) -> str:
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - LOG_TAIL_BYTES))
            return file.read().decode(errors="replace")


def make_hosts(
    base: Path, *, hosts: int, racks: int, trust: Sequence[Path], sources: Sequence[str], encryption: str = "tls"
) -> list[DemoHost]:
    """Directories for ``node-1`` to ``node-N`` in racks ``rack-1`` to ``rack-R``; adjacent numbers share a rack.
    ``sources``: the addresses that each host may read, as in ``sources.allow``."""
    made: list[DemoHost] = []
    for index, port in enumerate(free_ports(hosts)):
        name, rack = f"node-{index + 1}", f"rack-{index * racks // hosts + 1}"
        directory = base / name
        make_directory(
            directory,
            node={"name": name, "rack": rack},
            net={"bind": ADDRESS, "port": port, "join": tuple(f"{ADDRESS}:{host.port}" for host in made[:1])},
            cluster_key=made[0].directory / "cluster.key" if made else None,
            trust=trust,
        )
        made.append(DemoHost(name, rack, directory, port, settings(sources, encryption=encryption)))
    return made


def settings(sources: Sequence[str], *, encryption: str) -> dict[str, str]:
    """Settings that differ from the defaults, as environment overrides."""
    listed = ", ".join(f'"{source}"' for source in sources)
    return {
        "GOSSIPD_SOURCES__ALLOW": f"[{listed}]",
        "GOSSIPD_BULK__ENCRYPTION": encryption,
        "GOSSIPD_STORE__RESERVE_BYTES": "0",  # the demo checks the space itself
        "GOSSIPD_STORE__ANY_FILE_SYSTEM": "true",  # temporary directories are often in memory
        "GOSSIPD_LOG__FORMAT": "json",
    }


def free_ports(count: int) -> list[int]:
    """Ports that are free for TCP and UDP, with the next one free for TCP; all are held until all are found. They lie
    below the kernel's range for outgoing connections, so they stay free but for other servers that start now."""
    found: list[int] = []
    random = SystemRandom()
    with ExitStack() as held:
        while len(found) < count:
            port = random.randrange(PORTS.start, PORTS.stop, 2)
            probes = [socket.socket(), socket.socket(type=socket.SOCK_DGRAM), socket.socket()]
            for probe in probes:
                held.enter_context(probe)
            try:
                for probe, number in zip(probes, (port, port, port + 1), strict=True):
                    probe.bind((ADDRESS, number))
            except OSError:
                continue
            found.append(port)
    return found
