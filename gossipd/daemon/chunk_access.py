"""The store as the bulk server reads it and as sources write to it, with counts of what was uploaded.

What lives here: ``ChunkAccess``, which finds manifests of deployments that the store has not opened (a host outside the
targets passes them on too) and counts what is uploaded of which deployment, and how far; ``SourceWriter``, which turns
a chunk that storage delivered twice into the event that the planner waits for. What does not: bytes.
"""

from __future__ import annotations

import threading
from collections import Counter

from msgspec import Struct

from gossipd.core.events import FailReason, SourceReadFailed
from gossipd.core.ids import ChunkIndex, DeploymentId, Supplier
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.daemon.planner_driver import PlannerDriver
from gossipd.daemon.state_dir import StateDirectory
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.runtime.ports import NotHeldError, OpenChunk
from gossipd.store.chunk_store import ChunkStore
from membership.member import NodeId

# A peer that heard of a deployment from us asks us for the manifest, and we may still be pulling it. The peer asks
# another host when we do not have it by then. Less than the 0.9 s that a closing server gives its threads.
MANIFEST_WAIT_S = 0.8


class ChunkAccess:
    """A ``ChunkReader``. Thread-safe."""

    def __init__(
        self, store: ChunkStore, state: StateDirectory, directory: MemberDirectory, lifecycle: DeploymentTable
    ) -> None:
        self.store = store
        self.state = state
        self.directory = directory
        self.lifecycle = lifecycle
        self._lock: threading.Lock = threading.Lock()
        self._uploaded: Counter[DeploymentId] = Counter()
        self._sent: dict[DeploymentId, Counter[str]] = {}

    def open_chunk(self, deployment: DeploymentId, chunk: ChunkIndex) -> OpenChunk:
        """See ChunkReader."""
        if not self.lifecycle.is_served(deployment):
            raise NotHeldError(f"{deployment.hex()} is not served here")
        opened = self.store.open_chunk(deployment, chunk)
        with self._lock:
            self._uploaded[deployment] += opened.length
        return opened

    def manifest_bytes(self, deployment: DeploymentId) -> bytes:
        """See ChunkReader. Waits a moment for one that is on its way here."""
        is_coming = self.lifecycle.is_coming
        envelope = self.state.envelope_soon(deployment, is_coming=is_coming, timeout_s=MANIFEST_WAIT_S)
        if envelope is None:
            raise NotHeldError(f"no manifest of {deployment.hex()} here", code="E_UNKNOWN_MANIFEST")
        return envelope

    def sent(self, node: NodeId, deployment: DeploymentId, length: int) -> None:
        """A whole chunk has gone out to ``node``."""
        scope = "rack" if self.directory.is_rack_peer(node) else "far"
        with self._lock:
            self._sent.setdefault(deployment, Counter())[scope] += length

    def sent_bytes(self, deployment: DeploymentId) -> dict[str, int]:
        """Bytes of whole chunks sent since start, by ``rack`` and ``far``."""
        with self._lock:
            return dict(self._sent.get(deployment, ()))

    def take_uploaded(self) -> dict[DeploymentId, int]:
        """Bytes begun to be uploaded since the last call."""
        with self._lock:
            uploaded, self._uploaded = self._uploaded, Counter()
        return dict(uploaded)


class SourceWriter(Struct, frozen=True, eq=False):
    """A ``ChunkWriter`` for source reads: a chunk that was here already ends its read as cancelled."""

    store: ChunkStore
    driver: PlannerDriver

    def put(
        self, deployment: DeploymentId, chunk: ChunkIndex, body: memoryview, supplier: Supplier, elapsed_s: float
    ) -> bool:
        """See ChunkWriter."""
        is_new = self.store.put(deployment, chunk, body, supplier, elapsed_s)
        if not is_new:
            self.driver.post(SourceReadFailed(deployment, (chunk,), FailReason.CANCELLED))
        return is_new
