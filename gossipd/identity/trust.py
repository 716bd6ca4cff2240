"""Which public keys may sign for something: their short names, and keys that must never be trusted.

What lives here: the id of a key, and the refusal of degenerate ones. What does not: reading key files, and the
configured list of trusted keys, which arrives here as a plain collection of 32-byte Ed25519 keys.

A key may be trusted for some names only: its patterns, where ``*`` stands for any characters, ``/`` too.

A key's id is the same 16 bytes that name a node (BLAKE2b of the key), so that logs show one kind of name. Thresholds,
delegation and revocation need a root role, which a later version can add as a document of its own type in the same
envelope.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

from membership.member import NODE_ID_BYTES, node_id

KEY_ID_BYTES = NODE_ID_BYTES

_P = 2**255 - 19
# Ordinates of the eight points of small order on Curve25519's Edwards form: of order 1, 2, 4 and 8 (RFC 7748's
# list, converted; `test_trust.py` proves each by multiplying it by eight). Under such a "public key" any party
# can make signatures that verify, and OpenSSL does not refuse them.
_SMALL_ORDER_Y = (
    1,
    _P - 1,
    0,
    2707385501144840649318225287225658788936804267575313519463743609750303402022,
    _P - 2707385501144840649318225287225658788936804267575313519463743609750303402022,
)


def key_id(public_ed25519: bytes) -> bytes:
    """16 bytes that name a key in envelopes, logs and status."""
    return node_id(public_ed25519)


def is_degenerate(public_ed25519: bytes) -> bool:
    """True for keys of the wrong length, of small order, or whose ordinate is not reduced."""
    if len(public_ed25519) != 32:
        return True
    ordinate = int.from_bytes(public_ed25519, "little") & (2**255 - 1)
    return ordinate >= _P or ordinate in _SMALL_ORDER_Y


def keys_by_id(trusted: Collection[bytes]) -> dict[bytes, bytes]:
    """Key id -> key, without degenerate keys: a degenerate key is treated as unknown."""
    return {key_id(key): key for key in trusted if not is_degenerate(key)}


def may_sign(patterns: Collection[str], name: str) -> bool:
    """Whether a key that is trusted for these patterns may sign a model of that name."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def keys_for(trusted: Mapping[bytes, Collection[str]], name: str) -> frozenset[bytes]:
    """The keys that may sign a model of that name."""
    return frozenset(key for key, patterns in trusted.items() if may_sign(patterns, name))
