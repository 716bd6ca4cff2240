"""The mutable set of chunk indexes is a set, and its bytes may come from anywhere."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gossipd.core.bits import Bits
from gossipd.core.chunkset import ChunkSet

SIZES = st.integers(0, 70)


@given(SIZES, st.data())
def test_it_adds_and_removes_like_a_set(size: int, data: st.DataObject) -> None:
    some = st.lists(st.integers(0, size - 1)) if size else st.just([])
    added, removed = data.draw(some), data.draw(some)
    bits = Bits(size, added)
    bits.difference_update(removed)
    expected = set(added) - set(removed)
    assert list(bits) == sorted(expected)
    assert len(bits) == len(expected)
    assert all((index in bits) == (index in expected) for index in range(size))
    assert set(bits.snapshot()) == expected


@given(SIZES, st.binary(max_size=12))
def test_bytes_past_the_size_name_nothing_and_bytes_that_lack_are_zeros(size: int, raw: bytes) -> None:
    bits = Bits.of_raw(size, raw)
    expected = [index for index in range(min(size, 8 * len(raw))) if raw[index >> 3] >> (index & 7) & 1]
    assert list(bits) == expected
    assert bits.count == len(expected)
    assert len(bits.raw) == (size + 7) // 8


@given(st.integers(1, 70), st.data())
def test_each_change_tells_whether_it_changed_anything(size: int, data: st.DataObject) -> None:
    begun = data.draw(st.sets(st.integers(0, size - 1)))
    ours, theirs = Bits.of(ChunkSet.of(size, begun)), set(begun)
    for chunk, is_added in data.draw(st.lists(st.tuples(st.integers(0, size - 1), st.booleans()))):
        if is_added:
            assert ours.add(chunk) == (chunk not in theirs)
            theirs.add(chunk)
        else:
            assert ours.discard(chunk) == (chunk in theirs)
            theirs.discard(chunk)
        assert len(ours) == len(theirs)
    assert ours.snapshot() == ChunkSet.of(size, theirs)
