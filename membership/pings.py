"""Pings on their way: subject, requester and what came back; bounded."""

from __future__ import annotations

from dataclasses import dataclass, field

from membership import wire
from membership.member import Handle
from membership.node import MembershipNode
from membership.verified_cache import Claim

_PENDING_MAX = 4096  # our probes and those for others; the oldest goes


@dataclass(slots=True, eq=False)
class PendingPing:
    """A ping that waits for its answer."""

    subject: Claim
    requester: Claim | None
    requester_sequence: int
    helpers: tuple[Handle, ...] = ()
    nacks: int = 0
    is_over: bool = False
    accusations: list[bytes] = field(default_factory=list)


class Pings:
    """One table per brain, shared by all probers."""

    def __init__(self, node: MembershipNode) -> None:
        self._node = node
        self._sequence = node.rng.getrandbits(31)
        self.pending: dict[int, PendingPing] = {}

    def send(self, subject: Claim, now: float, requester: Claim | None = None, requested: int = 0) -> int:
        """A new ping; returns its sequence number."""
        self._sequence = (self._sequence + 1) & 0xFFFFFFFF
        self.pending[self._sequence] = PendingPing(subject, requester, requested)
        if len(self.pending) > _PENDING_MAX:
            del self.pending[next(iter(self.pending))]
        self.repeat(subject, self._sequence, now)
        return self._sequence

    def repeat(self, subject: Claim, sequence: int, now: float) -> None:
        """The same ping (again)."""
        self._node.counts["pings"] += 1
        self._node.send(subject, self.head(wire.PING, sequence, now), now)

    def head(self, kind: int, sequence: int, now: float, flags: int = 0) -> bytes:
        """Fixed part of a PING or ACK."""
        node = self._node
        digest = node.roster.digest.total
        return wire.PROBE_HEAD.pack(kind, sequence, digest, node.worry(), node.probe_flags(now) | flags)
