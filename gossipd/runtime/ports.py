"""The protocols between adapters: what transfer and sources need of the store.

An adapter never imports another (``tests/test_house.py``); the daemon passes one to the other as one of these.
``tests/contracts`` tests fakes and real ones alike. All methods may block and are thread-safe.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct

from gossipd.core.errors import ExitCode, LocalError, RemoteError
from gossipd.core.ids import ChunkIndex, DeploymentId, Supplier


class NotHeldError(LocalError):
    """The chunk is not verified here (any more). Fault: nobody. Retry: at another holder."""

    code = "E_NOT_HELD"


class DigestMismatchError(RemoteError):
    """Bytes do not match the manifest's digest. Fault: always the supplier, as a chunk never comes from two. State:
    nothing was written. Retry: elsewhere.
    """

    code = "E_DIGEST"


class StoreWriteError(LocalError):
    """The disk refused (full, failing, read-only, out of descriptors); ``code`` says which. Fault: this host. State:
    the chunk is not held. Retry: automatic, when the store takes writes again.
    """

    code = "E_STORE_WRITE"
    exit_code = ExitCode.DISK
    exits_of_codes = MappingProxyType(
        {"E_STORE_HANDLES": ExitCode.OTHER}
        | dict.fromkeys(("E_PATH_KIND", "E_PATH_SYMLINK", "E_VERSION_TAKEN"), ExitCode.USAGE)
    )


class Span(Struct, frozen=True):
    """``length`` bytes at ``offset`` of an open file; the descriptor belongs to the OpenChunk."""

    descriptor: int
    offset: int
    length: int


class OpenChunk(Protocol):
    """A verified chunk, ready for sendfile; small files that are packed together have a span each."""

    @property
    def spans(self) -> Sequence[Span]: ...
    @property
    def length(self) -> int: ...

    def close(self) -> None:
        """Give the descriptors back. They are valid until then, even if the chunk is dropped."""


class ChunkReader(Protocol):
    """The bulk server's view of the store."""

    def open_chunk(self, deployment: DeploymentId, chunk: ChunkIndex) -> OpenChunk:
        """Raises NotHeldError."""

    def manifest_bytes(self, deployment: DeploymentId) -> bytes:
        """The signed envelope, byte for byte. Raises NotHeldError."""


class ChunkWriter(Protocol):
    """The view of the store for fetches and source reads."""

    def put(
        self, deployment: DeploymentId, chunk: ChunkIndex, body: memoryview, supplier: Supplier, elapsed_s: float
    ) -> bool:
        """Check the whole chunk against the manifest, then write it; False for a duplicate. ``body`` is free on return.
        Raises DigestMismatchError, StoreWriteError, NotHeldError (the deployment is not open here).
        """
