"""The membership port: sealed datagrams into a real brain that lives in a small real cluster.

The corpus is what four brains said to each other on a wire in memory: joining, probing, suspecting, contradicting,
synchronising, leaving, forgetting. Three members (and a few strangers who hold the cluster's key) have their keys in
the fuzzer's hands, so a change in a body, an item or a record is signed and sealed as a genuine member would. The
fourth brain is the target; what it tells goes on to what the daemon does with it: statements, progress, the planner.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from membership import wire
from membership.errors import WireError
from membership.events import SendDatagram
from membership.lexicon import verify_ed25519
from membership.member import Address, NodeId, Record, node_id
from membership.node import ACCUSE_LABEL, ALIVE_LABEL, FORGET_LABEL, LEAVE_LABEL
from membership.record import _LABEL as RECORD_LABEL
from membership.record import SIGNATURE_BYTES, sign_record
from membership.seal import DatagramSeal, KeyRing
from membership.settings import SwimSettings
from membership.swim import Swim
from tests.fuzz.door import Case
from tests.fuzz.doors.application import Application
from tests.fuzz.mutations import mutate_bytes, mutate_integer, pick

RING = KeyRing(b"fuzzed cluster..", (b"k" * 32,))
FOREIGN_RING = KeyRing(b"another cluster.", (b"k" * 32,))
# Bounds that a run of a minute fills, so that growth past them shows.
SETTINGS = SwimSettings(
    statement_count_max=64, progress_count_max=512, member_count_max=64, tombstone_count_max=64, roster_keep_s=600.0,
    tombstone_keep_s=300.0,
)  # fmt: skip
TARGET, MEMBERS, STRANGERS = 0, 4, 12
_BOOT = 1_800_000_000_000
_STEP_S = 0.004  # per input; the cluster lives on in real proportions to its traffic
_PUMP_EVERY = 16  # inputs between turns of the other brains
_STRANGER_EVERY = 1000  # inputs between new ones
_PER_TYPE = 48  # bodies kept of each type
_LABELS = {
    wire.ALIVE: ALIVE_LABEL, wire.LEAVE: LEAVE_LABEL, wire.ACCUSE: ACCUSE_LABEL, wire.FORGET: FORGET_LABEL,
    wire.RECORD: RECORD_LABEL,
}  # fmt: skip
_HEADS = {
    wire.PING: wire.PROBE_HEAD.size, wire.ACK: wire.PROBE_HEAD.size, wire.PING_REQ: wire.REQUEST_HEAD.size,
    wire.NACK: wire.SEQUENCE_HEAD.size, wire.JOIN: 2, wire.WELCOME: wire.WELCOME_HEAD.size, wire.REFUSAL: 2,
    wire.GOSSIP: 1, wire.ITEMS: 1, wire.SYNC_ASK: 5 + 1024,
}  # fmt: skip


class _Recorder:
    """A seal that notes what is sealed."""

    def __init__(self, node: NodeId, boot: int, heard: dict[int, list[bytes]]) -> None:
        self._inner = DatagramSeal(RING, node, boot)
        self._heard = heard
        self.open, self.set_keys = self._inner.open, self._inner.set_keys

    def seal(self, body: bytes, receiver: NodeId | None) -> bytes:
        kept = self._heard.setdefault(body[0], [])
        if len(kept) < _PER_TYPE and body not in kept:
            kept.append(body)
        return self._inner.seal(body, receiver)


@dataclass(slots=True)
class _Host:
    sign: Callable[[bytes], bytes]
    public: bytes
    address: Address
    record: Record
    swim: Swim | None = None
    seal: DatagramSeal | _Recorder | None = None

    @property
    def node(self) -> NodeId:
        return node_id(self.public)


def _host(number: int, boot: int = _BOOT) -> _Host:
    private = Ed25519PrivateKey.from_private_bytes(number.to_bytes(4, "big") * 8)
    public = private.public_key().public_bytes_raw()
    address = (f"10.0.{number >> 8 & 255}.{number & 255}", 7946)
    record = Record(
        public, boot, 1, f"host-{number}", f"rack-{number % 3}", "zone", address[0], address[1], 7947, public,
        125_000_000, "1.0.0", bytes((1, 1, 0, 0, 0, number == 1)),
    )  # fmt: skip
    return _Host(private.sign, public, address, record)


def _stranger(number: int) -> _Host:
    """Somebody with the cluster's key who is no member yet."""
    host = _host(1000 + number)
    host.seal = DatagramSeal(RING, host.node, _BOOT)
    return host


class _Wire:
    """Brains and the datagrams between them."""

    def __init__(self, rng: Random, heard: dict[int, list[bytes]] | None) -> None:
        self.rng = rng
        self.now = 1000.0
        self.heard = heard
        self.waiting: deque[SendDatagram] = deque(maxlen=256)
        """Sent by the target between turns."""
        self.hosts = [_host(number) for number in range(MEMBERS)]
        for host in self.hosts:
            self.start(host)

    def start(self, host: _Host) -> None:
        def make_seal(ring: KeyRing, node: NodeId, boot: int) -> DatagramSeal | _Recorder:
            host.seal = DatagramSeal(ring, node, boot) if self.heard is None else _Recorder(node, boot, self.heard)
            return host.seal

        host.swim = Swim(
            settings=SETTINGS, record=host.record, sign=host.sign, keyring=RING, rng=Random(self.rng.getrandbits(32)),
            now=self.now, verify=verify_ed25519, make_seal=make_seal,
        )  # fmt: skip
        host.swim.join([other.address for other in self.hosts if other is not host], self.now)

    def turn(self, datagrams_max: int = 200, *, lost: float = 0.0, deaf: tuple[int, ...] = ()) -> None:
        """Timers of all that are due, and everything they send, to whoever is there."""
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

    def _pass_on(self, host: _Host, output: SendDatagram, deaf: tuple[int, ...]) -> bool:
        for number, other in enumerate(self.hosts):
            if other.address == output.address and other.swim is not None and number not in deaf:
                other.swim.handle_datagram(output.datagram, host.address, self.now)
                return True
        return False


def record_traffic(rng: Random) -> dict[int, list[bytes]]:
    """Bodies by type, from an eventful minute of a small cluster."""
    heard: dict[int, list[bytes]] = {}
    cluster = _Wire(rng, heard)
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
    cluster.hosts[3].record = _host(3, _BOOT + 1).record
    cluster.start(cluster.hosts[3])
    live(3.0)
    stranger = _host(77)
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


def _rarely_said(hosts: list[_Host]) -> list[bytes]:
    """Genuine bodies that so small a cluster has no reason to send."""
    target, member = hosts[TARGET], hosts[1]
    handles = b"".join(host.node[:8] for host in hosts)
    claim = wire.claim_part(member.node[:8], _BOOT, 1)
    alive = wire.item(wire.ALIVE, claim + member.sign(ALIVE_LABEL + RING.cluster_id + claim))
    _, record = sign_record(member.record, RING.cluster_id, member.sign)
    items = [alive, *(wire.notice(state, target.node[:8], _BOOT, 0) for state in (1, 2, 3))]
    items += [wire.roster(state, 1, record) for state in (wire.STATE_DEAD, wire.STATE_LEFT)]
    bodies = [bytes((kind,)) + data for kind in (wire.GOSSIP, wire.ITEMS) for data in items]
    bodies += [bytes((wire.WORRIES,)) + handles, bytes((wire.WORRY_WANT,)) + handles]
    bodies += [wire.SEQUENCE_HEAD.pack(wire.BUSY, number) for number in (1, 2, 3)]
    bodies.append(bytes((wire.REFUSAL, wire.REFUSED_NAME)) + wire.item(wire.RECORD, record))
    bodies.append(wire.PROBE_HEAD.pack(wire.PING, 7, 0, 0, wire.FLAG_WHO | wire.FLAG_SETTLED) + items[1])
    return bodies


class DatagramDoor:
    """See the module."""

    name = "datagram"
    share = 1.0

    def __init__(self, rng: Random) -> None:
        self._bodies = record_traffic(rng)
        self._all = [body for bodies in self._bodies.values() for body in bodies]
        self._items = [item for body in self._all if body[0] in _HEADS for item in _split(body, _HEADS[body[0]]) or ()]
        self._cluster = _Wire(rng, None)
        self._application = Application([host.public for host in self._cluster.hosts])
        self._cluster.told = self._told  # type: ignore[method-assign]
        self._strangers = [_stranger(number) for number in range(STRANGERS)]
        self._outsider = DatagramSeal(FOREIGN_RING, self._strangers[0].node, _BOOT)
        for _ in range(100):
            self._cluster.now += 0.05
            self._cluster.turn()
        self._target = self._cluster.hosts[TARGET]
        self._captured = [self._sealed(body, 1, to_address=False) for body in self._all]
        self._count = 0

    def statistics(self) -> dict[str, int]:
        """The target's counters."""
        assert self._target.swim is not None
        return self._target.swim.statistics()

    # ---- making --------------------------------------------------------------------------------------

    def case(self, rng: Random) -> Case:
        """See Door."""
        sender = (
            1 + int(rng.random() * (MEMBERS - 1)) if rng.random() < 0.85 else MEMBERS + int(rng.random() * STRANGERS)
        )
        to_address = rng.random() < 0.1
        draw = rng.random()
        if draw < 0.2:
            return Case("sealed", self._late(rng, sender), False)
        kind = pick(rng, tuple(self._bodies)) if draw < 0.9 else int(rng.random() * 256)
        body = pick(rng, self._bodies.get(kind) or self._all)
        if draw < 0.5:
            body = mutate_bytes(body, rng, self._all)
        elif body[0] in _HEADS:
            body = self._change_items(body, sender, rng)
        else:
            body = mutate_bytes(body[:1] + body[1:], rng, self._all)
        return Case("body", body, True, (sender, to_address))

    def _late(self, rng: Random, sender: int) -> bytes:
        """Changed after it was sealed, replayed, or of somebody else's cluster."""
        draw = rng.random()
        if draw < 0.1:
            return bytes(pick(rng, self._captured))
        if draw < 0.2:
            return self._outsider.seal(pick(rng, self._all), self._target.node)
        if draw < 0.25:
            return rng.randbytes(int(rng.random() * 1500))
        if draw < 0.3:
            return bytes(pick(rng, self._captured)) * 2
        return mutate_bytes(pick(rng, self._captured), rng, self._captured)

    def _change_items(self, body: bytes, sender: int, rng: Random) -> bytes:
        head, items = body[: _HEADS[body[0]]], _split(body, _HEADS[body[0]]) or []
        draw = rng.random()
        if draw < 0.25:
            head = head[:1] + mutate_bytes(head[1:], rng)[: len(head) - 1].ljust(len(head) - 1, b"\0")
        at = int(rng.random() * (len(items) + 1))
        if draw < 0.3 or not items:
            items.insert(at, pick(rng, self._items))
        if draw < 0.12:
            items = items * int(pick(rng, (2, 3, 8)))
        if draw < 0.2:
            rng.shuffle(items)
        if items and draw > 0.15:
            at = int(rng.random() * len(items))
            items[at] = self._change_item(items[at], sender, rng)
        return head + b"".join(items)

    def _change_item(self, item: bytes, sender: int, rng: Random) -> bytes:
        """Another content, signed again by whoever said it, or by the sender."""
        kind, content = item[0], item[wire.ITEM_HEAD_BYTES :]
        label = _LABELS.get(kind)
        if label is None or len(content) <= SIGNATURE_BYTES:
            return wire.item(
                kind, self._change_event(content, rng) if kind == wire.EVENT else mutate_bytes(content, rng)
            )
        unsigned = content[:-SIGNATURE_BYTES]
        signer = (
            self._owner(kind, unsigned) if rng.random() < (0.8 if sender < MEMBERS else 0.3) else self._host(sender)
        )
        if kind == wire.RECORD:
            unsigned = self._change_record(unsigned, signer, rng)
        else:
            at = pick(rng, (0, 8, 16, max(0, len(unsigned) - 4)))
            changed = bytearray(unsigned)
            width = 4 if at + 8 > len(changed) or rng.random() < 0.3 else 8
            if rng.random() < 0.3:
                changed[at : at + 8] = self._host(int(rng.random() * (MEMBERS + STRANGERS))).node[:8]
            else:
                now = int.from_bytes(changed[at : at + width], "big")
                value = self._changed_count(now, signer, rng) & (1 << 8 * width) - 1
                changed[at : at + width] = value.to_bytes(width, "big")
            unsigned = bytes(changed) if rng.random() < 0.9 else mutate_bytes(bytes(changed), rng)
        return wire.item(kind, unsigned + signer.sign(label + RING.cluster_id + unsigned))[:1400]

    def _change_record(self, unsigned: bytes, signer: _Host, rng: Random) -> bytes:
        """Fields of a record by name; sometimes bytes, which mostly breaks it."""
        if rng.random() < 0.2 or len(unsigned) < 90:
            return mutate_bytes(unsigned, rng)
        fixed = list(struct.unpack_from(">B32s32sQIHHQ", unsigned))
        at, texts = 89, []
        while at < len(unsigned):
            size = unsigned[at]
            texts.append(unsigned[at + 1 : at + 1 + size])
            at += 1 + size
        if rng.random() < 0.7:
            fixed[1] = signer.public
        which = int(rng.random() * 11)
        if which in (3, 4, 5, 6, 7):
            width = (0, 0, 0, 64, 32, 16, 16, 64)[which]
            change = self._changed_count if which < 5 else lambda value, _, rng: mutate_integer(value, rng)
            fixed[which] = change(fixed[which], signer, rng) & (1 << width) - 1
        elif which == 8 and texts:
            at = int(rng.random() * len(texts))
            texts[at] = mutate_bytes(texts[at], rng)[:64]
        elif which == 9 and texts:
            texts[-1] = struct.pack(">BBI", 1, 1, pick(rng, (0, 1, 2, 2**31, 2**32 - 2, 2**32 - 1)))
        else:
            fixed[4] = fixed[4] + 1 & 0xFFFFFFFF
        return struct.pack(">B32s32sQIHHQ", *fixed) + b"".join(bytes((len(text),)) + text for text in texts)

    def _changed_count(self, value: int, signer: _Host, rng: Random) -> int:
        """Boots, versions and incarnations only go up: a member that is at the last one has no more to say."""
        if signer in self._strangers or rng.random() < 0.002:
            return mutate_integer(value, rng)
        return value + int(pick(rng, (-1, 0, 1, 1, 2)))

    def _change_event(self, content: bytes, rng: Random) -> bytes:
        """Newer, or changed by somebody who can sign the statement inside."""
        if len(content) < 11 or rng.random() < 0.2:
            return mutate_bytes(content, rng)
        number, version, key_bytes = struct.unpack_from(">BQB", content)
        key, rest = content[10 : 10 + key_bytes], content[10 + key_bytes :]
        newer = version + int(rng.random() * 5)
        version = newer if rng.random() < 0.5 else mutate_integer(version, rng) & 2**64 - 1
        if rng.random() < 0.4:
            key = mutate_bytes(key, rng)[:255]
        if rng.random() < 0.7:
            rest = self._application.change(number & 0x7F, rest, rng)
        return struct.pack(">BQB", number, version, len(key)) + key + rest

    def _owner(self, kind: int, unsigned: bytes) -> _Host:
        for number in range(MEMBERS + STRANGERS):
            host = self._host(number)
            if unsigned[:8] == host.node[:8] or (kind == wire.RECORD and unsigned[1:33] == host.public):
                return host
        return self._cluster.hosts[1]

    def _host(self, number: int) -> _Host:
        return self._cluster.hosts[number] if number < MEMBERS else self._strangers[number - MEMBERS]

    # ---- delivering ----------------------------------------------------------------------------------

    def seal(self, case: Case) -> tuple[bytes, Address]:
        """See Door."""
        if case.kind == "sealed":
            return case.body, self._cluster.hosts[1].address
        sender, to_address = case.context
        return self._sealed(case.body, sender, to_address=to_address), self._host(sender).address

    def _sealed(self, body: bytes, sender: int, *, to_address: bool) -> bytes:
        host = self._host(sender)
        assert host.seal is not None
        return host.seal.seal(body, None if to_address else self._cluster.hosts[TARGET].node)

    async def deliver(self, arrived: tuple[bytes, Address]) -> None:
        """See Door."""
        swim = self._target.swim
        assert swim is not None
        now = self._cluster.now
        swim.handle_datagram(arrived[0], arrived[1], now)
        if swim.next_deadline() <= now:
            swim.handle_timer(now)
        for output in swim.drain():
            if isinstance(output, SendDatagram):
                self._cluster.waiting.append(output)
            else:
                self._told(TARGET, output)
        self._application.plan(swim, now)

    def rest(self) -> None:
        """See Door."""
        self._cluster.now += _STEP_S
        self._count += 1
        if self._count % _PUMP_EVERY == 0:
            self._cluster.turn(20)
        if self._count % _STRANGER_EVERY == 0:  # the old one may have used up its boots and versions
            number = self._count // _STRANGER_EVERY
            self._strangers[number % STRANGERS] = _stranger(STRANGERS + number)

    def close(self) -> None:
        """See Door."""

    def _told(self, number: int, output: object) -> None:
        if number == TARGET:
            self._application.hear(output, self._cluster.now)


def _split(body: bytes, at: int) -> list[bytes] | None:
    try:
        return wire.split_items(body, at)
    except WireError:
        return None
