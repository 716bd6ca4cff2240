"""What hosts need not fetch, counted by manifests alone."""

from __future__ import annotations

from gossipd.manifest.manifest import Manifest
from gossipd.manifest.shared_chunks import shared_chunks
from tests.gossipd.manifest.making import CHUNK, manifest

A, B, C, D = (bytes([number]) * 32 for number in range(4))
NEW = manifest((4 * CHUNK,), digests=A + B + A + C)
ONE, TWO = b"1" * 16, b"2" * 16


def test_equal_chunks_of_one_manifest_count_once() -> None:
    found = shared_chunks(NEW, list[tuple[Manifest, list[bytes]]]())
    assert (found.distinct_bytes, found.somewhere_bytes, dict(found.by_host)) == (3 * CHUNK, 0, {})


def test_a_chunk_that_two_models_of_a_host_have_counts_once() -> None:
    older, other = manifest((2 * CHUNK,), digests=A + B), manifest((3 * CHUNK,), digests=B + D + B)
    found = shared_chunks(NEW, [(older, [ONE]), (other, [ONE, TWO])])
    assert dict(found.by_host) == {ONE: 2 * CHUNK, TWO: CHUNK}
    assert found.somewhere_bytes == 2 * CHUNK


def test_models_that_nobody_has_or_that_share_nothing_save_nothing() -> None:
    found = shared_chunks(NEW, [(manifest((CHUNK,), digests=A), []), (manifest((CHUNK,), digests=D), [ONE])])
    assert (found.somewhere_bytes, dict(found.by_host)) == (0, {})
