"""Figures of a store at one moment, for status and metrics. No code decides by them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import asdict

from gossipd.core.ids import DeploymentId
from gossipd.store.disk.condition import StoreCondition
from gossipd.store.models.replica import ModelReplica, ReplicaCounters
from gossipd.store.models.warming import Warmth


class ReplicaStatistics(ReplicaCounters, kw_only=True):
    """One model: a copy of its counters, and present values."""

    durable_count: int
    is_published: bool
    uncommitted_bytes: int


class StoreStatistics(Struct, frozen=True):
    condition: StoreCondition
    models: Mapping[DeploymentId, ReplicaStatistics]
    open_files: int
    free_bytes: int
    scrubbed_bytes: int
    oldest_unchecked_age_s: int
    """Age of the oldest check of a published chunk; 0 without published models."""
    warm: tuple[Warmth, ...] = ()
    """Current versions, where they are read into the page cache."""


def replica_statistics(replica: ModelReplica) -> ReplicaStatistics:
    """Without its lock, under which a journal is written: the event loop must not wait for a disk that hangs."""
    sealed = replica.sealed
    return ReplicaStatistics(
        **asdict(replica.counters),
        durable_count=replica.durable.count,
        is_published=replica.is_published,
        uncommitted_bytes=replica.window.byte_count + (0 if sealed is None else sealed.byte_count),
    )
