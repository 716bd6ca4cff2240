"""Frozen figures of a store, for status and metrics. What they mean is written here; nothing decides by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gossipd.core.ids import DeploymentId
from gossipd.store.disk.condition import StoreCondition
from gossipd.store.models.replica import ModelReplica


@dataclass(frozen=True, slots=True)
class ReplicaStatistics:
    """One model. Counters run from the opening of the store; ``held_count`` and what follows are as they are now."""

    held_count: int
    durable_count: int
    chunk_count: int
    is_published: bool
    uncommitted_bytes: int
    written_bytes: int
    local_bytes: int
    """Of ``written_bytes``: copied from another version here."""
    duplicate_bytes: int
    mismatch_count: int
    """Chunks that arrived with wrong bytes."""
    rotten_count: int
    """Chunks that were held and had changed."""
    lost_count: int
    """Chunks that a failed sync took back."""
    rehashed_count: int
    """Chunks hashed again at the opening, because a window was open."""
    commit_count: int


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """The whole store."""

    condition: StoreCondition
    models: Mapping[DeploymentId, ReplicaStatistics]
    open_files: int
    free_bytes: int
    scrubbed_bytes: int
    oldest_unchecked_age_s: int
    """Age of the check of the published chunk that has waited longest; 0 without published models."""


def replica_statistics(replica: ModelReplica) -> ReplicaStatistics:
    """As it is now."""
    with replica.lock:
        counters = replica.counters
        uncommitted = replica.window.byte_count + (replica.sealed.byte_count if replica.sealed else 0)
        return ReplicaStatistics(
            held_count=replica.held.count,
            durable_count=replica.durable.count,
            chunk_count=replica.held.size,
            is_published=replica.is_published,
            uncommitted_bytes=uncommitted,
            written_bytes=counters.written_bytes,
            local_bytes=counters.local_bytes,
            duplicate_bytes=counters.duplicate_bytes,
            mismatch_count=counters.mismatch_count,
            rotten_count=counters.rotten_count,
            lost_count=counters.lost_count,
            rehashed_count=counters.rehashed_count,
            commit_count=counters.commit_count,
        )
