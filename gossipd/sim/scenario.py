"""What is simulated: cluster, model, links, delays, faults. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gossipd.core.timing import TOLD_SHARE
from gossipd.diagnosis.fluid_bound import slowest
from gossipd.manifest.chunk_layout import default_chunk_bytes
from gossipd.swarm.settings import PlannerSettings


@dataclass(frozen=True, slots=True)
class Slowdown:
    """``share`` of the hosts (or the host ``host``) run at ``factor`` of the link rate, both ways."""

    factor: float
    share: float = 0.0
    host: int | None = None


@dataclass(frozen=True, slots=True)
class Kill:
    """``share`` of the hosts (or one host, or one seed) die when ``progress`` of all wanted chunks is delivered."""

    progress: float
    share: float = 0.0
    host: int | None = None
    seed: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run. Rates in bytes/s, times in seconds."""

    hosts: int
    racks: int
    size: int
    chunks: int
    link: float
    external: float
    oversubscription: float = 1.0
    """How many times the links of a rack's hosts together exceed the rack's uplink."""
    slowdowns: tuple[Slowdown, ...] = ()
    kills: tuple[Kill, ...] = ()
    rng: int = 1
    delay_s: float = 0.0005
    """One way between two hosts, idle: 0.1 to 0.6 ms in a data centre."""
    queue_s: float = 0.001
    """Added one way by each saturated port. Data-centre switches mark or drop after about a millisecond."""
    store_s: float = 0.002
    """From the last byte to the announcement of the chunk: hash, write, hand-over. 16 MiB at 4 GB/s take 4 ms."""
    source_delay_s: float = 0.01
    """From the request to external storage to its first byte."""
    told_share: float = TOLD_SHARE
    """The part of a chunk that a host has before others may ask for it there."""
    upload_slots: int = 4
    evidence_s: float = 0.5
    """How long the connections of a dead process take to be noticed, from half to one and a half of it: its kernel
    resets them (``tests/gossipd/control/test_evidence.py``), and the daemon's loop needs its turn. Not simulated: a
    host that loses its power sends no reset, and a peer that has told it something finds out after 5 s."""
    membership_hosts_max: int = 1000
    """With deaths and up to this number of hosts membership runs in full; else its verdicts are drawn as measured."""
    settings: PlannerSettings = field(default_factory=PlannerSettings)
    origin: int | None = None
    """The host that holds everything from the start, as where a step was saved: there is no storage then."""

    @property
    def chunk_bytes(self) -> int:
        """The size of a chunk; the last one may be shorter."""
        return -(-self.size // self.chunks)

    @property
    def chunk_time_s(self) -> float:
        """What a chunk takes on an idle host link."""
        return self.chunk_bytes / self.link

    @property
    def bound_s(self) -> float:
        """The fluid bound (Kumar and Ross 2006): no schedule is faster."""
        return max(self.bounds().values())

    def bounds(self) -> dict[str, float]:
        """The time that each resource alone needs; the largest is the bound."""
        per_rack = self.hosts / self.racks
        uplink = per_rack * self.link / self.oversubscription
        return {
            "external link": self.size / self.external,
            "host downlinks": self.size / self.link,
            "host uplinks": self.hosts * self.size / (self.external + self.hosts * self.link),
            "rack uplinks": self.size / uplink,
        }

    @property
    def limiting_resource(self) -> str:
        """The resources that decide the bound, in words."""
        return slowest(self.bounds())


def lab_delays(scenario: Scenario) -> Scenario:
    """The delays of the shaped lab of ``tests.bench.lab``: a queue in each tbf, slower storing on two shared cores."""
    return replace(scenario, queue_s=0.02, store_s=0.004)


def lab(
    *, hosts: int = 16, racks: int = 4, mb: int = 256, mbit: float = 100.0, oversubscription: float = 1.0
) -> Scenario:
    """The shaped lab: 100 Mbit/s links that lose 4.7 % to headers (one plain download), chunks of 256 KiB."""
    rate = mbit * 1e6 / 8 / 1.047
    size = mb << 20
    return lab_delays(Scenario(hosts, racks, size, chunk_count_of(size), rate, rate, oversubscription))


def chunk_count_of(size: int) -> int:
    """The number of chunks that a publisher makes of a file of that size: about 2,048, of 256 KiB to 16 MiB."""
    return -(-size // default_chunk_bytes(size))
