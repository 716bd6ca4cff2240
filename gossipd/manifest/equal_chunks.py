"""Chunks of one manifest with equal bytes: which others each one is equal to.

What lives here: a function of a manifest. What does not: copying (``store.models.reuse``), and who waits for whom
(``swarm.deployment_swarm``).
"""

from __future__ import annotations

from gossipd.core.bits import Bits
from gossipd.core.chunkset import ChunkSet
from gossipd.manifest.manifest import Manifest


def equal_chunks(manifest: Manifest) -> dict[int, tuple[int, ...]]:
    """For each chunk that has an equal one: all chunks with its digest, itself among them and lowest first."""
    return {chunk: group for group in _groups(manifest) for chunk in group}


def later_copies(manifest: Manifest, held: ChunkSet) -> ChunkSet:
    """Chunks that this host copies once the first that is equal to them has come; none of them is held now."""
    here = Bits.of(held)  # a look costs the same however many chunks there are
    waiting = [group for group in _groups(manifest) if not any(chunk in here for chunk in group)]
    return ChunkSet.of(manifest.chunk_count, [chunk for group in waiting for chunk in group[1:]])


def _groups(manifest: Manifest) -> list[tuple[int, ...]]:
    by_digest: dict[bytes, list[int]] = {}
    for chunk in range(manifest.chunk_count):
        by_digest.setdefault(manifest.digest(chunk), []).append(chunk)
    return [tuple(group) for group in by_digest.values() if len(group) > 1]
