"""Manifests for tests: small drafts, payloads that no publisher would write, and both signed."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgpack
from blake3 import blake3

from gossipd.identity.keys import SecretKey
from gossipd.manifest.chunk_layout import Layout
from gossipd.manifest.envelope import seal
from gossipd.manifest.manifest import (
    ENVELOPE_TYPE,
    FileEntry,
    Manifest,
    ManifestDraft,
    open_manifest,
    seal_manifest,
)
from gossipd.manifest.payload import root_hash

CHUNK = 64 * 1024
PUBLISHER = SecretKey(b"publisher's seed of 32 bytes....")
STRANGER = SecretKey(b"a stranger's seed of 32 bytes...")
TRUSTED = [PUBLISHER.public.ed25519]


def fake_digests(count: int, salt: bytes = b"") -> bytes:
    """As many hashes as asked for, all different, the same every time."""
    return b"".join(blake3(salt + index.to_bytes(4, "little")).digest() for index in range(count))


def draft(
    sizes: Sequence[int] = (3 * CHUNK + 5, 100, 0), *, chunk_bytes: int = CHUNK, salt: bytes = b"", **fields: Any
) -> ManifestDraft:
    """A model of files of these sizes, with invented hashes."""
    files = tuple(FileEntry(f"file-{index:03d}.bin", size, 0o644) for index, size in enumerate(sizes))
    count = Layout(sizes, chunk_bytes).chunk_count
    values: dict[str, Any] = {
        "name": "org/model",
        "version": 1,
        "created_s": 1_790_000_000,
        "files": files,
        "chunk_bytes": chunk_bytes,
        "digests": fake_digests(count, salt),
        "sources": ("https://storage.example/model/",),
    }
    return ManifestDraft(**(values | fields))


def manifest(sizes: Sequence[int] = (3 * CHUNK + 5, 100, 0), **fields: Any) -> Manifest:
    """The same, signed and opened."""
    return open_manifest(seal_manifest(draft(sizes, **fields), PUBLISHER), TRUSTED)


def payload_fields(**changes: Any) -> dict[str, Any]:
    """The map of a good payload with some fields changed; its root fits unless one is given."""
    fields: dict[str, Any] = {
        "name": "org/model",
        "version": 1,
        "created": 1_790_000_000,
        "expires": None,
        "files": [["a.bin", 2 * CHUNK, 0o644], ["b.txt", 10, 0o644]],
        "chunk": CHUNK,
        "hashes": fake_digests(3),
        "sources": [],
        "racks": [],
        "names": [],
        "priority": 5,
    } | changes
    if "root" not in fields:
        try:
            fields["root"] = root_hash(
                [FileEntry(*one[:3]) for one in fields["files"]], fields["chunk"], fields["hashes"]
            )
        except (TypeError, AttributeError, struct.error):
            fields["root"] = bytes(32)  # the changed fields are wrong in a way that is found before the root is
    return fields


def sealed(payload: bytes, secret: SecretKey = PUBLISHER) -> bytes:
    """Any payload, properly signed."""
    return seal(ENVELOPE_TYPE, payload, [secret])


def sealed_fields(*, schema: int = 1, **changes: Any) -> bytes:
    """A good payload with some fields changed, properly signed."""
    return sealed(bytes([schema]) + msgpack.packb(payload_fields(**changes), use_bin_type=True))
