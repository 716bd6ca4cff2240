"""Names of members (grows with the package; see the membership README section)."""

from __future__ import annotations

from hashlib import blake2b
from typing import NewType

NodeId = NewType("NodeId", bytes)
"""First 16 bytes of BLAKE2b over the node's Ed25519 public key: who it is, whatever its name or address."""

NODE_ID_BYTES = 16


def node_id(public_key: bytes) -> NodeId:
    """The id of the node that holds the private half of ``public_key`` (32 bytes, Ed25519)."""
    return NodeId(blake2b(public_key, digest_size=NODE_ID_BYTES).digest())
