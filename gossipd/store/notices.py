"""The store's events besides chunks: its condition, and what it did with whole models."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from gossipd.core.events import ChunkLost, ChunkStored
from gossipd.core.ids import DeploymentId
from gossipd.store.disk.condition import StoreCondition

KEEP_VERSIONS = "keep_versions"


class StoreConditionChanged(Struct, frozen=True):
    """The disk began or ceased to refuse writes. Fetching stops and resumes with it."""

    condition: StoreCondition


class DiskSlowChanged(Struct, frozen=True):
    """Writes began to wait for the disk for seconds, or end again: that explains why no chunk is stored."""

    is_slow: bool


class SpaceFreed(Struct, frozen=True):
    """A model that was refused with NoSpaceError would fit now: open it again."""

    deployment: DeploymentId


class ModelEvicted(Struct, frozen=True):
    """A version was deleted to make room: it must not be fetched again."""

    deployment: DeploymentId
    name: str
    version: int
    cause: str = KEEP_VERSIONS
    """``keep_versions``, ``watermark`` or ``prune``."""


StoreEvent: TypeAlias = ChunkStored | ChunkLost | StoreConditionChanged | DiskSlowChanged | SpaceFreed | ModelEvicted
Emit: TypeAlias = Callable[[StoreEvent], None]
"""Called in worker threads without a lock of the store; must not block."""
