"""Datagrams: noise, forged headers, bodies and items that cannot be, records and members that are not.

Each builder gives the datagrams that are sent to one host.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from gossipd.identity.keys import SecretKey
from membership import wire
from membership.bounds import ceiling
from membership.member import Record
from membership.record import BOOT_MAX, encode_signed, sign_record
from membership.seal import BODY_BYTES_MAX, OVERHEAD_BYTES, DatagramSeal, KeyRing
from membership.sync_rows import ROW, pack_rows
from membership.sync_server import ASK_BYTES
from tests.attacks.stage import RETIRED, RETIRED_BOOT, Stage

PING = wire.PROBE_HEAD.pack(wire.PING, 1, 0, 0, 0)
_PLACES = {"version": 0, "tag": 1, "flags": 5, "sender": 6, "boot": 22, "counter": 30, "body": 40, "mac": -1}
_BOOTS = {"u64": 2**64 - 1, "maximum": BOOT_MAX, "ceiling": ceiling(BOOT_MAX)}
NOWHERE = "192.0.2.9"
_LONG_S = 6.0  # a host that has heard no equal digest for so long asks whom it hears next


def noise(stage: Stage, size: int) -> list[bytes]:
    """Bytes that mean nothing."""
    return [(stage.fresh(64) * 40)[:size]]


def changed(stage: Stage, field: str) -> list[bytes]:
    """A genuine datagram with one byte changed on its way."""
    datagram = bytearray(stage.to_target(PING))
    datagram[_PLACES[field]] ^= 1
    return [bytes(datagram)]


def cut(stage: Stage, size: int) -> list[bytes]:
    """A genuine datagram, of which some bytes are missing at the end."""
    return [stage.to_target(PING)[:-size]]


def of_another_cluster(stage: Stage, part: str) -> list[bytes]:
    """Another cluster's id with our key, or another key with our id, or an unknown format."""
    ring = (
        KeyRing(b"another cluster.", stage.ring.keys) if part == "id" else KeyRing(stage.ring.cluster_id, (b"k" * 32,))
    )
    return [stage.sealed_as(stage.liar.node, stage.liar.boot, PING, ring=ring)]


def for_somebody_else(stage: Stage) -> list[bytes]:
    """Sealed for one host, sent to another."""
    return [stage.seal(PING, stage.victim.node)]


def replayed(stage: Stage, times: int) -> list[bytes]:
    """One datagram, again and again."""
    return [stage.to_target(PING)] * (times + 1)


def out_of_window(stage: Stage) -> list[bytes]:
    """Counters so far behind that they may have been seen."""
    return [stage.sealed_as(stage.victim.node, stage.victim.boot, PING, counter=one) for one in (2**40, 5)]


def in_the_targets_name(stage: Stage) -> list[bytes]:
    """As if the host had sent it itself."""
    return [stage.sealed_as(stage.target.node, stage.target.boot, PING)]


def forged_boot(stage: Stage, boot: str = "", ahead_s: int = 0, counter: int = 1) -> list[bytes]:
    """In a member's name, from a life that it never had."""
    number = _BOOTS[boot] if boot else int(stage.now_s) + ahead_s
    return [stage.sealed_as(stage.victim.node, number, PING, counter=counter)]


def forged_counter(stage: Stage) -> list[bytes]:
    """In a member's name and present life, with the last counter, twice."""
    return [stage.sealed_as(stage.victim.node, stage.victim.boot, PING, counter=2**64 - 1)] * 2


def past_life(stage: Stage, kind: int, behind: int) -> list[bytes]:
    """In a member's name, from a life that is over."""
    return [stage.sealed_as(stage.victim.node, stage.victim.boot - behind, bytes((kind,)) + PING[1:])]


def of_nobody(stage: Stage, kind: int) -> list[bytes]:
    """By a holder of the key that is no member, of a type that only members send."""
    secret = SecretKey(stage.fresh())
    node = replace(stage.liar, public_key=secret.public.ed25519).node
    return [stage.sealed_as(node, int(stage.now_s), bytes((kind,)) + bytes(40))]


def body_of_type(stage: Stage, kind: int, size: int) -> list[bytes]:
    """A body of that type and length, of zeros."""
    return [stage.to_target(bytes((kind,)) + bytes(size))]


def empty_body(stage: Stage) -> list[bytes]:
    """Nothing, sealed well."""
    return [stage.to_target(b"")]


def too_long(stage: Stage) -> list[bytes]:
    """Sealed well, and longer than any datagram may be."""
    seal = DatagramSeal(stage.ring, stage.liar.node, stage.liar.boot)
    return [seal.seal(PING + bytes(1500 - OVERHEAD_BYTES), stage.target.node)]


def items(stage: Stage, wires: list[str], kind: int = wire.GOSSIP) -> list[bytes]:
    """Items given as hex: kind, length and content as they are."""
    return [stage.gossip(*map(bytes.fromhex, wires), kind=kind)]


# ---- records and members ------------------------------------------------------------------------------


def _packed(stage: Stage, record: Record, secret: SecretKey, cluster: bytes = b"") -> bytes:
    return sign_record(record, cluster or stage.ring.cluster_id, secret.sign)[1]


def forged_record(stage: Stage, field: str, surface: str = "record") -> list[bytes]:
    """A member's record with one field changed, signed by the liar."""
    value = getattr(stage.victim, field)
    other = value + 1 if isinstance(value, int) else bytes(32) if isinstance(value, bytes) else f"{value}x"
    data = _packed(stage, replace(stage.victim, **dict[str, Any]({field: other})), stage.liar_secret)
    if surface == "roster":
        return [stage.gossip(wire.roster(wire.STATE_DEAD, 0, data))]
    return [stage.gossip(wire.item(wire.RECORD, data), kind=wire.PING if surface == "ping" else wire.GOSSIP)]


def record_of_another_cluster(stage: Stage) -> list[bytes]:
    """The liar's own record, signed for another cluster."""
    record = replace(stage.liar, version=stage.liar.version + 1)
    return [stage.gossip(wire.item(wire.RECORD, _packed(stage, record, stage.liar_secret, b"another cluster.")))]


def own_record(stage: Stage, boot: str = "", ahead_s: int = 0, item: str = "record") -> list[bytes]:
    """The liar's own record (on the list of the dead: a new member's), from a life that no clock explains."""
    number = _BOOTS[boot] if boot else int(stage.now_s) + ahead_s
    if item == "record":
        data = _packed(stage, replace(stage.liar, boot=number), stage.liar_secret)
        return [stage.gossip(wire.item(wire.RECORD, data))]
    secret = SecretKey(stage.fresh())
    data = _packed(stage, replace(stage.liar, boot=number, public_key=secret.public.ed25519), secret)
    return [stage.gossip(wire.roster(wire.STATE_DEAD, 0, data))]


def record_bytes(stage: Stage, at: int, value: str) -> list[bytes]:
    """The liar's own record with bytes in the place of others, signed well."""
    data = bytearray(encode_signed(stage.liar)[:-64])
    data[at : at + len(value) // 2] = bytes.fromhex(value)
    label = b"gossip member record 1\x00" + stage.ring.cluster_id
    return [stage.gossip(wire.item(wire.RECORD, bytes(data) + stage.liar_secret.sign(label + bytes(data))))]


def own_text(stage: Stage, field: str, text: str) -> list[bytes]:
    """The liar's own record, signed well, with another text in one field, of as many bytes as the record has there."""
    size = len(text.encode())
    data = encode_signed(replace(stage.liar, version=stage.liar.version + 1, **dict[str, Any]({field: "#" * size})))
    part = data[:-64].replace(bytes((size,)) + b"#" * size, bytes((size,)) + text.encode())
    label = b"gossip member record 1\x00" + stage.ring.cluster_id
    return [stage.gossip(wire.item(wire.RECORD, part + stage.liar_secret.sign(label + part)))]


def join(stage: Stage, whose: str) -> list[bytes]:
    """A JOIN with no record, with another member's, or with a member's name and a key of its own."""
    if whose == "none":
        return [stage.to_target(bytes((wire.JOIN, 0)) + wire.notice(1, bytes(8), 1, 1))]
    if whose == "victim":
        return [stage.to_target(bytes((wire.JOIN, 0)) + wire.item(wire.RECORD, encode_signed(stage.victim)))]
    secret = SecretKey(stage.fresh())
    named = getattr(stage, whose).name
    record = replace(stage.liar, public_key=secret.public.ed25519, boot=int(stage.now_s), name=named)
    body = bytes((wire.JOIN, 0)) + wire.item(wire.RECORD, _packed(stage, record, secret))
    return [stage.sealed_as(record.node, record.boot, body)]


def from_elsewhere(stage: Stage, what: str) -> list[bytes]:
    """A member's ping, or a joiner's JOIN, as recorded on its way and sent from another address."""
    if what == "ping":
        return [stage.sealed_as(stage.victim.node, stage.victim.boot, PING, counter=1000)]
    secret = SecretKey(stage.fresh())
    record = replace(stage.other, public_key=secret.public.ed25519, boot=int(stage.now_s), name="joiner", host=NOWHERE)
    body = bytes((wire.JOIN, 0)) + wire.item(wire.RECORD, _packed(stage, record, secret))
    body += wire.padding(BODY_BYTES_MAX - len(body)) if what == "join" else b""
    return [stage.sealed_as(record.node, record.boot, body)]


def retired(stage: Stage, through: str) -> list[bytes]:
    """The signed record of a host that was forgotten before all daemons were started again, as it was recorded once."""
    record = replace(stage.other, public_key=RETIRED.public.ed25519, boot=RETIRED_BOOT, name="retired", host=NOWHERE)
    data = _packed(stage, record, RETIRED)
    if through == "roster":
        return [stage.gossip(wire.roster(wire.STATE_DEAD, 0, data))]
    item = wire.item(wire.RECORD, data)
    if through == "record":
        return [stage.gossip(item)]
    head = {
        "join": bytes((wire.JOIN, 0)), "own gossip": bytes((wire.GOSSIP,)),
        "sync": bytes((wire.SYNC_ASK,)).ljust(ASK_BYTES, b"\0"),
    }[through]  # fmt: skip
    return [stage.sealed_as(record.node, record.boot, head + item)]


def sybils(stage: Stage, count: int, address: str) -> list[bytes]:
    """Members that do not exist, at one address: a third party's, a member's, or one in many spellings; or at many."""
    hosts = {
        "nobody": [NOWHERE], "victim": [stage.victim.host], "spelled": ["2001:db8::1", "2001:DB8:0::1"],
        "many": [f"203.0.113.{number}" for number in range(250)],
    }[address]  # fmt: skip
    port = stage.victim.port if address == "victim" else 7946
    made = []
    for number in range(count):
        secret = SecretKey(stage.fresh())
        record = replace(
            stage.liar, public_key=secret.public.ed25519, boot=int(stage.now_s), name=f"sybil-{stage.fresh(6).hex()}",
            rack=f"rack-{number}", host=hosts[number % len(hosts)], port=port,
        )  # fmt: skip
        made.append(stage.gossip(wire.item(wire.RECORD, _packed(stage, record, secret))))
    return made


def clones(stage: Stage, times: int, hosts: str = "10.0.0.7 10.0.0.8") -> list[bytes]:
    """Lives of the liar's one key, in turn at two addresses, as two hosts have them whose disk was copied."""
    made = []
    for number in range(times):
        host = hosts.split()[number % 2]
        record = replace(stage.liar, boot=stage.liar.boot + 1 + number, version=1, host=host)
        body = bytes((wire.GOSSIP,)) + wire.item(wire.RECORD, _packed(stage, record, stage.liar_secret))
        made.append(stage.sealed_as(stage.liar.node, record.boot - 1, body, counter=1000))
    return made


def anothers_key(stage: Stage) -> list[bytes | float]:
    """The liar's own record, which names the transport key of a member, and goes on to do so."""
    record = replace(stage.liar, version=stage.liar.version + 1, transport_key=stage.victim.transport_key)
    named = stage.gossip(wire.item(wire.RECORD, _packed(stage, record, stage.liar_secret)))
    return [named, 30.0, stage.to_target(PING)]


# ---- exchanges that never end ---------------------------------------------------------------------------


def welcome(stage: Stage, times: int) -> list[bytes]:
    """Admission that the host has not asked for."""
    return [stage.to_target(wire.WELCOME_HEAD.pack(wire.WELCOME, 0, wire.FLAG_AGAIN))] * times


def synchronising(stage: Stage, what: str, times: int, pause_s: float = 0.0) -> list[bytes | float]:
    """A ping with another digest, so that the host asks the liar, and then answers, with pauses in seconds."""
    made: list[bytes | float] = [_LONG_S, stage.to_target(wire.PROBE_HEAD.pack(wire.PING, 1, 1, 1, 0))]
    own = bytes((wire.ITEMS,)) + wire.item(wire.RECORD, encode_signed(stage.liar))
    for number in range(times):
        ids = [bytes((first,)) + number.to_bytes(7) for first in range(60)]
        (part,) = pack_rows({one[0]: [ROW.pack(one, 1)] for one in ids}, BODY_BYTES_MAX - wire.SEQUENCE_HEAD.size)
        rows = wire.SEQUENCE_HEAD.pack(wire.SYNC_LIST, 1) + part
        made += [pause_s, stage.to_target(own if what == "items" and number else rows)]
    return made
