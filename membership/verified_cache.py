"""Signed things that were decoded and verified once, kept so that no signature is checked twice.

What lives here: *claims* (a record at an incarnation, immutable and shared), verified records by their bytes, and the
verdicts on signatures by the signed bytes; all bounded. What does not: any belief about which members live. Nothing
here depends on the observer, so the simulator's nodes share one cache: a view then costs one pointer per member.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from membership.member import HANDLE_BYTES, Record, node_id
from membership.record import Verify, decode_record
from membership.wire import RECORD, item

_CACHE_MAX = 16384  # entries of each sort: what 10,000 members need, and under 30 MB in any case


def verify_ed25519(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """True when the holder of ``public_key`` signed ``message``."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


class Claim:
    """A member as it describes itself, at one incarnation. Immutable; all nodes that believe it share it. ``mark`` (64
    bits, upper half of the record, lower half of the liveness) is what digests add up; ``proof`` is the signed ALIVE
    item, empty at incarnation 0, which the record itself proves."""

    __slots__ = (
        "address", "bucket", "handle", "incarnation", "item", "mark", "node", "proof", "record", "record_bytes",
    )  # fmt: skip

    def __init__(self, record: Record, record_bytes: bytes, incarnation: int, proof: bytes) -> None:
        self.record = record
        self.record_bytes = record_bytes
        self.item = item(RECORD, record_bytes)
        self.node = node_id(record.public_key)
        self.handle = self.node[:HANDLE_BYTES]
        self.address = (record.host, record.port)
        self.incarnation = incarnation
        self.proof = proof
        self.bucket = self.handle[0]
        body = int.from_bytes(blake2b(record_bytes, digest_size=4).digest())
        life = self.handle + record.boot.to_bytes(8) + incarnation.to_bytes(4)
        self.mark = body << 32 | int.from_bytes(blake2b(life, digest_size=4).digest())

    def rank(self) -> tuple[int, int, bytes]:
        """Orders records of one member; the bytes break a tie, so that merging commutes even if a member lies."""
        return (self.record.boot, self.record.version, self.record_bytes)


class VerifiedCache:
    """Bounded caches of verified things of one cluster."""

    def __init__(self, cluster_id: bytes, verify: Verify = verify_ed25519) -> None:
        self.cluster_id = cluster_id
        self._verify = verify
        self._claims: OrderedDict[tuple[bytes, int], Claim] = OrderedDict()
        self._verdicts: OrderedDict[bytes, bool] = OrderedDict()
        self.verifications = 0

    def first_claim(self, record_bytes: bytes) -> Claim:
        """The claim of a record at incarnation 0, verified. Raises WireError."""
        known = self._claims.get((record_bytes, 0))
        if known is not None:
            return known
        return self._keep(Claim(decode_record(record_bytes, self.cluster_id, self._check), record_bytes, 0, b""))

    def own_claim(self, record: Record, record_bytes: bytes, incarnation: int, proof: bytes) -> Claim:
        """A claim about this node, which needs no check."""
        return self._keep(Claim(record, record_bytes, incarnation, proof))

    def raised(self, claim: Claim, incarnation: int, proof: bytes) -> Claim:
        """A record at another incarnation, whose proof the caller has checked."""
        known = self._claims.get((claim.record_bytes, incarnation))
        if known is not None:
            return known
        return self._keep(Claim(claim.record, claim.record_bytes, incarnation, proof))

    def is_signed(self, signed_item: bytes, public_key: bytes, message: bytes, signature: bytes) -> bool:
        """Whether the signature holds; remembered by the item's bytes and the key."""
        key = signed_item + public_key
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._check(public_key, signature, message)
            self._verdicts[key] = verdict
            if len(self._verdicts) > _CACHE_MAX:
                self._verdicts.popitem(last=False)
        return verdict

    def _check(self, public_key: bytes, signature: bytes, message: bytes) -> bool:
        self.verifications += 1
        return self._verify(public_key, signature, message)

    def _keep(self, claim: Claim) -> Claim:
        self._claims[(claim.record_bytes, claim.incarnation)] = claim
        if len(self._claims) > _CACHE_MAX:
            self._claims.popitem(last=False)
        return claim
