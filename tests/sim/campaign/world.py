"""One run: the clock, the hosts, the deployments, the faults and the oracle, all from one seed.

What lives here: putting them together and playing them. What does not: any of them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from gossipd.core.ids import DeploymentId
from gossipd.daemon import member_directory
from gossipd.swarm.settings import PlannerSettings
from membership.events import MemberAnswered, MemberUp
from membership.member import NodeId
from tests.membership.checkers import EventsAreNews, HealthyStayAlive, Rule, all_rules
from tests.sim.campaign.daemon import Daemon
from tests.sim.campaign.faults import OVER_S, Faults, choose_kinds
from tests.sim.campaign.model import Model, make_model
from tests.sim.campaign.operations import Operations
from tests.sim.campaign.oracle import FalseDeaths, Oracle
from tests.sim.campaign.source import Storage
from tests.sim.campaign.wires import Wires

HOSTS_PER_RACK = 10
CHUNKS = 24
SHARED_CHUNKS = 8
CHUNK_S = 0.05  # what the planner assumes before it has seen a chunk
STORAGE_CHUNK_S = 1.0
STORAGE_FLOWS = 3
"""So a model leaves storage in some 10 s, and faults find the download under way."""
ORDERS_S = (2.0, 16.0)
GRACE_S = 120.0
"""After the last fault everybody has everything within this: a seed that gave its claim up, and reads after what
looked like a partition, rest for 60 s, storage that failed for up to 30 s; then a download."""
_CHECK_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a seed. ``recovered_s``: from the end of the faults until all was well, 0 when it was before."""

    seed: int
    hosts: int
    simulated_s: float
    trace: str
    faults: dict[str, int]
    violation: str
    false_deaths: int
    recovered_s: float
    looked: dict[str, int]
    cpu_s: float


class World:
    """``faults`` names kinds to put in place of the drawn ones."""

    def __init__(
        self, seed: int, *, hosts: int = 50, seconds: float = 60.0, kinds: tuple[str, ...] | None = None
    ) -> None:
        self.seed = seed
        self.seconds = seconds
        self.settings = PlannerSettings()
        self.chunk_s = CHUNK_S
        self.store_root = Path("unused")
        self.stalls = 0
        self.oracle = Oracle(self)
        self._false_deaths = FalseDeaths(self)
        rules: list[Rule] = [
            rule for rule in all_rules(set()) if not isinstance(rule, HealthyStayAlive | EventsAreNews)
        ]
        racks = max(4, hosts // HOSTS_PER_RACK)
        faults_random = Random(f"{seed} faults")
        chosen = choose_kinds(faults_random) if kinds is None else kinds
        self.host_count = hosts
        newcomers = sum(kind in ("dead_join", "forget_join") for kind in chosen)
        self.wires = Wires(hosts + newcomers, racks=racks, seed=seed, checkers=[*rules, self._false_deaths])
        self.random = Random(f"{seed} world")
        self.nodes: list[NodeId] = [host.node for host in self.wires.hosts]
        self.index_of = {node: index for index, node in enumerate(self.nodes)}
        self.daemons = [Daemon(self, index) for index in range(hosts + newcomers)]
        self.operations: Operations = Operations(self, Random(f"{seed} operations"))
        self.faults = Faults(self, faults_random, chosen)
        self.newcomers = self.daemons[hosts:]
        """Hosts that do not run before an operation starts them."""
        for daemon in self.newcomers:
            self.faults.not_yet(daemon)
        self.wires.cut_struck = self.faults.cut_struck
        self.wires.on_event = lambda index, event: self.daemons[index].hear(event)
        self.storage = Storage(
            Random(f"{seed} storage"), self.faults.struck, chunk_s=STORAGE_CHUNK_S, flows=STORAGE_FLOWS
        )
        one = make_model(self.random, version=1, chunk_count=CHUNKS)
        two = make_model(self.random, version=2, chunk_count=CHUNKS, shared=one.chunks[:SHARED_CHUNKS])
        self.models: dict[DeploymentId, Model] = {model.manifest.id: model for model in (one, two)}
        self.opened: list[DeploymentId] = []
        self.recovered_s = 0.0
        self.tell: Callable[[str], None] | None = None
        """Hears a sentence about everything that matters, for a person who looks at one seed."""

    # ---- time ----------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return self.wires.now

    def at(self, when: float, action: Callable[..., None], *arguments: Any) -> None:
        """Do something then."""
        self.wires.at(when, action, *arguments)

    def after(self, delay_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Do something in a while."""
        self.wires.at(self.now + delay_s, action, *arguments)

    def delay(self) -> float:
        """One way between two hosts."""
        low, high = self.wires.delay_s
        return low + (high - low) * self.random.random()

    # ---- hosts ---------------------------------------------------------------------------------

    def die(self, daemon: Daemon, *, power: bool) -> None:
        """Process or machine: peers are told by its kernel in the one case, by nobody in the other."""
        self.wires.crash(daemon.index)
        daemon.die(power=power)
        for other in self.daemons:
            if other.is_up and other is not daemon:
                if power:
                    other.watch(daemon.index)
                else:
                    other.after(self.delay(), other.plane.reset, daemon.index)

    def stop(self, daemon: Daemon) -> None:
        """SIGSTOP, for the whole process."""
        daemon.stop()
        self.wires.freeze(daemon.index)
        for other in self.daemons:
            if other.is_up and other is not daemon:
                other.watch(daemon.index)

    def go_on(self, daemon: Daemon) -> None:
        """SIGCONT."""
        daemon.is_stopped = False
        self.wires.thaw(daemon.index)
        daemon.go_on()

    # ---- the run -------------------------------------------------------------------------------

    def run(self) -> None:
        """Play it. Raises Violation."""
        for daemon in self.daemons[: self.host_count]:
            daemon.boot(join=(), roster=[])
        self._acquaint()
        for when, deployment in zip(ORDERS_S, self.models, strict=True):
            self.at(when, self._order, deployment)
        self.faults.schedule()
        self.wires.run(self.seconds)
        over_s = max(OVER_S, self.seconds)
        while (wrong := any(self.oracle.unfinished())) and self.now < OVER_S + GRACE_S:
            self.wires.run(self.now + _CHECK_EVERY_S)
        self.recovered_s = max(0.0, self.now - over_s) if not wrong else -1.0
        self.oracle.close()

    def _acquaint(self) -> None:
        """Everybody knows everybody: the state that a quiet cluster is in."""
        wires = self.wires
        first = wires.swim(0)
        first.adopt_view([wires.swim(index) for index in range(self.host_count)])
        for index in range(1, self.host_count):
            wires.swim(index).adopt_view([first])
        for daemon in self.daemons[: self.host_count]:
            wires.flush(daemon.index)
            for member in wires.swim(daemon.index).members():
                if member.node != daemon.node:
                    daemon.hear(MemberUp(member))  # what a view that was heard would have told
                    daemon.hear(MemberAnswered(member.node))

    def _order(self, deployment: DeploymentId) -> None:
        self.opened.append(deployment)
        self.operations.drop(self.daemons[0], deployment)

    @property
    def false_deaths(self) -> int:
        """Healthy hosts that healthy hosts took for dead."""
        return self._false_deaths.count

    @property
    def trace(self) -> str:
        """Hash over everything that happened."""
        self.wires.note(repr((self.now, self.random.random(), self.wires.rng.random())).encode())
        return self.wires.trace_hash


class _NoLog:
    """The daemon's table of members logs; fifty of them would say nothing else."""

    def info(self, sentence: str, **fields: object) -> None:
        """Nothing."""

    warning = info


def play(
    seed: int, *, hosts: int = 50, seconds: float = 60.0, kinds: tuple[str, ...] | None = None, trace: bool = False
) -> Outcome:
    """One seed, from its number to its outcome. ``trace``: every command and fault on stderr."""
    began_s = time.process_time()
    with mock.patch.object(member_directory, "log", _NoLog()):
        world = World(seed, hosts=hosts, seconds=seconds, kinds=kinds)
        if trace:
            world.tell = lambda sentence: print(f"{world.now:9.4f} {sentence}", file=sys.stderr)
        violation = ""
        try:
            world.run()
        except AssertionError as error:  # a rule of the oracle or of membership, or an assertion of the code under test
            violation = str(error) or "assertion"
    return Outcome(
        seed=seed,
        hosts=hosts,
        simulated_s=world.now,
        trace=world.trace,
        faults=dict(sorted(world.faults.counts().items())),
        violation=violation,
        false_deaths=world.false_deaths,
        recovered_s=world.recovered_s,
        looked=dict(sorted(world.oracle.looked.items())),
        cpu_s=time.process_time() - began_s,
    )
