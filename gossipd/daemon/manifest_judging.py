"""Runs the judging of a manifest in a thread, one large manifest at a time, while the event loop goes on.

What lives here: in which thread, and how many at once. What does not: the rules (``manifest``).

A manifest at its limits takes most of a second of one core and as much memory again as it has. Judging gives way to
other threads, so the loop keeps turning; but several at once would add up, so large ones wait for one another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import trio

from gossipd.core.ids import short
from gossipd.identity.trust import key_id, keys_for, may_sign
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest, open_manifest
from gossipd.runtime.worker_threads import run_blocking

LARGE_BYTES = 1024 * 1024  # a thousand files, or a model of 250 GB in 16 MiB chunks, has less
_one_at_a_time = trio.CapacityLimiter(1)


async def judge_manifest(envelope: bytes, trusted: Collection[bytes]) -> Manifest:
    """As ``open_manifest``, in a worker thread. Raises ManifestError."""
    limiter = _one_at_a_time if len(envelope) > LARGE_BYTES else None
    return await run_blocking(open_manifest, envelope, trusted, limiter=limiter)


async def judge_by_trust(envelope: bytes, trusted: Mapping[bytes, tuple[str, ...]]) -> Manifest:
    """The manifest, if one of these keys has signed it and may sign its name. Raises ManifestError."""
    manifest = await judge_manifest(envelope, trusted)
    if may_sign(trusted[manifest.signer], manifest.name):
        return manifest
    try:
        return await judge_manifest(envelope, keys_for(trusted, manifest.name))
    except ManifestError:
        raise ManifestError(
            f"key={short(key_id(manifest.signer))} is not trusted for the name {manifest.name}", code="E_KEY_NAME"
        ) from None
