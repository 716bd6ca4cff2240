"""What goes wrong in a run, drawn from its seed: when, for how long, to whom; and what of it really struck.

What lives here: the schedule and how each kind begins and ends. What does not: what an ailment does (``disk``,
``wires``, ``source``, ``daemon``). A fault counts once, and only when it has met something: a cut that nobody sent
through and a lie that nobody heard have tested nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from gossipd.core.ids import DeploymentId
from gossipd.store.models import layout
from tests.sim.campaign.model import CHUNK_BYTES

if TYPE_CHECKING:
    from tests.sim.campaign.daemon import Daemon
    from tests.sim.campaign.world import World

PER_RUN = 10
BEGIN_S, OVER_S = 2.5, 36.0
"""Every fault begins and ends between these."""
_ORIGIN = 0  # the host that the operator gave the manifests to is not killed: a word said to nobody is nobody's promise


class Fault:
    """One thing that goes wrong."""

    __slots__ = ("begin_s", "end_s", "has_struck", "hosts", "kind", "undo")

    def __init__(self, kind: str, hosts: tuple[int, ...], begin_s: float, end_s: float) -> None:
        self.kind = kind
        self.hosts = hosts
        self.begin_s = begin_s
        self.end_s = end_s
        self.has_struck = False
        self.undo: Callable[[], None] = lambda: None


class Faults:
    """The faults of one run."""

    def __init__(self, world: World, random: Random, kinds: tuple[str, ...]) -> None:
        self._world = world
        self._random = random
        self.all = [self._draw(kind) for kind in kinds]
        self._active: dict[str, list[Fault]] = {}
        self._pairs: dict[tuple[int, int], list[Fault]] = {}
        self._died_s: dict[int, float] = {}
        self._gone: set[int] = set()
        self.sick: set[int] = set()
        """Hosts whose membership some fault touches, now or earlier."""

    def _draw(self, kind: str) -> Fault:
        random, count = self._random, self._world.host_count
        most = {"kill_final": 2, "partition": count // 2, "swizzle": 8, "one_way": 6, "corrupting_peer": 8, "rot": 8}
        others = [index for index in range(count) if index != _ORIGIN]
        least = 1 if count < 20 else {"partition": 2, "swizzle": 3, "corrupting_peer": 4, "rot": 3}.get(kind, 1)
        hosts = random.sample(others, min(len(others), random.randint(least, max(least, most.get(kind, 5)))))
        begin_s = random.uniform(BEGIN_S, OVER_S - 8)
        end_s = min(OVER_S, begin_s + random.uniform(*_LASTS_S.get(kind, (3.0, 12.0))))
        return Fault(kind, tuple(hosts), begin_s, end_s)

    def schedule(self) -> None:
        """Put them all on the heap."""
        for fault in self.all:
            self._world.at(fault.begin_s, self._begin, fault)

    def _begin(self, fault: Fault) -> None:
        self._active.setdefault(fault.kind, []).append(fault)
        if self._world.tell is not None:
            self._world.tell(f"{fault.kind} begins on hosts {sorted(fault.hosts)}, until {fault.end_s:.1f}")
        _BEGINNINGS[fault.kind](self, fault)
        self._world.at(fault.end_s, self._end, fault)

    def _end(self, fault: Fault) -> None:
        self._active[fault.kind].remove(fault)
        fault.undo()

    def counts(self) -> Counter[str]:
        """How many of each kind have struck."""
        return Counter(fault.kind for fault in self.all if fault.has_struck)

    # ---- what struck ---------------------------------------------------------------------------

    def struck(self, kind: str, index: int | None = None) -> None:
        """A fault of this kind (on this host) has met something."""
        for fault in self._active.get(kind, ()):
            if index is None or index in fault.hosts:
                fault.has_struck = True

    def cut_struck(self, source: int, target: int) -> None:
        """Something was sent where a cut is."""
        for fault in self._pairs.get((source, target), ()):
            fault.has_struck = True

    def audited(self, index: int, kind: str, fields: Mapping[str, object]) -> None:
        """A host has recorded that it refused something."""
        if kind == "refused" and fields["code"] in ("E_EXPIRED", "E_ROLLBACK"):
            self.struck("expired" if fields["code"] == "E_EXPIRED" else "rollback")
        elif kind == "statement refused":
            self.struck("forged")

    def since(self, index: int) -> float:
        """When the host died last."""
        return self._died_s.get(index, 0.0)

    def should_run(self, index: int) -> bool:
        """Whether somebody will start it again, or has."""
        return index not in self._gone

    # ---- processes and machines ------------------------------------------------------------------

    def _kill(
        self, fault: Fault, *, power: bool = False, wipe: bool = False, forget: bool = False, again: bool = True
    ) -> None:  # fmt: skip
        world = self._world
        for index in fault.hosts:
            daemon = world.daemons[index]
            if not daemon.is_up:
                continue
            fault.has_struck = True
            self.sick.add(index)
            self._died_s[index] = world.now
            roster = world.wires.swim(index).roster_records()
            world.die(daemon, power=power or not again)
            if wipe:
                daemon.wipe()
                world.oracle.wiped(daemon)
                roster = []
            if forget:
                daemon.forget()
                world.oracle.forgot(daemon, [one for one in daemon.store.models() if one.is_published])
                roster = []
            if again:
                world.after(self._random.uniform(0.5, 8.0), self._restart, daemon, daemon.life, roster)
            else:
                self._gone.add(index)

    def not_yet(self, daemon: Daemon) -> None:
        """The host does not run before ``starts``."""
        self._gone.add(daemon.index)

    def starts(self, daemon: Daemon) -> None:
        """From now on it is expected to run."""
        self._gone.discard(daemon.index)

    @property
    def over_s(self) -> float:
        """When the last fault is over."""
        return OVER_S

    def end_for_good(self, daemon: Daemon) -> None:
        """The host's process ends, if it has not, and nothing starts it again."""
        self._gone.add(daemon.index)
        self.sick.add(daemon.index)
        if daemon.is_up:
            self._died_s[daemon.index] = self._world.now
            self._world.die(daemon, power=True)

    def _restart(self, daemon: Daemon, life: int, roster: list[Any]) -> None:
        if daemon.life == life and not daemon.is_up and daemon.index not in self._gone:
            others = [index for index in range(self._world.host_count) if index != daemon.index]
            daemon.boot(join=tuple(self._random.sample(others, min(3, len(others)))), roster=roster)

    def _pause(self, fault: Fault) -> None:
        world = self._world
        stopped: list[tuple[Daemon, int]] = []
        for index in fault.hosts:
            daemon = world.daemons[index]
            if daemon.is_up and not daemon.is_stopped:
                fault.has_struck = True
                self.sick.add(index)
                stopped.append((daemon, daemon.life))
                world.stop(daemon)

        def undo() -> None:
            for daemon, life in stopped:
                if daemon.life == life and daemon.is_up:
                    world.go_on(daemon)

        fault.undo = undo

    # ---- wires -----------------------------------------------------------------------------------

    def _cut(self, fault: Fault, pairs: list[tuple[int, int]]) -> Callable[[], None]:
        """Cut these ways; what mends them."""
        self.sick.update(fault.hosts)
        self._world.wires.cut_pairs(pairs)
        for pair in pairs:
            self._pairs.setdefault(pair, []).append(fault)
            self._world.daemons[pair[0]].watch(pair[1])
            self._world.daemons[pair[1]].watch(pair[0])

        def mend() -> None:
            self._world.wires.mend_pairs(pairs)
            for pair in pairs:
                self._pairs[pair].remove(fault)

        return mend

    def _partition(self, fault: Fault) -> None:
        inside = set(fault.hosts)
        outside = [index for index in range(len(self._world.daemons)) if index not in inside]
        pairs = [pair for one in inside for other in outside for pair in ((one, other), (other, one))]
        fault.undo = self._cut(fault, sorted(pairs))

    def _one_way(self, fault: Fault) -> None:
        count = len(self._world.daemons)
        pairs = []
        for one in fault.hosts:
            others = self._random.sample(range(count), self._random.randint(1, count - 1))
            pairs += [(one, other) if self._random.random() < 0.5 else (other, one) for other in others if other != one]
        fault.undo = self._cut(fault, pairs)

    def _swizzle(self, fault: Fault) -> None:
        """Hosts lose all their links one after another, and get them back in another order."""
        world, random = self._world, self._random
        middle_s = (fault.begin_s + fault.end_s) / 2
        for index in fault.hosts:
            pairs = [
                pair
                for other in range(len(world.daemons))
                if other != index
                for pair in ((index, other), (other, index))
            ]
            world.at(
                random.uniform(world.now, middle_s), self._clog, fault, pairs, random.uniform(middle_s, fault.end_s)
            )

    def _clog(self, fault: Fault, pairs: list[tuple[int, int]], until_s: float) -> None:
        self._world.at(until_s, self._cut(fault, pairs))

    def _lose(self, fault: Fault) -> None:
        wires = self._world.wires
        share = self._random.choice((0.01, 0.05, 0.2))
        before = wires.struck["loss"]
        wires.loss = max(wires.loss, share)
        if share > 0.05:
            self.sick.update(range(len(self._world.daemons)))

        def undo() -> None:
            wires.loss = 0.0
            fault.has_struck = wires.struck["loss"] > before

        fault.undo = undo

    def _disorder(self, fault: Fault) -> None:
        wires = self._world.wires
        before = wires.struck["reorder"] + wires.struck["duplicate"]
        wires.reorder = wires.duplicate = 0.1

        def undo() -> None:
            wires.reorder = wires.duplicate = 0.0
            fault.has_struck = wires.struck["reorder"] + wires.struck["duplicate"] > before

        fault.undo = undo

    def _slow_link(self, fault: Fault) -> None:
        daemons = [self._world.daemons[index] for index in fault.hosts]
        for daemon in daemons:
            daemon.link_slowness = 10.0

        def undo() -> None:
            for daemon in daemons:
                daemon.link_slowness = 1.0

        fault.undo = undo

    # ---- disks, peers, sources -------------------------------------------------------------------

    def _ail(self, fault: Fault) -> None:
        """A disk gets an ailment; how likely a call meets it is drawn too."""
        share = 1.0 if fault.kind == "disk_full" else self._random.choice((0.05, 0.3, 1.0))
        daemons = [self._world.daemons[index] for index in fault.hosts]
        for daemon in daemons:
            daemon.disk.ailments[fault.kind] = share

        def undo() -> None:
            for daemon in daemons:
                daemon.disk.ailments.pop(fault.kind, None)

        fault.undo = undo

    def _slow_disk(self, fault: Fault) -> None:
        daemons = [self._world.daemons[index] for index in fault.hosts]
        for daemon in daemons:
            daemon.has_slow_disk = True

        def undo() -> None:
            for daemon in daemons:
                daemon.has_slow_disk = False

        fault.undo = undo

    def _lie(self, fault: Fault) -> None:
        daemons = [self._world.daemons[index] for index in fault.hosts]
        share = self._random.choice((0.1, 0.5, 1.0))
        for daemon in daemons:
            daemon.lie_share = share

        def undo() -> None:
            for daemon in daemons:
                daemon.lie_share = 0.0

        fault.undo = undo

    def _rot(self, fault: Fault) -> None:
        """Bits flip at rest, in some held chunks of each host."""
        for index in fault.hosts:
            daemon = self._world.daemons[index]
            if daemon.is_up:
                for deployment in [record.id for record in daemon.deployments.records]:
                    if daemon.deployments.chunk_count_of(deployment) is not None:
                        held = list(daemon.store.held(deployment))
                        for chunk in self._random.sample(held, min(len(held), self._random.randint(1, 3))):
                            self._spoil(fault, daemon, deployment, chunk)

    def _spoil(self, fault: Fault, daemon: Daemon, deployment: DeploymentId, chunk: int) -> None:
        model = self._world.models[deployment]
        manifest = model.manifest
        key = (daemon.index, deployment, chunk)
        if key in self._world.oracle.rotten:
            return  # a second flip of the same bit would mend it
        for tree in (layout.incoming(deployment), layout.version(manifest.name, manifest.version)):
            if daemon.disk.rot(f"{tree}/{model.path}", chunk * CHUNK_BYTES):
                fault.has_struck = True
                self._world.oracle.rotten.add(key)
                return

    def _source(self, fault: Fault) -> None:
        storage = self._world.storage
        storage.ailments.add(fault.kind)
        if fault.kind == "source_slow":
            storage.slow_until_s = max(storage.slow_until_s, fault.end_s)
        fault.undo = lambda: storage.ailments.discard(fault.kind)


_BEGINNINGS: dict[str, Callable[[Faults, Fault], None]] = {
    "kill_restart": lambda faults, fault: faults._kill(fault),
    "kill_lost_state": lambda faults, fault: faults._kill(fault, wipe=True),
    "kill_lost_register": lambda faults, fault: faults._kill(fault, forget=True),
    "kill_final": lambda faults, fault: faults._kill(fault, again=False),
    "power_cut": lambda faults, fault: faults._kill(fault, power=True),
    "pause": Faults._pause,
    "partition": Faults._partition,
    "one_way": Faults._one_way,
    "swizzle": Faults._swizzle,
    "loss": Faults._lose,
    "disorder": Faults._disorder,
    "slow_disk": Faults._slow_disk,
    "disk_full": Faults._ail,
    "write_eio": Faults._ail,
    "sync_eio": Faults._ail,
    "read_eio": Faults._ail,
    "corrupting_peer": Faults._lie,
    "rot": Faults._rot,
    "source_changed": Faults._source,
    "source_failing": Faults._source,
    "source_slow": Faults._source,
    "source_lying": Faults._source,
    "slow_link": Faults._slow_link,
    "cancel": lambda faults, fault: faults._world.operations.cancel(fault),
    "redeploy": lambda faults, fault: faults._world.operations.cancel(fault, then_deploy=True),
    "remove": lambda faults, fault: faults._world.operations.remove(fault),
    "outside": lambda faults, fault: faults._world.operations.outside(fault),
    "expired": lambda faults, fault: faults._world.operations.expired(fault),
    "rollback": lambda faults, fault: faults._world.operations.rollback(fault),
    "forged": lambda faults, fault: faults._world.operations.forged(fault),
    "dead_join": lambda faults, fault: faults._world.operations.join(fault, forget=False),
    "forget_join": lambda faults, fault: faults._world.operations.join(fault, forget=True),
}
KINDS = tuple(_BEGINNINGS)


def choose_kinds(random: Random) -> tuple[str, ...]:
    """The kinds of one run."""
    return tuple(random.sample(KINDS, PER_RUN))


_LASTS_S = {"pause": (0.5, 12.0), "source_changed": (2.0, 8.0), "swizzle": (4.0, 12.0), "corrupting_peer": (8.0, 20.0)}
