"""A small real cluster on a wire in memory, and what its members say to each other in an eventful minute.

What lives here: brains with real seals and real signatures, the wire between them, and the recording of bodies before
they are sealed. What does not: changing any of it (``datagram``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from membership import wire
from membership.credentials import Credentials
from membership.events import SendDatagram
from membership.member import Address, NodeId, Record, node_id
from membership.node import ALIVE_LABEL
from membership.record import sign_record
from membership.seal import DatagramSeal, KeyRing
from membership.settings import SwimSettings
from membership.swim import Swim
from tests.fuzz.surfaces.application import Application

RING = KeyRing(b"fuzzed cluster..", (b"k" * 32,))
# Bounds that a run of a minute fills, so that growth past them shows.
SETTINGS = SwimSettings(
    statement_count_max=64, progress_count_max=512, member_count_max=64, tombstone_count_max=64, roster_keep_s=600.0,
    tombstone_keep_s=300.0,
)  # fmt: skip
TARGET, MEMBERS = 0, 4
BOOT = 1_800_000_000_000
_PER_TYPE = 48  # bodies kept of each type


class _Recorder:
    """A seal that notes what is sealed."""

    def __init__(self, node: NodeId, boot: int, heard: dict[int, list[bytes]]) -> None:
        self._inner = DatagramSeal(RING, node, boot)
        self._heard = heard
        self.open, self.set_keys = self._inner.open, self._inner.set_keys

    @property
    def key_tags(self) -> Collection[bytes]:
        return self._inner.key_tags

    def seal(self, body: bytes, receiver: NodeId | None) -> bytes:
        kept = self._heard.setdefault(body[0], [])
        if len(kept) < _PER_TYPE and body not in kept:
            kept.append(body)
        return self._inner.seal(body, receiver)


@dataclass(slots=True)
class Host:
    sign: Callable[[bytes], bytes]
    public: bytes
    address: Address
    record: Record
    swim: Swim | None = None
    seal: DatagramSeal | _Recorder | None = None

    @property
    def node(self) -> NodeId:
        return node_id(self.public)


def make_host(number: int, boot: int = BOOT) -> Host:
    private = Ed25519PrivateKey.from_private_bytes(number.to_bytes(4, "big") * 8)
    public = private.public_key().public_bytes_raw()
    address = (f"10.0.{number >> 8 & 255}.{number & 255}", 7946)
    record = Record(
        public, boot, 1, f"host-{number}", f"rack-{number % 3}", "zone", address[0], address[1], 7947, public,
        125_000_000, "1.0.0", bytes((1, 1, 0, 0, 0, number == 1)),
    )  # fmt: skip
    return Host(private.sign, public, address, record)


def make_stranger(number: int) -> Host:
    """Somebody with the cluster's key who is no member yet."""
    host = make_host(1000 + number)
    host.seal = DatagramSeal(RING, host.node, BOOT)
    return host


class Wire:
    """Brains and the datagrams between them."""

    def __init__(self, rng: Random, heard: dict[int, list[bytes]] | None) -> None:
        self.rng = rng
        self.now = 1000.0
        self.heard = heard
        self.waiting: deque[SendDatagram] = deque(maxlen=256)
        """Sent by the target between turns."""
        self.hosts = [make_host(number) for number in range(MEMBERS)]
        for host in self.hosts:
            self.start(host)

    def start(self, host: Host) -> None:
        def make_seal(ring: KeyRing, node: NodeId, boot: int) -> DatagramSeal | _Recorder:
            host.seal = DatagramSeal(ring, node, boot) if self.heard is None else _Recorder(node, boot, self.heard)
            return host.seal

        host.swim = Swim(
            SETTINGS, host.record, Credentials(host.sign, RING, make_seal=make_seal),
            rng=Random(self.rng.getrandbits(32)), now=self.now,
        )  # fmt: skip
        host.swim.join([other.address for other in self.hosts if other is not host], self.now)

    def turn(self, datagrams_max: int = 200, *, lost: float = 0.0, deaf: tuple[int, ...] = ()) -> None:
        """Timers of all that are due, and everything they send, to all that are there."""
        for host in self.hosts:
            if host.swim is not None:
                host.swim.handle_timer(self.now)
        while self.waiting:
            self._pass_on(self.hosts[TARGET], self.waiting.popleft(), deaf)
        for _ in range(datagrams_max):
            sent = False
            for number, host in enumerate(self.hosts):
                if host.swim is None:
                    continue
                for output in host.swim.drain():
                    if not isinstance(output, SendDatagram):
                        self.told(number, output)
                    elif self.rng.random() >= lost and number not in deaf:
                        sent |= self._pass_on(host, output, deaf)
            if not sent:
                return

    def told(self, number: int, output: object) -> None:
        """A brain has something for its host."""

    def _pass_on(self, host: Host, output: SendDatagram, deaf: tuple[int, ...]) -> bool:
        for number, other in enumerate(self.hosts):
            if other.address == output.address and other.swim is not None and number not in deaf:
                other.swim.handle_datagram(output.datagram, host.address, self.now)
                return True
        return False


def record_traffic(rng: Random) -> dict[int, list[bytes]]:
    """Bodies by type, from an eventful minute of a small cluster."""
    heard: dict[int, list[bytes]] = {}
    cluster = Wire(rng, heard)
    application = Application([host.public for host in cluster.hosts])

    def live(seconds: float, *, lost: float = 0.0, deaf: tuple[int, ...] = ()) -> None:
        for _ in range(int(seconds / 0.05)):
            cluster.now += 0.05
            cluster.turn(lost=lost, deaf=deaf)

    live(5.0)
    for number, host in enumerate(cluster.hosts):
        assert host.swim is not None
        for event in application.samples(host.node, host.public, number, sign=host.sign):
            host.swim.publish(*event, cluster.now)
    live(3.0)
    live(4.0, lost=0.3)
    live(12.0, deaf=(3,))
    live(6.0)
    cluster.hosts[3].record = make_host(3, BOOT + 1).record
    cluster.start(cluster.hosts[3])
    live(3.0)
    stranger = make_host(77)
    stranger.record = replace(stranger.record, name="host-1")
    cluster.hosts.append(stranger)
    cluster.start(stranger)
    live(3.0)
    leaver = cluster.hosts[2].swim
    assert leaver is not None
    leaver.leave(cluster.now)
    live(2.0)
    first = cluster.hosts[0].swim
    assert first is not None
    first.forget(cluster.hosts[2].node, cluster.now)
    live(3.0)
    for body in _rarely_said(cluster.hosts):
        heard.setdefault(body[0], []).append(body)
    return heard


def _rarely_said(hosts: list[Host]) -> list[bytes]:
    """Genuine bodies that so small a cluster has no reason to send."""
    target, member = hosts[TARGET], hosts[1]
    handles = b"".join(host.node[:8] for host in hosts)
    claim = wire.claim_part(member.node[:8], BOOT, 1)
    alive = wire.item(wire.ALIVE, claim + member.sign(ALIVE_LABEL + RING.cluster_id + claim))
    _, record = sign_record(member.record, RING.cluster_id, member.sign)
    items = [alive, *(wire.notice(state, target.node[:8], BOOT, 0) for state in (1, 2, 3))]
    items += [wire.roster(state, 1, record) for state in (wire.STATE_DEAD, wire.STATE_LEFT)]
    bodies = [bytes((kind,)) + data for kind in (wire.GOSSIP, wire.ITEMS) for data in items]
    bodies += [bytes((wire.WORRIES,)) + handles, bytes((wire.WORRY_WANT,)) + handles]
    bodies += [wire.SEQUENCE_HEAD.pack(wire.BUSY, number) for number in (1, 2, 3)]
    bodies.append(bytes((wire.REFUSAL, wire.REFUSED_NAME)) + wire.item(wire.RECORD, record))
    bodies.append(wire.PROBE_HEAD.pack(wire.PING, 7, 0, 0, wire.FLAG_WHO | wire.FLAG_SETTLED) + items[1])
    return bodies
