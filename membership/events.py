"""What the brain tells its host: frozen values, past tense, drained in order together with datagrams to send."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from membership.member import Address, Member, NodeId, Record


class SendDatagram(NamedTuple):
    """Send these sealed bytes; losing them is allowed."""

    address: Address
    datagram: bytes


class PayloadKind(Enum):
    """Classes of application events. Each has its own bounded queue and its own share of bytes."""

    STATEMENT = "statement"  # few; reaches all members, late joiners too (part of the anti-entropy)
    PROGRESS = "progress"  # many; superseded by version, may be lost
    AUDIT = "audit"  # told to a few members, neither kept nor passed on; an older node drops it


class DownReason(Enum):
    """Why a member is no longer counted on."""

    CORROBORATED = "corroborated"  # two accusers in two racks, and the member did not contradict in time
    LONE = "lone"  # one accuser only, after the longer wait
    LEFT = "left"  # it said goodbye
    FORGOTTEN = "forgotten"  # taken off the roster


class MemberUp(Struct, frozen=True):
    """A member is alive that was unknown, dead or gone before."""

    member: Member


class MemberChanged(Struct, frozen=True):
    """A living member's record or incarnation changed (also: a suspicion was contradicted)."""

    member: Member


class MemberSuspected(Struct, frozen=True):
    """A member could not be reached by another. Not a verdict."""

    member: Member


class MemberDown(Struct, frozen=True):
    """The cluster's verdict, as judged here from signed accusations."""

    member: Member
    reason: DownReason


class MemberLeft(Struct, frozen=True):
    """The member said goodbye itself."""

    member: Member


class MemberForgotten(Struct, frozen=True):
    """The member is off the roster: an operator said so, another took its name, or it was dead for too long."""

    node: NodeId
    name: str


class MemberAnswered(Struct, frozen=True):
    """A member has spoken for the first time from the address in its record: nobody else can have made it up."""

    node: NodeId


class PayloadHeard(Struct, frozen=True):
    """An application event of another node, newer than any heard before under its kind and key. ``origin`` is a claim
    that any member could forge; what must be proved is signed inside ``payload``. ``forwarder`` is the member whose
    datagram brought the event, and so has heard it before this node."""

    origin: NodeId
    forwarder: NodeId
    kind: PayloadKind
    key: bytes
    version: int
    payload: bytes


class NameConflict(Struct, frozen=True):
    """``other``, at ``address``, has our name, or asks with a living member's name to be admitted."""

    name: str
    other: NodeId
    address: Address


class OwnRecordOutdone(Struct, frozen=True):
    """A newer record with our key came from the network: this node has lost its state, or another uses its key. Told
    each time; ``address`` is the other's."""

    ours: Record
    address: Address


class JoinRefused(Struct, frozen=True):
    """A member refused to admit this node; ``reason`` is for the operator. The brain keeps asking, slowly."""

    reason: str


class ControlProbeWanted(Struct, frozen=True):
    """A direct probe got no answer: try the control channel, then, if it answers, call
    ``Swim.control_probe_answered``."""

    node: NodeId


class Isolated(Struct, frozen=True):
    """True: this node hears too few members to judge any, suspicions are frozen. False: it is back and catches up."""

    isolated: bool


Event: TypeAlias = (
    MemberUp | MemberChanged | MemberSuspected | MemberDown | MemberLeft | MemberForgotten | MemberAnswered
    | PayloadHeard | NameConflict | OwnRecordOutdone | JoinRefused | ControlProbeWanted | Isolated
)  # fmt: skip
Output: TypeAlias = SendDatagram | Event
