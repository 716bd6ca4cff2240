"""The membership port: sealed datagrams into a real brain that lives in a small real cluster.

The corpus is what four brains said to each other on a wire in memory: joining, probing, suspecting, contradicting,
synchronising, leaving, forgetting. Three members (and a few strangers who hold the cluster's key) have their keys in
the fuzzer's hands, so a change in a body, an item or a record is signed and sealed as a genuine member would. The
fourth brain is the target; what it tells goes on to what the daemon does with it: statements, progress, the planner.
"""

from __future__ import annotations

import struct
from random import Random

from membership import wire
from membership.errors import WireError
from membership.events import SendDatagram
from membership.member import Address
from membership.node import ACCUSE_LABEL, ALIVE_LABEL, FORGET_LABEL, LEAVE_LABEL
from membership.record import _LABEL as RECORD_LABEL
from membership.record import SIGNATURE_BYTES
from membership.seal import BODY_BYTES_MAX, DatagramSeal, KeyRing
from tests.fuzz.mutations import mutate_bytes, mutate_integer, pick
from tests.fuzz.surface import Case
from tests.fuzz.surfaces.application import Application
from tests.fuzz.surfaces.small_cluster import BOOT, MEMBERS, RING, TARGET, Host, Wire, make_stranger, record_traffic

FOREIGN_RING = KeyRing(b"another cluster.", (b"k" * 32,))
STRANGERS = 12
_STEP_S = 0.004  # per input; the cluster lives on in real proportions to its traffic
_PUMP_EVERY = 16  # inputs between turns of the other brains
# Inputs between new ones. Each is remembered for days by each of the four brains, in 6.5 KB: by design, no leak.
_STRANGER_EVERY = 4000
_LABELS = {
    wire.ALIVE: ALIVE_LABEL, wire.LEAVE: LEAVE_LABEL, wire.ACCUSE: ACCUSE_LABEL, wire.FORGET: FORGET_LABEL,
    wire.RECORD: RECORD_LABEL,
}  # fmt: skip
_HEADS = {
    wire.PING: wire.PROBE_HEAD.size, wire.ACK: wire.PROBE_HEAD.size, wire.PING_REQ: wire.REQUEST_HEAD.size,
    wire.NACK: wire.SEQUENCE_HEAD.size, wire.JOIN: 2, wire.WELCOME: wire.WELCOME_HEAD.size, wire.REFUSAL: 2,
    wire.GOSSIP: 1, wire.ITEMS: 1, wire.SYNC_ASK: 5 + 1024,
}  # fmt: skip


class DatagramSurface:
    """See the module."""

    name = "datagram"
    share = 1.0

    def __init__(self, rng: Random) -> None:
        self._bodies = record_traffic(rng)
        self._all = [body for bodies in self._bodies.values() for body in bodies]
        self._items = [
            item for body in self._all if body[0] in _HEADS for item in split_items(body, _HEADS[body[0]]) or ()
        ]
        self._cluster = Wire(rng, None)
        self._application = Application([host.public for host in self._cluster.hosts])
        self._cluster.told = self._told  # type: ignore[method-assign]
        self._strangers = [make_stranger(number) for number in range(STRANGERS)]
        self._outsider = DatagramSeal(FOREIGN_RING, self._strangers[0].node, BOOT)
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
        """See Surface."""
        sender = 1 + int(rng.random() * (MEMBERS - 1))
        if rng.random() < 0.15:
            sender = MEMBERS + int(rng.random() * STRANGERS)
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
            body = body[:1] + mutate_bytes(body[1:], rng, self._all)
        if rng.random() < 0.97:  # else it is too long to be sealed by anybody
            body = body[:BODY_BYTES_MAX]
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
        head, items = body[: _HEADS[body[0]]], split_items(body, _HEADS[body[0]]) or []
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
        """Another content, signed again by the host that said it, or by the sender."""
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

    def _change_record(self, unsigned: bytes, signer: Host, rng: Random) -> bytes:
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

    def _changed_count(self, value: int, signer: Host, rng: Random) -> int:
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

    def _owner(self, kind: int, unsigned: bytes) -> Host:
        for number in range(MEMBERS + STRANGERS):
            host = self._host(number)
            if unsigned[:8] == host.node[:8] or (kind == wire.RECORD and unsigned[1:33] == host.public):
                return host
        return self._cluster.hosts[1]

    def _host(self, number: int) -> Host:
        return self._cluster.hosts[number] if number < MEMBERS else self._strangers[number - MEMBERS]

    # ---- delivering ----------------------------------------------------------------------------------

    def seal(self, case: Case) -> tuple[bytes, Address]:
        """See Surface."""
        if case.kind == "sealed":
            return case.body, self._cluster.hosts[1].address
        sender, to_address = case.context
        return self._sealed(case.body, sender, to_address=to_address), self._host(sender).address

    def _sealed(self, body: bytes, sender: int, *, to_address: bool) -> bytes:
        host = self._host(sender)
        assert host.seal is not None
        return host.seal.seal(body, None if to_address else self._cluster.hosts[TARGET].node)

    async def deliver(self, arrived: tuple[bytes, Address]) -> None:
        """See Surface."""
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
        """See Surface."""
        self._cluster.now += _STEP_S
        self._count += 1
        if self._count % _PUMP_EVERY == 0:
            self._cluster.turn(20)
        if self._count % _STRANGER_EVERY == 0:  # the old one may have used up its boots and versions
            number = self._count // _STRANGER_EVERY
            self._strangers[number % STRANGERS] = make_stranger(STRANGERS + number)

    def close(self) -> None:
        """See Surface."""

    def _told(self, number: int, output: object) -> None:
        if number == TARGET:
            self._application.hear(output, self._cluster.now)


def split_items(body: bytes, at: int) -> list[bytes] | None:
    try:
        return wire.split_items(body, at)
    except WireError:
        return None
