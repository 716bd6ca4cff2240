"""The keys that a brain is given: the signer of its words, and the cluster's key ring.

What lives here: ``Credentials``. What does not: how a brain signs (``record``) and seals (``seal``).
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from membership.member import NodeId
from membership.record import Sign
from membership.seal import DatagramSeal, KeyRing, Seal
from membership.verified_cache import VerifiedCache


class Credentials(Struct, frozen=True):
    """Of one member. ``sign``: makes an Ed25519 signature with the key whose public half is in the member's record.
    ``keyring``: of the cluster. ``verified_cache``, ``make_seal``: only for simulators, which share the one and leave
    the cipher out of the other."""

    sign: Sign
    keyring: KeyRing
    verified_cache: VerifiedCache | None = None
    make_seal: Callable[[KeyRing, NodeId, int], Seal] = DatagramSeal
