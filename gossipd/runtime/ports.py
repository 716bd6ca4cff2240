"""The protocols at which hands meet: what transfer and sources need of the store, and of each other.

A hand never imports another hand (``tests/test_house.py``); the daemon passes one to the other as one of
these. Each has one contract suite in ``tests/contracts`` that runs on the fake and on the real thing. All
methods are called from worker threads, may block, and are thread-safe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gossipd.core.errors import LocalError, RemoteError
from gossipd.core.ids import ChunkIndex, DeploymentId, Supplier


class NotHeldError(LocalError):
    """The chunk is not verified here (any more). Fault: nobody. Retry: at another holder."""

    code = "E_NOT_HELD"


class DigestMismatchError(RemoteError):
    """Bytes do not hash to the manifest's digest.

    Fault: the supplier, always: a chunk never comes from two. State: nothing was written. Retry: elsewhere.
    """

    code = "E_DIGEST"


class StoreWriteError(LocalError):
    """The disk refused (full, failing, read-only, out of handles). ``code`` says which.

    Fault: this host. State: the chunk is not held. Retry: by itself, when the store says it is writable again.
    """

    code = "E_STORE_WRITE"


@dataclass(frozen=True, slots=True)
class Span:
    """``length`` bytes at ``offset`` of an open file; the descriptor belongs to the OpenChunk it came in."""

    descriptor: int
    offset: int
    length: int


class OpenChunk(Protocol):
    """A verified chunk, ready for sendfile: several spans where small files are packed together."""

    @property
    def spans(self) -> Sequence[Span]: ...

    @property
    def length(self) -> int: ...

    def close(self) -> None:
        """Gives the descriptors back; they are valid until then, even if the chunk is dropped."""


class ChunkReader(Protocol):
    """What a bulk server reads from."""

    def open_chunk(self, deployment: DeploymentId, chunk: ChunkIndex) -> OpenChunk:
        """Raises NotHeldError."""

    def manifest_bytes(self, deployment: DeploymentId) -> bytes:
        """The signed envelope, byte for byte. Raises NotHeldError."""


class ChunkWriter(Protocol):
    """What fetches and source reads deliver to."""

    def put(
        self, deployment: DeploymentId, chunk: ChunkIndex, body: memoryview, supplier: Supplier, elapsed_s: float
    ) -> bool:
        """Check the whole chunk against the manifest, then write it; False when it was here already.

        ``body`` is free again on return.

        Raises DigestMismatchError, StoreWriteError, NotHeldError (the deployment is not open here).
        """
