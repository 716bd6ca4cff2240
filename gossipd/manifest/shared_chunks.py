"""What of a manifest hosts need not fetch: chunks that are equal to one another, and those of their other models.

What lives here: counting, by manifests alone. What does not: copying (``store.models.reuse``), and which hosts have
which models whole (``daemon.deploy_plan``).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from msgspec import Struct

from gossipd.manifest.manifest import Manifest

Host = TypeVar("Host", bound=Hashable)


class SharedChunks(Struct, Generic[Host], frozen=True):
    """``distinct_bytes``: of the manifest, equal chunks counted once. Of these ``by_host``: what each host can copy
    from models that it has; ``somewhere_bytes``: what some host can."""

    distinct_bytes: int
    somewhere_bytes: int
    by_host: Mapping[Host, int]


def shared_chunks(manifest: Manifest, others: Iterable[tuple[Manifest, Collection[Host]]]) -> SharedChunks[Host]:
    """``others``: models, each with the hosts that have it whole. Takes some tenths of a second for a million chunks:
    not for the event loop."""
    lengths = {manifest.digest(chunk): manifest.chunk_length(chunk) for chunk in range(manifest.chunk_count)}
    shared: list[set[bytes]] = []
    had: dict[Host, list[int]] = {}
    for other, hosts in others:
        digests = {other.digest(chunk) for chunk in range(other.chunk_count)} & lengths.keys()
        for host in hosts if digests else ():
            had.setdefault(host, []).append(len(shared))
        shared.append(digests)
    bytes_of: dict[tuple[int, ...], int] = {}  # most hosts have the same models
    for models in map(tuple, had.values()):
        if models not in bytes_of:
            bytes_of[models] = _bytes(lengths, [shared[model] for model in models])
    everywhere = sorted({model for models in had.values() for model in models})
    return SharedChunks(
        sum(lengths.values()), _bytes(lengths, [shared[model] for model in everywhere]),
        {host: bytes_of[tuple(models)] for host, models in had.items()},
    )  # fmt: skip


def _bytes(lengths: Mapping[bytes, int], sets: list[set[bytes]]) -> int:
    return sum(lengths[digest] for digest in set[bytes]().union(*sets))
