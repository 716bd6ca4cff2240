"""Pings on their way: subject, requester and what came back; bounded."""

from __future__ import annotations

from hashlib import blake2b

from msgspec import Struct, field

from membership import wire
from membership.member import Handle
from membership.node import MembershipNode
from membership.verified_cache import Claim

_SECRET_LABEL = b"gossip ping secret 1\x00"
_PENDING_MAX = 4096  # our probes and those for others; the oldest goes


class PendingPing(Struct, eq=False):
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
        self._secret = node.sign(_SECRET_LABEL + node.own.record.boot.to_bytes(8))
        self.pending: dict[int, PendingPing] = {}

    def send(self, subject: Claim, now: float, requester: Claim | None = None, requested: int = 0) -> int | None:
        """A new ping; returns its sequence number, None when it is withheld. Only the subject knows the number until a
        helper is asked, too: an answer before that shows that the subject is where its record says."""
        return self._send(subject, PendingPing(subject, requester, requested), now, is_probe=True)

    def ask(self, subject: Claim, now: float) -> None:
        """A ping for the host's sake; it leaves half of the budget of a silent address to probes."""
        self._send(subject, PendingPing(subject, None, 0), now, is_probe=False)

    def _send(self, subject: Claim, ping: PendingPing, now: float, *, is_probe: bool) -> int | None:
        self._sequence += 1
        sequence = int.from_bytes(blake2b(self._sequence.to_bytes(8), key=self._secret, digest_size=4).digest())
        if not self.repeat(subject, sequence, now, is_probe=is_probe):
            return None
        self.pending[sequence] = ping
        if len(self.pending) > _PENDING_MAX:
            del self.pending[next(iter(self.pending))]
        return sequence

    def repeat(self, subject: Claim, sequence: int, now: float, *, is_probe: bool = True) -> bool:
        """Send a ping again. False when it is withheld."""
        is_sent = self._node.send(subject, self.head(wire.PING, sequence, now), now, is_probe=is_probe)
        self._node.counts["pings"] += is_sent
        if is_sent:
            self._node.roster.note_asked(subject.handle, now)
        return is_sent

    def head(self, kind: int, sequence: int, now: float, flags: int = 0) -> bytes:
        """Fixed part of a PING or ACK."""
        node = self._node
        digest = node.roster.digest.total
        return wire.PROBE_HEAD.pack(kind, sequence, digest, node.worry(), node.probe_flags(now) | flags)
