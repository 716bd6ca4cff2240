"""Which chunks of a manifest are equal, and which are copied instead of fetched."""

from __future__ import annotations

from gossipd.core.chunkset import ChunkSet
from gossipd.manifest.equal_chunks import equal_chunks, later_copies
from tests.gossipd.manifest.making import CHUNK, manifest

A, B, C = (bytes([number]) * 32 for number in range(3))
ONE = manifest((5 * CHUNK,), digests=A + B + A + C + A)


def test_equal_chunks_are_grouped_and_others_are_not_named() -> None:
    assert equal_chunks(ONE) == dict.fromkeys((0, 2, 4), (0, 2, 4))
    assert equal_chunks(manifest((3 * CHUNK,))) == {}


def test_the_later_ones_wait_for_the_first_unless_one_is_here() -> None:
    assert list(later_copies(ONE, ChunkSet(5))) == [2, 4]
    assert list(later_copies(ONE, ChunkSet.of(5, [1]))) == [2, 4]
    assert list(later_copies(ONE, ChunkSet.of(5, [2]))) == [], "it is copied when the store opens, or wanted"


def test_a_model_of_zeros_is_grouped_in_one_pass() -> None:
    """As states of an optimiser are at first. What compares whole groups for each chunk takes minutes here."""
    count = 200_000
    zeros = manifest((count * CHUNK,), digests=A * count)
    assert len(later_copies(zeros, ChunkSet(count))) == count - 1
    assert len(later_copies(zeros, ChunkSet.of(count, [count - 1]))) == 0
