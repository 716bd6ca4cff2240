"""Deleting versions to make room, and what keeps one from it.

What lives here: how lately each version was used, what keeps it, and one eviction. What does not: which are evicted and
when (``deployment.eviction_plan``; for ``keep_versions``, ``current_link``; for signed keeps,
``deployment.supersession``), and how a tree is deleted.

A version is kept while it is pinned, while a process holds its directory (``client.holding``), or while a file of it is
open or mapped by anybody. What this store reads of it itself, for a peer, is open too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Protocol

from msgspec import Struct

from gossipd.core.errors import NotFoundError
from gossipd.core.ids import DeploymentId
from gossipd.store.disk.disk import opened
from gossipd.store.errors import StoreClosingError, VersionHeldError
from gossipd.store.models import current_link
from gossipd.store.models.catalogue import StoredModel, list_models
from gossipd.store.models.context import Context
from gossipd.store.models.pins import Pins
from gossipd.store.models.replica import ModelReplica
from gossipd.store.notices import KEEP_VERSIONS, ModelEvicted

PINNED, HELD, OPEN, GONE = "pinned", "held", "open", "gone"
_FILES_ASKED_MAX = 64  # when they were last read; a job that loads a model reads all


class ModelUse(Struct, frozen=True):
    """One complete version. ``kept``: what keeps it, a word, or empty."""

    deployment: DeploymentId
    name: str
    version: int
    byte_count: int
    last_used_s: float
    is_current: bool
    kept: str

    @property
    def words(self) -> str:
        """Who would miss it: ``current leads to it, a job holds it``; empty when nobody would."""
        told = {PINNED: "it is pinned", HELD: "a job holds it", OPEN: "a program has files of it open"}
        return ", ".join(filter(None, ["current leads to it" if self.is_current else "", told.get(self.kept, "")]))


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
        return ModelUse(
            replica.deployment, manifest.name, manifest.version, manifest.bytes_total, last_used_s,
            current_link.is_current(self._disk, manifest.name, manifest.version), self._what_keeps(replica),
        )  # fmt: skip

    def _what_keeps(self, replica: ModelReplica) -> str:
        with self._unheld(_stored(replica)) as kept:
            return kept or (OPEN if self._is_open(replica) else "")

    def _is_pinned(self, name: str, version: int) -> bool:
        is_current = current_link.is_current(self._disk, name, version)
        return self._pins.is_pinned(name, version, is_current=is_current)

    @contextmanager
    def _unheld(self, model: StoredModel) -> Iterator[str]:
        """What keeps the version, or an empty word; then nobody takes hold of it inside the context."""
        if self._is_pinned(model.name, model.version):
            yield PINNED
            return
        try:
            lock = self._disk.lock_directory(model.place)
        except FileNotFoundError:  # removed meanwhile
            yield GONE
            return
        if lock is None:
            yield HELD
            return
        try:
            yield ""
        finally:
            self._disk.close(lock)

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
        return self._what_keeps(replica) or self._evict(_stored(replica), cause)

    def evict_surplus(self, name: str, version: int) -> None:
        """What ``keep_versions`` does not cover; the next version that is complete looks again at what is kept."""
        is_kept = self._context.stopping.is_set() or current_link.is_current(self._disk, name, version)
        known = [] if is_kept else list_models(self._disk)
        for model in known:
            if (model.name, model.version, model.is_published) == (name, version, True):
                self._evict(model, KEEP_VERSIONS)

    def evict_superseded(self, deployment: DeploymentId) -> None:
        """See ``ChunkStore.evict_superseded``, which says what is raised; also OSError. Nobody is told: it was ordered
        by the deployment brain, which remembers it.
        """
        found = [one for one in list_models(self._disk) if one.deployment == deployment and one.is_published]
        if not found:
            raise NotFoundError(f"{deployment.hex()} is not complete in this store")
        [model] = found
        label = f"{model.name}@{model.version}"
        if current_link.is_current(self._disk, model.name, model.version):
            raise VersionHeldError(f"{label} is the current version")
        with self._unheld(model) as kept:
            if kept == GONE:
                raise NotFoundError(f"{label} was removed meanwhile")
            if kept:
                raise VersionHeldError(f"{label} is pinned" if kept == PINNED else f"a job holds {label}")
            if not self._models.remove_evicted(model):
                raise StoreClosingError("the store is being closed")

    def _evict(self, model: StoredModel, cause: str) -> str:
        with self._unheld(model) as kept:
            if kept:
                return kept
            evicted = ModelEvicted(model.deployment, model.name, model.version, cause)
            self._before_evict(evicted)
            if not self._models.remove_evicted(model):
                return GONE
            self._context.emit(evicted)
            return ""


def _stored(replica: ModelReplica) -> StoredModel:
    name, version = replica.manifest.name, replica.manifest.version
    return StoredModel(replica.deployment, name, version, is_published=True, place=replica.place)
