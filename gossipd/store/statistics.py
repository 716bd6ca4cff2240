"""Frozen figures of a store, for status and metrics. No code decides by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gossipd.core.ids import DeploymentId
from gossipd.store.disk.condition import StoreCondition
from gossipd.store.models.replica import ModelReplica


@dataclass(frozen=True, slots=True)
class ReplicaStatistics:
    """One model. Counters start when the store opens; ``held_count`` to ``uncommitted_bytes`` are present values."""

    held_count: int
    durable_count: int
    chunk_count: int
    is_published: bool
    uncommitted_bytes: int
    written_bytes: int
    local_bytes: int
    """Part of ``written_bytes``: copied from another version on this host."""
    duplicate_bytes: int
    mismatch_count: int
    """Chunks that arrived with wrong bytes."""
    rotten_count: int
    """Held chunks whose bytes had changed."""
    lost_count: int
    """Chunks lost by a failed sync."""
    rehashed_count: int
    """Chunks hashed when the model was opened."""
    commit_count: int


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    condition: StoreCondition
    models: Mapping[DeploymentId, ReplicaStatistics]
    open_files: int
    free_bytes: int
    scrubbed_bytes: int
    oldest_unchecked_age_s: int
    """Age of the oldest check of a published chunk; 0 without published models."""


def replica_statistics(replica: ModelReplica) -> ReplicaStatistics:
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
