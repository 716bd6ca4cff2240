"""Heads of audit chains: in others' names, of another moment, sent again, signed for something else.

Each builder gives the datagrams that are sent to one host.
"""

from __future__ import annotations

from gossipd.audit.witness import _FIELDS, AuditHead
from gossipd.identity.keys import SecretKey
from membership import wire
from tests.attacks.stage import Stage


def _told(stage: Stage, node: bytes, version: int, payload: bytes) -> bytes:
    return stage.gossip(wire.event(3, stage.liar.node, version, node, payload))


def _head(stage: Stage, *, ahead_s: int = 0, records: int = 1) -> AuditHead:
    return AuditHead(int((stage.now_s + ahead_s) * 1000), records, bytes(32))


def signed_by(stage: Stage, of: str, by: str = "liar", records: int = 1) -> list[bytes]:
    """A host's chain is said to be this short, by the liar, by a key that nobody has, or by nobody."""
    head = _head(stage, records=records)
    secret = stage.liar_secret if by == "liar" else SecretKey(stage.fresh())
    payload = head.signed(secret) if by != "nobody" else head.signed(secret)[:-64] + bytes(64)
    return [_told(stage, getattr(stage, of).node, head.issued_ms, payload)]


def of_nobody(stage: Stage) -> list[bytes]:
    """Signed well by a key of no member."""
    secret, head = SecretKey(stage.fresh()), _head(stage)
    return [_told(stage, stage.fresh(16), head.issued_ms, head.signed(secret))]


def own(stage: Stage, ahead_s: int = 0, version_more: int = 0, size_more: int = 0, key_more: int = 0) -> list[bytes]:
    """The liar's own head: from another time, under another version, of another size, under a key of another size."""
    head = _head(stage, ahead_s=ahead_s)
    payload = head.signed(stage.liar_secret)
    node = (stage.liar.node + bytes(9))[: 16 + key_more]
    return [_told(stage, node, head.issued_ms + version_more, (payload + bytes(9))[: len(payload) + size_more])]


def own_altered(stage: Stage, at: int) -> list[bytes]:
    """One bit changed after it was signed."""
    head = _head(stage)
    payload = bytearray(head.signed(stage.liar_secret))
    payload[at] ^= 1
    return [_told(stage, stage.liar.node, head.issued_ms, bytes(payload))]


def with_another_label(stage: Stage, label: str = "") -> list[bytes]:
    """The liar's own head with a signature that it made for another purpose."""
    head = _head(stage)
    fields = _FIELDS.pack(head.issued_ms, head.records, head.hash)
    payload = fields + stage.liar_secret.sign(label.encode() + fields)
    return [_told(stage, stage.liar.node, head.issued_ms, payload)]


def again(stage: Stage, after_ms: int = 0) -> list[bytes]:
    """The liar's own good head, and then the same, or another one too soon."""
    made = []
    for more in (0, after_ms):
        head = AuditHead(int(stage.now_s * 1000) + more, 1, bytes(32))
        made.append(_told(stage, stage.liar.node, head.issued_ms, head.signed(stage.liar_secret)))
    return made
