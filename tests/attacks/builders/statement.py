"""Statements: unsigned, out of bounds, in another's name, about nothing, and cancels by those who may not.

Each builder gives the datagrams that are sent to one host, but for those that give statements.
"""

from __future__ import annotations

import struct
from typing import Any

from gossipd.core.ids import DeploymentId
from gossipd.deployment.statement import (
    _DOMAIN,
    _HEAD,
    EPOCH_FIRST_MAX,
    EPOCH_LIMIT,
    EPOCH_MAX,
    EPOCH_STEP_MAX,
    ISSUED_MAX_S,
    Verb,
)  # fmt: skip
from gossipd.identity.keys import SecretKey
from gossipd.manifest.envelope import ENVELOPE_BYTES_MAX
from membership import wire
from tests.attacks.stage import Stage
from tests.gossipd.manifest.making import manifest

_NUMBERS = {
    "epoch_max": EPOCH_MAX, "above_epoch_max": EPOCH_MAX + 1, "limit": EPOCH_LIMIT, "first": EPOCH_FIRST_MAX + 1,
    "i63": 2**63 - 1, "u63": 2**63, "u64": 2**64 - 1, "issued_max": ISSUED_MAX_S, "above_issued_max": ISSUED_MAX_S + 1,
    "envelope": ENVELOPE_BYTES_MAX + 1, "u32": 2**32 - 1,
}  # fmt: skip
_SMALL_ORDER = bytes((1,)) + bytes(31)
_OTHER_KINDS = {"items": wire.ITEMS, "ping": wire.PING, "gossip": wire.GOSSIP, "nack": wire.NACK}


def number(word: str | int) -> int:
    """TOML has no integers above 63 bits, and a limit has a name."""
    return _NUMBERS[word] if isinstance(word, str) else word


def signed_wire(stage: Stage, *, secret: SecretKey | None = None, **changes: Any) -> bytes:
    """A statement on the deployment that all hosts have, with some fields changed, and signed after that."""
    secret = secret or stage.liar_secret
    fields = {
        "format": 1, "verb": int(Verb.DEPLOY), "deployment": stage.deployment, "epoch": stage.said.epoch + 1,
        "manifest_bytes": 900, "issued": int(stage.now_s), "signer": secret.public.ed25519,
    } | changes  # fmt: skip
    head = _HEAD.pack(*fields.values())
    return head + secret.sign(_DOMAIN + head)


def _rank(statement: bytes) -> int:
    verb, epoch = statement[1], struct.unpack_from("<Q", statement, 34)[0]
    return int(min(epoch * 2 + (verb == Verb.CANCEL), 2**63 - 1))


def event(
    stage: Stage, statement: bytes, *, version: int | None = None, key: bytes = b"", through: str = "gossip"
) -> bytes:
    """One datagram that carries a statement as gossip does."""
    rank = _rank(statement) if version is None else version
    data = wire.event(1, stage.liar.node, rank, key or statement[2:34], statement)
    return stage.gossip(data, kind=_OTHER_KINDS[through])


def hidden(stage: Stage, count: int, begin_alike: bool = False) -> list[bytes]:
    """What a member is about to deploy, said by the liar first, behind so many words of its own on nothing."""
    genuine = manifest(version=3).id
    begin = genuine[:8] if begin_alike else b""
    ids = [*(DeploymentId(begin + stage.fresh(32 - len(begin))) for _ in range(count)), genuine]
    return [event(stage, signed_wire(stage, deployment=one, epoch=1)) for one in ids]


def unsigned(
    stage: Stage, version: str | int, payload: str = "x", about: str = "known", through: str = "gossip"
) -> list[bytes]:
    """An event that is no statement, under a deployment's key."""
    key = stage.deployment if about == "known" else DeploymentId(stage.fresh())
    data = wire.event(1, stage.liar.node, number(version), key, payload.encode())
    return [stage.gossip(data, kind=_OTHER_KINDS[through])]


def changed(
    stage: Stage, field: str, value: str | int = 0, about: str = "known", through: str = "gossip"
) -> list[bytes]:
    """A statement with one field out of bounds, signed well by the liar."""
    changes: dict[str, Any] = {field: number(value)}
    if about == "new":
        changes["deployment"] = DeploymentId(stage.fresh())
    return [event(stage, signed_wire(stage, **changes), through=through)]


def epoch_step(stage: Stage, verb: int = Verb.DEPLOY) -> list[bytes]:
    """One epoch more than a statement may be ahead of the last one."""
    return [event(stage, signed_wire(stage, epoch=stage.said.epoch + EPOCH_STEP_MAX + 1, verb=verb))]


def issued_ahead(stage: Stage, seconds: int) -> list[bytes]:
    """Issued later than now."""
    return [event(stage, signed_wire(stage, issued=int(stage.now_s) + seconds, deployment=DeploymentId(stage.fresh())))]


def of_size(stage: Stage, more: int) -> list[bytes]:
    """A statement with bytes too many or too few."""
    statement = signed_wire(stage)
    return [event(stage, (statement + bytes(99))[: len(statement) + more], version=_rank(statement))]


def another_rank(stage: Stage, version: str | int = 0, more: int = 0) -> list[bytes]:
    """A good statement under a version that is not its rank."""
    statement = signed_wire(stage, deployment=DeploymentId(stage.fresh()), epoch=1)
    return [event(stage, statement, version=number(version) or _rank(statement) + more)]


def another_key(stage: Stage, about: str) -> list[bytes]:
    """A good statement under the key of another deployment, or of none."""
    key = {"known": bytes(stage.deployment), "short": b"short", "new": stage.fresh()}[about]
    return [event(stage, signed_wire(stage, deployment=DeploymentId(stage.fresh()), epoch=1), key=key)]


def forged(stage: Stage, signer: str, verb: int = Verb.CANCEL) -> list[bytes]:
    """In the name of the deployer, the publisher, another member, or of a key under which anything verifies."""
    key = {
        "deployer": stage.said.signer, "publisher": stage.publisher.public.ed25519, "victim": stage.victim.public_key,
        "target": stage.target.public_key, "degenerate": _SMALL_ORDER, "zero": bytes(32),
    }[signer]  # fmt: skip
    return [event(stage, signed_wire(stage, signer=key, verb=verb))]


def altered(stage: Stage, at: int) -> list[bytes]:
    """A good statement with one bit changed after it was signed."""
    statement = bytearray(signed_wire(stage))
    statement[at] ^= 1
    return [event(stage, bytes(statement), version=_rank(bytes(statement)))]


def by_nobody(stage: Stage, verb: int = Verb.DEPLOY) -> list[bytes]:
    """Signed well, by a key that no member has."""
    return [event(stage, signed_wire(stage, secret=SecretKey(stage.fresh()), verb=verb))]


def cancel(stage: Stage, ahead: int = 1, through: str = "gossip") -> list[bytes]:
    """A member cancels what another deployed."""
    statement = signed_wire(stage, verb=int(Verb.CANCEL), epoch=stage.said.epoch + ahead)
    return [event(stage, statement, through=through)]


def ahead_of_its_manifest(stage: Stage, verb: int, epoch: int) -> list[bytes]:
    """Anything but a deploy of the version that is deployed next, before its manifest is here."""
    deployment = manifest(version=3).id
    return [event(stage, signed_wire(stage, deployment=deployment, epoch=epoch, verb=verb))]


def about_nothing(stage: Stage, count: int, verb: int = Verb.DEPLOY) -> list[bytes]:
    """So many statements on deployments that do not exist, four in a datagram."""
    events = []
    for _ in range(count):
        statement = signed_wire(stage, deployment=DeploymentId(stage.fresh()), epoch=1, verb=verb)
        events.append(wire.event(1, stage.liar.node, _rank(statement), statement[2:34], statement))
    return [stage.gossip(*events[at : at + 4]) for at in range(0, count, 4)]
