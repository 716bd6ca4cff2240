"""Sketches: which share of each bin of a model is held."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipd.core.chunkset import ChunkSet
from gossipd.core.sketch import BINS, FINE_BINS, NOTHING_WANTED, SHARE_MAX, sketch


def counted(held: ChunkSet, wanted: ChunkSet, bins_max: int = BINS) -> bytes:
    """The same, chunk by chunk."""
    found, size = [], held.size
    bins = min(bins_max, size)
    for number in range(bins):
        chunks = range(number * size // bins, (number + 1) * size // bins)
        want = [chunk for chunk in chunks if chunk in wanted]
        have = [chunk for chunk in want if chunk in held]
        share = SHARE_MAX * len(have) // max(1, len(want))
        found.append(NOTHING_WANTED if not want else max(1, share) if have else 0)
    return bytes(found)


@given(st.integers(1, 700), st.data())
def test_each_bin_tells_the_share_of_its_chunks(size: int, data: st.DataObject) -> None:
    some = st.integers(0, (1 << size) - 1)
    held, wanted = ChunkSet(size, data.draw(some)), ChunkSet(size, data.draw(some))
    assert sketch(held, wanted) == counted(held, wanted)
    assert sketch(held, wanted, FINE_BINS) == counted(held, wanted, FINE_BINS)


@pytest.mark.parametrize("size", [1, 63, 64, 65, 1_000_000])
def test_all_none_and_one_missing_are_told_apart(size: int) -> None:
    full, none = ChunkSet.full(size), ChunkSet(size)
    bins = min(BINS, size)
    assert sketch(full, full) == bytes([SHARE_MAX]) * bins
    assert sketch(none, full) == bytes(bins)
    assert sketch(full, none) == bytes([NOTHING_WANTED]) * bins
    assert sketch(full - ChunkSet.of(size, [size - 1]), full)[-1] < SHARE_MAX
    assert sketch(ChunkSet.of(size, [0]), full)[0] > 0
