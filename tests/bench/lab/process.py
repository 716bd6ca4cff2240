"""Processes in namespaces: started, told to go, measured from /proc, ended by their own ids."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.lab.fabric import LabError, Station

ROOT = Path(__file__).resolve().parents[3]
STOP_SECONDS_MAX = 8.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """CPU seconds so far and the peak of resident memory."""

    cpu_s: float
    rss_max_bytes: int


def usage(pid: int) -> Usage:
    """Of one process with all its threads; zeros when it is gone.

    Not wait4's ru_maxrss: with vfork that begins at the size of the program that started it.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return Usage(0.0, 0)
    peak = next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:")), 0)
    return Usage((int(fields[11]) + int(fields[12])) / _TICKS, peak)


class Agent:
    """One of ``tests.bench.lab.agents`` in a station's namespace.

    An agent prints ``ready``, waits for ``go`` on stdin, does its work, prints one JSON object, and stays until its
    stdin closes, so that it can be measured. Its ``done_s`` is on CLOCK_MONOTONIC, which all processes share.
    """

    def __init__(self, station: Station, module: str, *arguments: str, log: Path) -> None:
        self.station = station
        self.killed = False
        self._buffer = b""
        command = [*station.command, sys.executable, "-m", f"tests.bench.lab.agents.{module}", *arguments]
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT, start_new_session=True
            )
        self._log = log

    def wait_ready(self, timeout_s: float) -> None:
        if self._line(time.monotonic() + timeout_s) != b"ready":
            raise LabError(f"{self.station.name} did not become ready: {self._log.read_text()[-2000:]}")

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()

    def poll(self) -> dict[str, Any] | None:
        """The agent's answer, None while it works."""
        line = self._line(time.monotonic())
        if line is None:
            if self.process.poll() is not None and not self.killed:
                raise LabError(f"{self.station.name} ended by itself: {self._log.read_text()[-2000:]}")
            return None
        answer: dict[str, Any] = json.loads(line)
        return answer

    def kill(self) -> None:
        self.killed = True
        self.process.kill()

    def stop(self) -> Usage:
        """What it has used; then it is gone."""
        used = usage(self.process.pid)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        return used

    def _line(self, deadline: float) -> bytes | None:
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        while b"\n" not in self._buffer:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([descriptor], [], [], left)[0]:
                return None
            data = os.read(descriptor, 65536)
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


class MachineCpu:
    """How busy the whole machine was between two moments, and how much of it others had."""

    def __init__(self) -> None:
        self._before = self._read()

    def busy(self) -> float:
        """Share of all cores' time since the start that was not idle, 0 to 1."""
        now = self._read()
        total = sum(now) - sum(self._before)
        idle = (now[3] + now[4]) - (self._before[3] + self._before[4])
        return 1.0 - idle / total if total else 0.0

    def stolen(self) -> float:
        """Share of all cores' time since the start in which the host of this virtual machine let others run, 0 to 1."""
        now = self._read()
        total = sum(now) - sum(self._before)
        return (now[7] - self._before[7]) / total if total else 0.0

    @staticmethod
    def _read() -> Sequence[int]:
        first = Path("/proc/stat").read_text().split("\n", 1)[0]
        return [int(field) for field in first.split()[1:9]]


@contextlib.contextmanager
def spinning(count: int) -> Iterator[None]:
    """That many processes that compute for ever: what runs beside gossipd on a busy machine."""
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
