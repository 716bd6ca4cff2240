"""Who is there when an attack is made: the host that is attacked, those that it names, the attacker's keys.

What lives here: the values, and sealing and signing as any holder of the keys can. What does not: who is a simulated
host and who a real one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from gossipd.core.ids import DeploymentId
from gossipd.deployment.statement import Statement
from gossipd.identity.keys import SecretKey
from membership import wire
from membership.member import NodeId, Record
from membership.seal import DatagramSeal, KeyRing

FOR_OTHERS = DeploymentId(b"\x0b" * 32)
TRAINER = SecretKey(b"may sign lab/* and nothing else.")
TRAINER_NAMES = ("lab/*",)
RETIRED = SecretKey(b"a host that was forgotten.......")
RETIRED_BOOT = 1_000_000  # of its last life


@dataclass(slots=True)
class Stage:
    """``target`` hears the attack; ``victim`` and ``other`` are honest members; the liar is a member, too.

    ``said``: the last statement on a deployment that all hosts have, which ``deployer`` (a public key) deployed.
    ``seal``: the liar's own, for a body and its receiver. ``for_others``: a deployment that the liar is no target of.
    ``trainer`` may sign models named ``lab/*`` only. ``recorded``: what the victim told of its progress in
    ``for_others`` before its last word on it.
    """

    ring: KeyRing
    target: Record
    victim: Record
    other: Record
    liar: Record
    liar_secret: SecretKey = field(repr=False)
    publisher: SecretKey = field(repr=False)
    seal: Callable[[bytes, NodeId | None], bytes]
    deployment: DeploymentId
    said: Statement
    now_s: float
    model: str = "toy"
    for_others: DeploymentId = FOR_OTHERS
    trainer: SecretKey = field(default=TRAINER, repr=False)
    salt: bytes = b""
    recorded: bytes = b""
    incarnation_of: Callable[[Record], int] = lambda record: 0
    """As far as the liar has heard: a busy host may have contradicted a rumour."""
    _fresh: int = 0

    def fresh(self, count: int = 32) -> bytes:
        """Bytes that were not given before; the same in every run."""
        self._fresh += 1
        return blake2b(self.salt + self._fresh.to_bytes(8), digest_size=64).digest()[:count]

    def to_target(self, body: bytes) -> bytes:
        """One datagram of the liar's."""
        return self.seal(body, self.target.node)

    def gossip(self, *items: bytes, kind: int = wire.GOSSIP) -> bytes:
        """Items in one datagram of the liar's."""
        head = {
            wire.PING: wire.PROBE_HEAD.pack(wire.PING, 7, 0, 0, 0),
            wire.NACK: wire.SEQUENCE_HEAD.pack(wire.NACK, 7),
        }
        return self.to_target(head.get(kind, bytes((kind,))) + b"".join(items))

    def sealed_as(
        self, node: NodeId, boot: int, body: bytes, *, counter: int = 1, ring: KeyRing | None = None
    ) -> bytes:
        """A datagram in the name of any node: all sealing keys follow from the cluster's."""
        seal = DatagramSeal(ring or self.ring, node, boot)
        seal._counter = counter - 1
        return seal.seal(body, self.target.node)

    def signed_item(self, kind: int, label: bytes, part: bytes, secret: SecretKey | None = None) -> bytes:
        """An item with a signature, the liar's unless another key is given."""
        signature = (secret or self.liar_secret).sign(label + self.ring.cluster_id + part)
        return wire.item(kind, part + signature)
