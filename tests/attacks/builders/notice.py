"""What is said of others' lives: notices, accusations, signs of life, goodbyes, forgetting.

Each builder gives the datagrams that are sent to one host.
"""

from __future__ import annotations

from msgspec.structs import replace

from gossipd.identity.keys import SecretKey
from membership import wire
from membership.bounds import ceiling
from membership.member import Record
from membership.node import ACCUSE_LABEL, ALIVE_LABEL, FORGET_LABEL, LEAVE_LABEL
from membership.record import BOOT_MAX
from tests.attacks.stage import Stage

_INCARNATIONS = {
    "maximum": wire.INCARNATION_MAX, "last": wire.INCARNATION_MAX - 1, "ceiling": ceiling(wire.INCARNATION_MAX),
    "u32": 2**32 - 1,
}  # fmt: skip
_LABELS = {"alive": ALIVE_LABEL, "leave": LEAVE_LABEL, "accuse": ACCUSE_LABEL, "forget": FORGET_LABEL}


def _number(stage: Stage, subject: Record, incarnation: str | int) -> int:
    """An incarnation by its name, or so many above that which the subject has."""
    if isinstance(incarnation, str):
        return _INCARNATIONS[incarnation]
    return stage.incarnation_of(subject) + incarnation


_KINDS = {"alive": wire.ALIVE, "leave": wire.LEAVE}


def notice(
    stage: Stage, incarnation: str | int, state: int = wire.STATE_SUSPECT, kind: int = wire.GOSSIP
) -> list[bytes]:
    """Tell the host that it is believed gone, at an incarnation that it never had."""
    number = _number(stage, stage.target, incarnation)
    return [stage.gossip(wire.notice(state, stage.target.node[:8], stage.target.boot, number), kind=kind)]


def notice_of_size(stage: Stage, more: int) -> list[bytes]:
    """A notice with bytes too many or too few."""
    whole = wire.notice(1, stage.target.node[:8], stage.target.boot, 1)[3:]
    return [stage.gossip(wire.item(wire.NOTICE, (whole + bytes(9))[: len(whole) + more]))]


def _accusation(stage: Stage, accuser: Record, subject: Record, incarnation: int) -> bytes:
    return wire.accusation_part(accuser.node[:8], subject.node[:8], subject.boot, incarnation)


def accuse(stage: Stage, subject: str, incarnation: str | int) -> list[bytes]:
    """Signed by the liar, at an incarnation that the subject never had."""
    number = _number(stage, getattr(stage, subject), incarnation)
    part = _accusation(stage, stage.liar, getattr(stage, subject), number)
    return [stage.gossip(stage.signed_item(wire.ACCUSE, ACCUSE_LABEL, part))]


def accuse_as(stage: Stage, accuser: str, subject: str = "victim", kind: int = wire.GOSSIP) -> list[bytes]:
    """In another member's name, signed by the liar."""
    part = _accusation(
        stage, getattr(stage, accuser), getattr(stage, subject), _number(stage, getattr(stage, subject), 0)
    )
    return [stage.gossip(stage.signed_item(wire.ACCUSE, ACCUSE_LABEL, part), kind=kind)]


def accuse_with_another_signature(stage: Stage, label: str = "", cluster: str = "") -> list[bytes]:
    """The liar's own accusation, with a signature that it made for another purpose or another cluster."""
    part = _accusation(stage, stage.liar, stage.victim, _number(stage, stage.victim, 0))
    signed = _LABELS[label or "accuse"] + (cluster.encode() or stage.ring.cluster_id) + part
    return [stage.gossip(wire.item(wire.ACCUSE, part + stage.liar_secret.sign(signed)))]


def life_of(stage: Stage, what: str, incarnation: int, *, is_signed: bool = True) -> list[bytes]:
    """A sign of life, or a goodbye, of another member, signed by the liar or by nobody."""
    part = wire.claim_part(stage.victim.node[:8], stage.victim.boot, _number(stage, stage.victim, incarnation))
    made = stage.signed_item(_KINDS[what], _LABELS[what], part)
    return [stage.gossip(made if is_signed else made[:-64] + bytes(64))]


def forget_as(stage: Stage, issuer: str, label: str = "forget") -> list[bytes]:
    """Forget a member, in another's name or with a signature for another purpose."""
    part = wire.forget_part(getattr(stage, issuer).node[:8], stage.victim.node[:8], stage.victim.boot)
    return [stage.gossip(stage.signed_item(wire.FORGET, _LABELS[label], part))]


def forget(stage: Stage, boot: str = "") -> list[bytes]:
    """Signed by the liar: forget a member that lives, in its present life or in all to come."""
    number = {"": stage.victim.boot, "maximum": BOOT_MAX, "later": int(stage.now_s) + 2 * 3_600}[boot]
    part = wire.forget_part(stage.liar.node[:8], stage.victim.node[:8], number)
    return [stage.gossip(stage.signed_item(wire.FORGET, FORGET_LABEL, part))]


def signed_item_cut(stage: Stage, kind: int, size: int) -> list[bytes]:
    """An item that ends with a signature, of another size."""
    return [stage.gossip(wire.item(kind, bytes(size)))]


def handles_cut(stage: Stage, kind: int) -> list[bytes]:
    """Worries whose last handle is cut short."""
    return [stage.to_target(bytes((kind,)) + stage.victim.node[:8] + b"\1\2\3")]


def refusal_of_a_member(stage: Stage) -> list[bytes]:
    """Tell a member that its name is another's: a stranger has signed that."""
    secret = SecretKey(stage.fresh())
    record = replace(stage.target, public_key=secret.public.ed25519)
    return [stage.to_target(bytes((wire.REFUSAL, 1)) + wire.item(wire.RECORD, bytes(40) + record.name.encode()))]
