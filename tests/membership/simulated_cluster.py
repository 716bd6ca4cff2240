"""A simulator of many brains on one virtual clock: the shipping code, a made-up network, every fault from one seed.

What lives here: the network with its faults, and the hosts. What does not: the clock (``simulation``), the rules that
must hold (``checkers``). Same seed, same trace (``trace_hash``). No trio, because its scheduler shuffles on purpose.

A host is a ``Swim`` with a stand-in signature (keyed BLAKE2b with a registry of keys: members cannot forge it) and a
stand-in seal without cipher, which keeps sizes, sender, receiver and counter. All share one ``VerifiedCache``.

Faults: loss (all, or into or out of one host), delay, duplication, reordering, cuts that drop and cuts that queue and
release, partitions, freezes, clock jumps, crashes, restarts with and without state, slow hosts. ``struck`` counts how
often each fault hit something, because a campaign that struck nothing proves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from random import Random
from typing import Any, Protocol

from membership.credentials import Credentials
from membership.events import ControlProbeWanted, Event, PayloadKind, SendDatagram
from membership.fakes import FakeKeys, OpenSeal
from membership.host_rules import HostRules, LenientRules, Verdict
from membership.member import NODE_ID_BYTES, Address, NodeId, Record, node_id
from membership.seal import KeyRing
from membership.settings import SwimSettings
from membership.simulation import VirtualClock
from membership.swim import Swim
from membership.verified_cache import VerifiedCache

UDP_IP_BYTES = 28
_FROZEN_QUEUE_MAX = 1500  # datagrams that a stopped process's socket buffer holds (212 kB)
_CUT_QUEUE_MAX = 4096  # datagrams per host that a queueing transport keeps through a cut
_ROUNDING_S = 1e-6
_EPOCH_MS = 1_700_000_000_000
FAULTS = (
    "loss", "loss_in", "loss_out", "duplicate", "reorder", "slow", "cut_drop", "cut_queue", "released", "freeze",
    "clock_jump", "crash", "restart_with_state", "restart_without_state",
)  # fmt: skip
"""What ``SimulatedCluster.struck`` counts; a fault that never struck stands there with a zero."""
RING = KeyRing(b"simulated cluste", (b"k" * 32,))
FORWARDER = NodeId(b"simulated member")  # named where a test hands items to a brain itself


class SimulatedHost:
    """One simulated machine and its faults."""

    __slots__ = (
        "address", "clock_offset", "frozen", "group", "loss_in", "loss_out", "name", "public", "queue", "rack",
        "received", "seal", "sent", "sent_bytes", "slow_s", "swim", "up", "wake_at",
    )  # fmt: skip

    def __init__(self, name: str, rack: str, address: Address, public: bytes) -> None:
        self.name = name
        self.rack = rack
        self.address = address
        self.public = public
        self.swim: Swim | None = None
        self.seal: OpenSeal | None = None
        self.up = False
        self.frozen = False
        self.group = 0
        self.loss_in = 0.0
        self.loss_out = 0.0
        self.slow_s = 0.0
        self.clock_offset = 0.0
        self.wake_at = float("inf")
        self.queue: list[tuple[bytes, Address]] = []
        self.sent_bytes = 0
        self.sent = 0
        self.received = 0

    def make_seal(self, ring: KeyRing, node: NodeId, boot: int) -> OpenSeal:
        """A seal for a life that begins; kept, because liars need it too."""
        self.seal = OpenSeal(ring, node, boot)
        return self.seal

    @property
    def node(self) -> NodeId:
        """Its id."""
        return node_id(self.public)


class Checker(Protocol):
    """Observes; raises AssertionError when a rule does not hold."""

    def on_event(self, cluster: SimulatedCluster, index: int, event: Event) -> None:
        """Host ``index`` was told this."""
        ...

    def on_step(self, cluster: SimulatedCluster, index: int) -> None:
        """Host ``index`` has just handled a datagram or a timer."""
        ...

    def on_datagram(self, cluster: SimulatedCluster, index: int, datagram: bytes) -> None:
        """Host ``index`` sends this."""
        ...


class SimulatedRules(LenientRules):
    """Boot numbers are milliseconds of the virtual clock; a payload that says so is forged."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    def latest_boot(self) -> int:
        return _EPOCH_MS + int((self._clock.now + 3600.0) * 1000)

    def judge(self, kind: PayloadKind, key: bytes, version: int, payload: bytes) -> Verdict | None:
        return None if payload.startswith(b"forged") else Verdict(key[:NODE_ID_BYTES])


class SimulatedCluster:
    """Any number of hosts on one heap."""

    def __init__(
        self, members: int, *, racks: int | None = None, seed: int = 0, settings: SwimSettings | None = None,
        checkers: Sequence[Checker] = (), trace: bool = False, control_probes: bool = True,
    ) -> None:  # fmt: skip
        """Hosts are created but not started; racks of 40 unless ``racks`` says how many (at least 4)."""
        self.rng = Random(seed)
        self.settings = settings or SwimSettings()
        self._clock = VirtualClock()
        self.keys = self._make_keys()
        self.rules: HostRules = SimulatedRules(self._clock)
        self.verified_cache = VerifiedCache(RING.cluster_id, self.keys.verify)
        self.hosts: list[SimulatedHost] = []
        self.by_address: dict[Address, int] = {}
        self.by_node: dict[NodeId, int] = {}
        self.struck: Counter[str] = Counter(dict.fromkeys(FAULTS, 0))
        self.unreachable: Counter[Address] = Counter()
        self.loss = 0.0
        self.duplicate = 0.0
        self.reorder = 0.0
        self.delay_s = (0.0001, 0.0006)  # a data centre's network, as measured for foca
        self.queue_cuts = False
        self.on_event: Callable[[int, Event], None] = lambda index, event: None
        self._checkers = tuple(checkers)
        self._control_probes = control_probes
        self._held: list[tuple[int, int, bytes]] = []
        self._trace = blake2b(digest_size=16) if trace else None
        rack_count = racks or max(4, members // 40)
        for index in range(members):
            self.add_host(f"host-{index}", f"rack-{index % rack_count}")

    def _make_keys(self) -> FakeKeys:
        return FakeKeys()

    # ---- hosts

    def add_host(self, name: str, rack: str) -> int:
        """A machine that is not running yet; returns its index."""
        index = len(self.hosts)
        address = (f"10.{index >> 16 & 255}.{index >> 8 & 255}.{index & 255}", 7946)
        host = SimulatedHost(name, rack, address, self.keys.make(self.rng))
        self.hosts.append(host)
        self.by_address[address] = index
        self.by_node[host.node] = index
        return index

    def start(
        self, index: int, *, join: Sequence[int] = (), roster: Iterable[Record] = (), boot: int | None = None
    ) -> Swim:
        """Begin a life of this host now."""
        host = self.hosts[index]
        now = self.now + host.clock_offset
        boot = boot or _EPOCH_MS + int(self.now * 1000) + 1
        record = Record(
            host.public, boot, 1, host.name, host.rack, "zone-a", host.address[0], host.address[1],
            host.address[1] + 1, host.public, 125_000_000, "1.0.0", b"p" * 12,
        )  # fmt: skip
        host.swim = Swim(
            self.settings, record,
            Credentials(self.keys.signer(host.public), RING, self.verified_cache, host.make_seal),
            rng=Random(self.rng.getrandbits(64)), now=now, roster=roster, rules=self.rules,
        )  # fmt: skip
        host.up, host.frozen, host.wake_at = True, False, float("inf")
        host.queue.clear()
        if join:
            host.swim.join([self.hosts[other].address for other in join], now)
        self._flush(index)
        return host.swim

    def start_all_known(self) -> None:
        """Every host runs and knows all others: the state of a quiet cluster."""
        for index in range(len(self.hosts)):
            self.start(index)
        first = self.swim(0)
        first.adopt_view([self.swim(index) for index in range(len(self.hosts))])
        for index in range(1, len(self.hosts)):
            self.swim(index).adopt_view([first])

    def swim(self, index: int) -> Swim:
        """The running brain of a host."""
        swim = self.hosts[index].swim
        assert swim is not None, f"host {index} does not run"
        return swim

    def readdress(self, index: int) -> None:
        """The host gets an address that no host had before; takes effect when it is started again."""
        number = len(self.by_address)
        host = self.hosts[index]
        host.address = (f"10.{200 + (number >> 16 & 7)}.{number >> 8 & 255}.{number & 255}", 7946)
        self.by_address[host.address] = index

    # ---- faults

    def crash(self, index: int) -> None:
        """Power off."""
        self.hosts[index].up = False
        self.struck["crash"] += 1

    def restart(self, index: int, *, join: Sequence[int] = (), keep_roster: bool = True) -> None:
        """A new life at once, with or without the members and tombstones that the old one knew."""
        old = self.hosts[index].swim
        self.struck["restart_with_state" if keep_roster else "restart_without_state"] += 1
        kept = old if keep_roster else None
        swim = self.start(index, join=join, roster=() if kept is None else kept.roster_records())
        swim.recall([] if kept is None else kept.tombstones(), self.now)

    def cut(self, indexes: Iterable[int], *, together: bool, queue: bool = False) -> None:
        """Off the network, as one group or each alone; ``queue`` keeps what is sent and delivers it on ``heal``."""
        self.queue_cuts = queue
        for number, index in enumerate(indexes, 1):
            self.hosts[index].group = 1 if together else number

    def heal(self) -> None:
        """All cuts end; what was queued arrives at once."""
        for host in self.hosts:
            host.group = 0
        held, self._held = self._held, []
        for source, target, datagram in held:
            self.struck["released"] += 1
            self._clock.after(self._delay(), self._arrived, target, datagram, self.hosts[source].address)

    def freeze(self, index: int) -> None:
        """SIGSTOP: no timers, and its socket buffer fills."""
        self.hosts[index].frozen = True
        self.struck["freeze"] += 1

    def thaw(self, index: int) -> None:
        """SIGCONT: first the datagrams that waited in the socket, then the timers."""
        host = self.hosts[index]
        host.frozen = False
        host.wake_at = float("inf")  # the wake-up that was due meanwhile is lost
        waiting, host.queue = host.queue, []
        if host.swim is None or not host.up:
            return
        now = self.now + host.clock_offset
        for datagram, sender in waiting:
            host.swim.handle_datagram(datagram, sender, now)
        host.swim.handle_timer(now)
        self._flush(index)

    def jump_clock(self, index: int, by_s: float) -> None:
        """Its monotonic clock leaps forward (a suspended virtual machine)."""
        self.hosts[index].clock_offset += by_s
        self.struck["clock_jump"] += 1
        self._clock.at(self.now, self._timer_due, index)
        self.hosts[index].wake_at = self.now

    def inject(self, index: int, target: Address, datagram: bytes) -> None:
        """Send these bytes from a host's address, whatever its brain does (for liars)."""
        self._transmit(self.hosts[index], index, SendDatagram(target, datagram))

    # ---- time

    @property
    def now(self) -> float:
        """Seconds since the cluster was made."""
        return self._clock.now

    def at(self, when: float, action: Callable[..., None], *arguments: Any) -> None:
        """Run ``action`` at a time."""
        self._clock.at(when, action, *arguments)

    def run(self, until: float) -> None:
        """Run everything that is due up to ``until``."""
        clock = self._clock
        while clock.step(until):
            pass
        clock.now = until

    def _timer_due(self, index: int) -> None:
        host, when = self.hosts[index], self.now
        if when < host.wake_at or host.frozen or not host.up:
            return
        host.wake_at = float("inf")
        swim, now = self.swim(index), when + host.clock_offset
        due = swim.next_deadline()
        # An offset taken off and put on again may round the deadline down, and then it never comes.
        swim.handle_timer(due if now < due < now + _ROUNDING_S else now)
        self._stepped(index)

    def _arrived(self, index: int, datagram: bytes, sender: Address) -> None:
        if self._deliver(self.hosts[index], index, datagram, sender):
            self._stepped(index)

    def _stepped(self, index: int) -> None:
        self._flush(index)
        for checker in self._checkers:
            checker.on_step(self, index)

    def run_until(self, condition: Callable[[], bool], limit: float, step_s: float = 0.1) -> float | None:
        """Run until the condition holds (checked every ``step_s``); the time it took, None when it never did."""
        began = self.now
        while not condition():
            if self.now - began >= limit:
                return None
            self.run(self.now + step_s)
        return self.now - began

    @property
    def trace_hash(self) -> str:
        """Hash over every delivery and event so far."""
        assert self._trace is not None, "the cluster was made without trace"
        return self._trace.hexdigest()

    # ---- inside

    def _delay(self) -> float:
        low, high = self.delay_s
        return low + (high - low) * self.rng.random()

    def _deliver(self, host: SimulatedHost, index: int, datagram: bytes, sender: Address) -> bool:
        if not host.up:
            return False
        if host.frozen:
            if len(host.queue) < _FROZEN_QUEUE_MAX:
                host.queue.append((datagram, sender))
            return False
        host.received += 1
        if self._trace is not None:
            self._trace.update(b"%d %r %d" % (index, self.now, len(datagram)))
        self.swim(index).handle_datagram(datagram, sender, self.now + host.clock_offset)
        return True

    def _flush(self, index: int) -> None:
        host = self.hosts[index]
        swim = self.swim(index)
        for output in swim.drain():
            if type(output) is SendDatagram:
                self._transmit(host, index, output)
            else:
                self._tell(index, output)  # type: ignore[arg-type]
        deadline = swim.next_deadline() - host.clock_offset
        if deadline < host.wake_at:
            host.wake_at = max(deadline, self.now)
            self._clock.at(host.wake_at, self._timer_due, index)

    def _tell(self, index: int, event: Event) -> None:
        if self._trace is not None:
            self._trace.update(f"{index} {self.now} {type(event).__name__}".encode())
        for checker in self._checkers:
            checker.on_event(self, index, event)
        self.on_event(index, event)
        if type(event) is ControlProbeWanted and self._control_probes:
            target = self.by_node[event.node]
            self._clock.after(4 * self._delay(), self._answer_control, index, target, event.node)

    def _answer_control(self, index: int, target: int, node: NodeId) -> None:
        # A TCP connection mends loss, but neither a cut nor a stopped process.
        host, other = self.hosts[index], self.hosts[target]
        if host.up and other.up and host.group == other.group and not other.frozen and not host.frozen:
            self.swim(index).control_probe_answered(node, self.now + host.clock_offset)
            self._flush(index)

    def _transmit(self, host: SimulatedHost, index: int, output: SendDatagram) -> None:
        datagram = output.datagram
        for checker in self._checkers:
            checker.on_datagram(self, index, datagram)
        host.sent += 1
        host.sent_bytes += len(datagram) + UDP_IP_BYTES
        target = self.by_address.get(output.address)
        if target is None:
            self.unreachable[output.address] += 1
            return
        other = self.hosts[target]
        if host.group != other.group:
            self._hold(index, target, datagram)
            return
        draw = self.rng.random
        if (self.loss or host.loss_out or other.loss_in) and self._is_lost(host, other):
            return
        low, high = self.delay_s
        when = self.now + low + (high - low) * draw()
        if host.slow_s or other.slow_s:
            when += host.slow_s + other.slow_s
            self.struck["slow"] += 1
        if self.reorder and draw() < self.reorder:
            when += 0.05 * draw()
            self.struck["reorder"] += 1
        if self.duplicate and draw() < self.duplicate:
            self._clock.at(when + self._delay(), self._arrived, target, datagram, host.address)
            self.struck["duplicate"] += 1
        self._clock.at(when, self._arrived, target, datagram, host.address)

    def _is_lost(self, host: SimulatedHost, other: SimulatedHost) -> bool:
        for name, share in (("loss", self.loss), ("loss_out", host.loss_out), ("loss_in", other.loss_in)):
            if share and self.rng.random() < share:
                self.struck[name] += 1
                return True
        return False

    def _hold(self, source: int, target: int, datagram: bytes) -> None:
        if not self.queue_cuts:
            self.struck["cut_drop"] += 1
            return
        self.struck["cut_queue"] += 1
        if len(self._held) < _CUT_QUEUE_MAX * 16:
            self._held.append((source, target, datagram))
