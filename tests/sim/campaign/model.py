"""Models small enough for fifty copies of everything: real signed manifests whose chunks have 64 bytes.

What lives here: making them. What does not: any use. The format's least chunk is 64 KiB, which would cost the
simulation 400 MB and half its time for bytes that decide nothing, so the bound is lowered while the manifest is made.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from random import Random
from typing import Any
from unittest import mock

from blake3 import blake3

from gossipd.core.ids import DeploymentId
from gossipd.deployment import events
from gossipd.identity.keys import SecretKey
from gossipd.manifest import chunk_layout
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import (
    FileEntry,
    Manifest,
    ManifestDraft,
    deployment_id,
    open_manifest,
    seal_manifest,
)

CHUNK_BYTES = 64
_PUBLISHER = SecretKey(b"the campaign's publisher, 32 b..")


@dataclass(frozen=True)
class Model:
    """A manifest and the right bytes of its chunks."""

    manifest: Manifest
    chunks: tuple[bytes, ...]

    @property
    def path(self) -> str:
        """Its one file."""
        return self.manifest.files[0].path


def make_model(
    random: Random, *, version: int, chunk_count: int, shared: tuple[bytes, ...] = (), name: str = "org/model",
    **fields: Any,
) -> Model:  # fmt: skip
    """A model of one file; it begins with the ``shared`` chunks of an earlier version."""
    chunks = (*shared, *(random.randbytes(CHUNK_BYTES) for _ in range(chunk_count - len(shared))))
    draft = ManifestDraft(
        name=name,
        version=version,
        created_s=1,
        files=(FileEntry("weights.bin", chunk_count * CHUNK_BYTES, 0o644),),
        chunk_bytes=CHUNK_BYTES,
        digests=b"".join(blake3(chunk).digest() for chunk in chunks),
        sources=("https://storage.example/model/",),
        **fields,
    )
    with mock.patch.object(chunk_layout, "CHUNK_BYTES_MIN", CHUNK_BYTES):
        manifest = open_manifest(seal_manifest(draft, _PUBLISHER), [_PUBLISHER.public.ed25519])
    _OPENED[manifest.envelope] = manifest
    return Model(manifest, chunks)


_OPENED: dict[bytes, Manifest] = {}
"""Manifests by envelope: one value serves all hosts of all runs, as verifying it again would find the same."""


def opened(
    work: int, envelope: bytes, announced: DeploymentId | None
) -> events.ManifestOpened | events.ManifestRefused:
    """As a worker thread verifies it."""
    manifest = _OPENED.get(envelope)
    if manifest is not None:
        return events.ManifestOpened(work, manifest)
    with mock.patch.object(chunk_layout, "CHUNK_BYTES_MIN", CHUNK_BYTES):
        try:
            return events.ManifestOpened(work, open_manifest(envelope, [_PUBLISHER.public.ed25519]))
        except ManifestError as error:
            is_as_announced = False
            with contextlib.suppress(ManifestError):
                is_as_announced = deployment_id(envelope) == announced
            return events.ManifestRefused(work, error, is_as_announced)
