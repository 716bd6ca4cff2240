"""A chunk store in memory, for tests of what reads from a store and delivers to one.

It keeps the promises of ``gossipd.runtime.ports``, as ``test_chunk_ports`` shows, with descriptors of anonymous memory
in place of files. Chunks may lie in several spans, as packed small files do.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from blake3 import blake3

from gossipd.core.ids import ChunkIndex, DeploymentId, Supplier
from gossipd.runtime.ports import DigestMismatchError, NotHeldError, Span


@dataclass
class FakeOpenChunk:
    """A chunk in anonymous memory."""

    spans: Sequence[Span]
    length: int
    closed: list[FakeOpenChunk]

    def close(self) -> None:
        self.closed.append(self)
        for descriptor in {span.descriptor for span in self.spans}:
            os.close(descriptor)


@dataclass
class FakeModel:
    """What a manifest would say: digests and lengths, and the envelope's bytes."""

    digests: Sequence[bytes]
    lengths: Sequence[int]
    envelope: bytes = b"envelope"


@dataclass
class FakeChunkStore:
    """ChunkReader and ChunkWriter over a dict. ``span_bytes`` cuts chunks into spans; ``stored`` lists deliveries,
    ``closed`` what was opened and given back."""

    span_bytes: int | None = None
    models: dict[DeploymentId, FakeModel] = field(default_factory=dict)
    chunks: dict[tuple[DeploymentId, ChunkIndex], bytes] = field(default_factory=dict)
    stored: list[tuple[DeploymentId, ChunkIndex, Supplier]] = field(default_factory=list)
    opened: int = 0
    closed: list[FakeOpenChunk] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add_model(self, deployment: DeploymentId, bodies: Sequence[bytes], *, held: bool) -> None:
        """A model with these chunks, all held or none."""
        digests = [blake3(body).digest() for body in bodies]
        self.models[deployment] = FakeModel(digests, [len(body) for body in bodies])
        if held:
            for chunk, body in enumerate(bodies):
                self.chunks[deployment, chunk] = body

    def open_chunk(self, deployment: DeploymentId, chunk: ChunkIndex) -> FakeOpenChunk:
        model = self._model(deployment)
        if chunk >= len(model.lengths):
            raise NotHeldError(f"chunk {chunk} is past the last, {len(model.lengths) - 1}", code="E_CHUNK_RANGE")
        with self._lock:
            body = self.chunks.get((deployment, chunk))
            self.opened += body is not None
        if body is None:
            raise NotHeldError(f"chunk {chunk} is not held")
        descriptor = os.memfd_create("fake-chunk", os.MFD_CLOEXEC)
        os.write(descriptor, body)
        step = self.span_bytes or len(body)
        spans = [Span(descriptor, at, min(step, len(body) - at)) for at in range(0, len(body), step)]
        return FakeOpenChunk(spans, len(body), self.closed)

    def manifest_bytes(self, deployment: DeploymentId) -> bytes:
        return self._model(deployment).envelope

    def put(
        self, deployment: DeploymentId, chunk: ChunkIndex, body: memoryview, supplier: Supplier, elapsed_s: float
    ) -> bool:
        model = self._model(deployment)
        if blake3(body).digest() != model.digests[chunk]:
            raise DigestMismatchError(f"chunk {chunk} from {supplier!r} does not hash to its digest")
        with self._lock:
            if (deployment, chunk) in self.chunks:
                return False
            self.chunks[deployment, chunk] = bytes(body)
            self.stored.append((deployment, chunk, supplier))
        return True

    def _model(self, deployment: DeploymentId) -> FakeModel:
        model = self.models.get(deployment)
        if model is None:
            raise NotHeldError("no such deployment", code="E_UNKNOWN_MANIFEST")
        return model
