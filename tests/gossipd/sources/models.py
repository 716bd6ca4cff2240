"""Small signed models in memory, and a store that keeps what it is given."""

from __future__ import annotations

import os
import threading
from random import Random

from blake3 import blake3

from gossipd.core.ids import SOURCE, ChunkIndex, DeploymentId, Supplier
from gossipd.identity.keys import SecretKey
from gossipd.manifest.chunk_layout import Layout
from gossipd.manifest.manifest import FileEntry, Manifest, ManifestDraft, open_manifest, seal_manifest
from gossipd.runtime.ports import DigestMismatchError, StoreWriteError

CHUNK_BYTES = 64 * 1024
KEY = SecretKey(bytes(32))


def sign(files: dict[str, bytes], *sources: str, chunk_bytes: int = CHUNK_BYTES, version: int = 1) -> Manifest:
    """A manifest over ``files`` that says they are at ``sources``."""
    entries = tuple(FileEntry(path, len(files[path]), 0o644) for path in sorted(files))
    layout = Layout([entry.size for entry in entries], chunk_bytes)
    digests = b""
    for chunk in range(layout.chunk_count):
        digests += blake3(chunk_bytes_of(files, entries, layout, chunk)).digest()
    return seal(entries, chunk_bytes, digests, *sources, version=version)


def seal(entries: tuple[FileEntry, ...], chunk_bytes: int, digests: bytes, *sources: str, version: int = 1) -> Manifest:
    """Signed by the tests' publisher, and opened again."""
    draft = ManifestDraft("toy", version, 1_700_000_000, entries, chunk_bytes, digests, sources)
    return open_manifest(seal_manifest(draft, KEY), [KEY.public.ed25519])


def chunk_bytes_of(files: dict[str, bytes], entries: tuple[FileEntry, ...], layout: Layout, chunk: int) -> bytes:
    return b"".join(
        files[entries[piece.file_index].path][piece.offset : piece.offset + piece.length]
        for piece in layout.segments(chunk)
    )


def toy_files(rng: Random, *, shard_bytes: int = 5 * CHUNK_BYTES + 1000) -> dict[str, bytes]:
    """Two files of several chunks, three small ones packed together, and an empty one."""
    return {
        "a.safetensors": rng.randbytes(shard_bytes),
        "b.safetensors": rng.randbytes(3 * CHUNK_BYTES),
        "config.json": rng.randbytes(700),
        "nested/tokenizer.json": rng.randbytes(CHUNK_BYTES - 300),
        "vocab with space.txt": rng.randbytes(100),
        "empty": b"",
    }


class MemoryStore:
    """A ChunkWriter that checks and keeps; ``full`` makes it refuse like a full disk."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.chunks: dict[ChunkIndex, bytes] = {}
        self.full = False
        self.mismatches = 0
        self._lock = threading.Lock()

    def put(
        self, deployment: DeploymentId, chunk: ChunkIndex, body: memoryview, supplier: Supplier, elapsed_s: float
    ) -> bool:
        assert deployment == self.manifest.id
        assert supplier is SOURCE
        assert elapsed_s >= 0
        assert len(body) == self.manifest.chunk_length(chunk)
        if blake3(body).digest() != self.manifest.digest(chunk):
            self.mismatches += 1
            raise DigestMismatchError(f"chunk {chunk}")
        if self.full:
            raise StoreWriteError("the disk is full", code="E_NO_SPACE")
        with self._lock:
            assert chunk not in self.chunks, "read twice"
            self.chunks[chunk] = bytes(body)
        return True


def write_tree(files: dict[str, bytes], root: str | os.PathLike[str]) -> None:
    for path, body in files.items():
        target = os.path.join(root, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(body)
