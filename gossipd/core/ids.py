"""The types of ids: of deployments and chunks, and suppliers that are no hosts (storage, this host's own disk).

A node is named by ``membership.member.NodeId`` (16 bytes derived from its public key), a deployment by the BLAKE3-256
hash of its manifest's payload (32 bytes). Sources have no id: a chunk from external storage has the supplier
``SOURCE``, a chunk copied from another version on this host has ``LOCAL``, and
one copied from an equal chunk of the same model ``COPIED``.
"""

from __future__ import annotations

from enum import Enum
from typing import NewType, TypeAlias

from membership.member import NodeId

DeploymentId = NewType("DeploymentId", bytes)
"""BLAKE3-256 of the signed manifest's exact payload bytes; 32 bytes."""

ChunkIndex: TypeAlias = int
"""Position of a chunk in its manifest, from 0."""


class Origin(Enum):
    """The origin of a chunk that did not come from a peer."""

    SOURCE = "source"
    LOCAL = "local"
    COPIED = "copied"


SOURCE = Origin.SOURCE
LOCAL = Origin.LOCAL
COPIED = Origin.COPIED

Supplier: TypeAlias = NodeId | Origin
"""What delivered one chunk: one peer, external storage, or this host's own disk."""


def short(identifier: bytes) -> str:
    """First 12 hex digits, for people; never parsed."""
    return identifier.hex()[:12]
