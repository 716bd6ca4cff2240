"""Small signed models for the store's tests: real manifests, made and opened by the product's own functions."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from blake3 import blake3

from gossipd.identity.keys import SecretKey
from gossipd.manifest.annotations import Retention
from gossipd.manifest.chunk_layout import Layout
from gossipd.manifest.manifest import FileEntry, Manifest, ManifestDraft, open_manifest, seal_manifest
from gossipd.manifest.payload import Cuts

CHUNK = 64 * 1024  # the smallest that a manifest may have
SECRET = SecretKey(bytes(range(32)))


@dataclass(frozen=True)
class Model:
    """A manifest, the bytes of its chunks in order, and of its files by path."""

    manifest: Manifest
    chunks: tuple[memoryview, ...]
    files: dict[str, bytes]


def build(
    files: dict[str, bytes],
    *,
    name: str = "m",
    version: int = 1,
    chunk: int = CHUNK,
    mode: int = 0o644,
    cuts: Cuts | None = None,
    case_matters: bool = False,
    keep: Retention | None = None,
    about: bytes = b"",
) -> Model:
    """A model of these files. ``cuts``: of each, as in a manifest of schema 2."""
    bodies = list(files.values())
    layout = Layout([len(body) for body in bodies], chunk, cuts)
    chunks = []
    for index in range(layout.chunk_count):
        parts = [bodies[s.file_index][s.offset : s.offset + s.length] for s in layout.segments(index)]
        chunks.append(b"".join(parts))
    draft = ManifestDraft(
        name=name,
        version=version,
        created_s=1,
        files=tuple(FileEntry(path, len(body), mode) for path, body in files.items()),
        chunk_bytes=chunk,
        digests=b"".join(blake3(body).digest() for body in chunks),
        sources=("http://localhost/m/",),
        cuts=cuts,
        case_matters=case_matters,
        keep=keep,
        about=about,
    )
    manifest = open_manifest(seal_manifest(draft, SECRET), [SECRET.public.ed25519])
    return Model(manifest, tuple(memoryview(body) for body in chunks), files)


def small(*, name: str = "m", version: int = 1, seed: int = 1, config: bytes | None = None) -> Model:
    """Six chunks: a file of three, one of two, and small ones packed into a sixth; one file is empty."""
    random = Random(seed)
    files = {
        "shards/one.bin": random.randbytes(2 * CHUNK + 100),
        "config.json": random.randbytes(700),
        "two.bin": random.randbytes(CHUNK + 1),
        "empty": b"",
        "deep/er/tokens.txt": random.randbytes(3000),
    }
    if config is not None:
        files["config.json"] = config
    return build(files, name=name, version=version)
