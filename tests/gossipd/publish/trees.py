"""Trees to publish, and what a manifest of them must say, computed the slow and obvious way."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from blake3 import blake3

from gossipd.identity.keys import SecretKey
from gossipd.manifest.manifest import Manifest, open_manifest
from gossipd.publish.publisher import Published, PublishOrder, publish

KEY = SecretKey(b"publisher's seed of 32 bytes....")
CHUNK = 64 * 1024
TREE = {
    "config.json": 700,
    "model-00001-of-00002.safetensors": 5 * CHUNK,
    "model-00002-of-00002.safetensors": 3 * CHUNK + 17,
    "tokenizer/merges.txt": CHUNK - 1,
    "tokenizer/vocab.json": 40_000,
    "tokenizer/empty": 0,
}


class Unwatched:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.file_count = self.bytes_total = self.bytes_hashed = 0

    def found(self, file_count: int, bytes_total: int) -> None:
        self.file_count, self.bytes_total = file_count, bytes_total

    def hashed(self, count: int) -> None:
        self.bytes_hashed += count


def make_tree(root: Path, sizes: dict[str, int] | None = None) -> Path:
    """Files of these sizes with bytes that are the same every time and differ between files."""
    rng = Random(7)
    for path, size in (TREE if sizes is None else sizes).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(rng.randbytes(size))
    return root


def published(source: Path | str, out: Path, **options: object) -> tuple[Published, Manifest]:
    """Publish and open; ``options`` are PublishOrder's."""
    values: dict[str, object] = {"name": "org/model", "version": 1, "created_s": 1_790_000_000, "chunk_bytes": CHUNK}
    order = PublishOrder(source=os.fspath(source), secret=KEY, out=out, **(values | options))  # type: ignore[arg-type]
    result = publish(order, Unwatched())
    return result, open_manifest(out.read_bytes(), [KEY.public.ed25519])


def check_against(manifest: Manifest, root: Path) -> None:
    """Every chunk's hash, from the bytes that the manifest's own layout names."""
    contents = [(root / entry.path).read_bytes() for entry in manifest.files]
    assert [entry.size for entry in manifest.files] == [len(content) for content in contents]
    for chunk in range(manifest.chunk_count):
        body = b"".join(
            contents[one.file_index][one.offset : one.offset + one.length] for one in manifest.segments(chunk)
        )
        assert len(body) == manifest.chunk_length(chunk)
        assert blake3(body).digest() == manifest.digest(chunk)
