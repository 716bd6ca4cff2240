"""Deleting versions to make room, and what keeps one from it.

What lives here: how lately each version was used, what keeps it, and one eviction. What does not: which are evicted and
when (``deployment.eviction_plan``; for ``keep_versions``, ``publishing``), and how a tree is deleted.

A version is kept while it is pinned, while a process holds its directory (``client.holding``), or while a file of it is
open or mapped by anybody. What this store reads of it itself, for a peer, is open too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from gossipd.core.ids import DeploymentId
from gossipd.store.disk.disk import opened
from gossipd.store.models import publishing
from gossipd.store.models.catalogue import StoredModel, list_models
from gossipd.store.models.context import Context
from gossipd.store.models.pins import Pins
from gossipd.store.models.replica import ModelReplica
from gossipd.store.notices import KEEP_VERSIONS, ModelEvicted

PINNED, HELD, OPEN, GONE = "pinned", "held", "open", "gone"
_FILES_ASKED_MAX = 64  # when they were last read; a job that loads a model reads all


@dataclass(frozen=True, slots=True)
class ModelUse:
    """One complete version. ``kept``: what keeps it, a word, or empty."""

    deployment: DeploymentId
    name: str
    version: int
    byte_count: int
    last_used_s: float
    is_current: bool
    kept: str


class ModelRemover(Protocol):
    """What the table of models does for an eviction."""

    def published(self) -> list[ModelReplica]:
        """Open models whose trees are in place."""

    def remove_evicted(self, model: StoredModel) -> bool:
        """Delete it. False when the store is being closed."""


class Evictions:
    """One per store. Blocking; thread-safe."""

    def __init__(
        self, context: Context, pins: Pins, models: ModelRemover, before_evict: Callable[[ModelEvicted], None]
    ) -> None:  # fmt: skip
        """``before_evict``: see ``ChunkStore``."""
        self._context = context
        self._disk = context.disk
        self._pins = pins
        self._models = models
        self._before_evict = before_evict

    def uses(self) -> list[ModelUse]:
        """Every complete version, in no order. Looks at every file."""
        return [self._use(replica) for replica in self._models.published()]

    def _use(self, replica: ModelReplica) -> ModelUse:
        manifest = replica.manifest
        last_used_s = float(replica.published_s or 0)
        for file_index in islice(replica.placement.files(), _FILES_ASKED_MAX):
            with suppress(OSError), opened(self._disk, replica.path(file_index)) as descriptor:
                last_used_s = max(last_used_s, self._disk.last_read_s(descriptor))
        is_current = publishing.is_current(self._disk, manifest.name, manifest.version)
        kept = PINNED if self._is_pinned(manifest.name, manifest.version) else self._in_use(replica)
        return ModelUse(
            replica.deployment, manifest.name, manifest.version, manifest.bytes_total, last_used_s, is_current, kept
        )

    def _is_pinned(self, name: str, version: int) -> bool:
        is_current = publishing.is_current(self._disk, name, version)
        return self._pins.is_pinned(name, version, is_current=is_current)

    def _in_use(self, replica: ModelReplica) -> str:
        try:
            lock = self._disk.lock_directory(replica.place)
        except FileNotFoundError:
            return GONE
        if lock is None:
            return HELD
        self._disk.close(lock)
        return OPEN if self._is_open(replica) else ""

    def _is_open(self, replica: ModelReplica) -> bool:
        self._context.handles.detach(replica.deployment)  # our own that are idle
        for file_index in replica.placement.files():
            with suppress(FileNotFoundError), opened(self._disk, replica.path(file_index)) as descriptor:
                if self._disk.is_open_elsewhere(descriptor):
                    return True
        return False

    def evict(self, deployment: DeploymentId, cause: str) -> str:
        """Delete a complete version that nothing keeps. Returns what keeps it, or an empty word. Raises OSError."""
        replica = next((one for one in self._models.published() if one.deployment == deployment), None)
        if replica is None:
            return GONE
        name, version = replica.manifest.name, replica.manifest.version
        if not self._is_pinned(name, version) and self._is_open(replica):
            return OPEN
        return self._evict(StoredModel(deployment, name, version, is_published=True, place=replica.place), cause)

    def evict_surplus(self, name: str, version: int) -> None:
        """What ``keep_versions`` does not cover; the next version that is complete looks again at what is kept."""
        known = [] if self._context.stopping.is_set() else list_models(self._disk)
        for model in known:
            if (model.name, model.version, model.is_published) == (name, version, True):
                self._evict(model, KEEP_VERSIONS)

    def _evict(self, model: StoredModel, cause: str) -> str:
        if self._is_pinned(model.name, model.version):
            return PINNED
        lock = None
        try:
            lock = self._disk.lock_directory(model.place)
        except FileNotFoundError:  # removed meanwhile
            return GONE
        if lock is None:
            return HELD
        try:
            evicted = ModelEvicted(model.deployment, model.name, model.version, cause)
            self._before_evict(evicted)
            if self._models.remove_evicted(model):
                self._context.emit(evicted)
                return ""
            return GONE
        finally:
            self._disk.close(lock)
