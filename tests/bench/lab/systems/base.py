"""What every system's run shares: the bench, the kill orders, the outcome, and the loop that watches agents."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from blake3 import blake3

from tests.bench.lab.fabric import Counters, Fabric, LabError, Station
from tests.bench.lab.process import Agent, MachineCpu, Usage
from tests.bench.pages import backed_pages, handed_over

START_SECONDS_MAX = 90.0  # 64 Python processes on two cores import for about 40 s
POLL_S = 0.01
EARLY_POLL_S = 0.1  # before anybody can be done: looks at sixteen hosts every 10 ms are one per cent of two cores
PAGES_LOOK_S = 0.1  # a tenth of a second of 16 hosts at 100 Mbit/s are 20 MB, and a look is a file read for each


@dataclass(frozen=True)
class KillOrder:
    """``who`` is a host's name, ``seed``, or a share of all hosts; ``at`` is the mean progress, 0 to 1."""

    who: str
    at: float

    @classmethod
    def parse(cls, text: str) -> KillOrder:
        """``node-3@30%``, ``seed@0.3``, ``20%@30%``. Raises ValueError with a sentence."""
        who, at, progress = text.partition("@")
        if not who or not at:
            raise ValueError("want WHO@PROGRESS, as node-3@30%, seed@0.3 or 20%@30%")
        return cls(who, share(progress))


def share(text: str) -> float:
    """``30%`` or ``0.3``. Raises ValueError with a sentence."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ValueError(f"{text!r} is no share between 0 and 100 %; write 30% or 0.3")
    return value


@dataclass(frozen=True)
class Bench:
    """One fabric with a model in its storage."""

    fabric: Fabric
    base: Path
    model: Path
    """The original file; its directory is what nginx serves at ``url``."""
    url: str
    size: int
    kills: Sequence[KillOrder]
    encryption: str
    timeout_s: float
    rng: Random
    chunk_bytes: int | None = None
    """gossipd's chunks; None: the default for the size."""
    torrent_seeding: str = "super"
    """What libtorrent's hosts get the model from: one of ``torrent.SEEDING``."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What gossipd's hosts have in their environment besides."""
    rest_s: float = 0.0
    """For how long gossipd's hosts are measured at rest first."""

    def directory(self, system: str, station: Station) -> Path:
        """A fresh directory for one host's files."""
        path = self.base / system / station.name
        path.mkdir(parents=True, exist_ok=True)
        return path


@contextmanager
def ready_to_write(bench: Bench, writers: Sequence[int]) -> Iterator[None]:
    """The machine has memory for what these processes are going to write, without asking its own host for it."""
    with (
        backed_pages(str(bench.base), bench.size * len(writers)) as pages,
        handed_over(pages, writers, look_s=PAGES_LOOK_S),
    ):
        yield


@dataclass
class Outcome:
    """What one system did. Times are on CLOCK_MONOTONIC."""

    system: str
    began_s: float
    done_s: dict[str, float]
    counters: Counters
    usage: dict[str, Usage]
    busy: float
    verified_hosts: int
    duplicate_bytes: int = 0
    stolen: float = 0.0
    killed: list[str] = field(default_factory=list)
    figures: dict[str, object] = field(default_factory=dict)


class Killer:
    """Carries out kill orders as the mean progress of all hosts passes them."""

    def __init__(self, bench: Bench, kill: Callable[[str], None], seed: Callable[[], str]) -> None:
        self._bench = bench
        self._kill = kill
        self._seed = seed
        self._left = sorted(bench.kills, key=lambda order: order.at)
        self._before = bench.fabric.counters()
        self.killed: list[str] = []

    def look(self) -> None:
        """Progress is what the hosts' links have carried to them."""
        if not self._left:
            return
        arrived = self._bench.fabric.counters().since(self._before).hosts
        progress = sum(min(count, self._bench.size) for count in arrived.values()) / self._bench.size / len(arrived)
        while self._left and progress >= self._left[0].at:
            for name in self._chosen(self._left.pop(0).who):
                self._kill(name)
                self.killed.append(name)

    def _chosen(self, who: str) -> list[str]:
        alive = [host.name for host in self._bench.fabric.hosts if host.name not in self.killed]
        if who == "seed":
            return [self._seed()]
        if who in alive:
            return [who]
        count = round(share(who) * len(self._bench.fabric.hosts))
        return self._bench.rng.sample(alive, min(count, len(alive) - 1))


def is_right(copy: Path, original: Path) -> bool:
    """Every byte, by hash."""
    return copy.exists() and digest(copy) == digest(original)


def digest(path: Path) -> bytes:
    """Of a whole file."""
    return blake3(max_threads=blake3.AUTO).update_mmap(path).digest()


def run_agents(
    bench: Bench, system: str, agents: Sequence[Agent], copies: dict[str, Path], *, sources: Sequence[Agent] = ()
) -> Outcome:
    """Start them together, watch until all that live are done, measure, stop, verify.

    Args:
        sources: ready already, and told to go with the others; not measured.
    """
    for agent in agents:
        agent.wait_ready(START_SECONDS_MAX)
    with ready_to_write(bench, [agent.process.pid for agent in agents]):
        return _run(bench, system, agents, copies, sources)


def _run(
    bench: Bench, system: str, agents: Sequence[Agent], copies: dict[str, Path], sources: Sequence[Agent]
) -> Outcome:
    by_name = {agent.station.name: agent for agent in agents}
    before, cpu = bench.fabric.counters(), MachineCpu()
    killer = Killer(bench, lambda name: by_name[name].kill(), lambda: agents[0].station.name)
    began_s = time.monotonic()
    for agent in (*sources, *agents):
        agent.go()
    done_s: dict[str, float] = {}
    duplicate_bytes = 0
    while missing := [one for one in agents if one.station.name not in done_s and not one.killed]:
        for agent in missing:
            if (answer := agent.poll()) is not None:
                done_s[agent.station.name] = float(answer["done_s"])
                duplicate_bytes += int(answer.get("duplicate", 0))
        killer.look()
        if time.monotonic() - began_s > bench.timeout_s:
            names = ", ".join(agent.station.name for agent in missing)
            raise LabError(f"{system}: not done after {bench.timeout_s:.0f} s: {names}")
        time.sleep(POLL_S)
    counters, busy, stolen = bench.fabric.counters().since(before), cpu.busy(), cpu.stolen()
    used = {agent.station.name: agent.stop() for agent in agents}
    return Outcome(
        system, began_s, done_s, counters, used, busy, stolen=stolen,
        verified_hosts=sum(is_right(copies[name], bench.model) for name in done_s),
        duplicate_bytes=duplicate_bytes, killed=killer.killed,
    )  # fmt: skip
