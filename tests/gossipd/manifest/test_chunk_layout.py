"""Where chunks lie: by examples, and by properties over any sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipd.manifest.chunk_layout import (
    CHUNKS_MAX,
    Layout,
    Segment,
    chunk_bytes_for_link,
    default_chunk_bytes,
    step_chunk_bytes,
)
from gossipd.manifest.errors import ManifestError

C = 64 * 1024
MIB = 1024 * 1024
SIZES = st.lists(st.integers(0, 4 * C) | st.sampled_from([0, 1, C - 1, C, C + 1, 2 * C]), min_size=1, max_size=40)


def test_large_files_begin_chunks_and_small_ones_are_packed_after_them() -> None:
    layout = Layout([10, 2 * C + 1, 0, 20, C], C)
    assert [layout.segments(chunk) for chunk in range(layout.chunk_count)] == [
        (Segment(1, 0, C),),
        (Segment(1, C, C),),
        (Segment(1, 2 * C, 1),),
        (Segment(4, 0, C),),
        (Segment(0, 0, 10), Segment(3, 0, 20)),
    ]
    assert [layout.chunk_length(chunk) for chunk in range(5)] == [C, C, 1, C, 30]


def test_a_packed_file_may_lie_across_two_chunks() -> None:
    layout = Layout([C - 1, C - 1, 5], C)
    assert layout.segments(0) == (Segment(0, 0, C - 1), Segment(1, 0, 1))
    assert layout.segments(1) == (Segment(1, 1, C - 2), Segment(2, 0, 2))
    assert layout.segments(2) == (Segment(2, 2, 3),)
    assert layout.chunks_of(1) == range(2)
    assert layout.chunks_of(2) == range(1, 3)


def test_a_changed_small_file_leaves_every_chunk_of_the_large_ones_where_it_was() -> None:
    old, new = Layout([900, 3 * C, 5 * C + 7], C), Layout([1100, 3 * C, 5 * C + 7], C)
    assert [old.segments(chunk) for chunk in range(9)] == [new.segments(chunk) for chunk in range(9)]


@given(SIZES)
def test_every_byte_of_every_file_lies_in_exactly_one_chunk(sizes: list[int]) -> None:
    layout = Layout(sizes, C)
    seen: dict[int, int] = dict.fromkeys(range(len(sizes)), 0)
    for chunk in range(layout.chunk_count):
        segments = layout.segments(chunk)
        assert 0 < sum(one.length for one in segments) == layout.chunk_length(chunk) <= C
        for one in segments:
            assert one.length > 0
            assert one.offset == seen[one.file_index], "bytes of a file come in order, without gap or overlap"
            seen[one.file_index] += one.length
            assert chunk in layout.chunks_of(one.file_index)
            if sizes[one.file_index] >= C:
                assert len(segments) == 1
                assert one.offset % C == 0
    assert list(seen.values()) == sizes
    assert layout.bytes_total == sum(sizes)
    assert sum(len(layout.chunks_of(index)) for index, size in enumerate(sizes) if size >= C) == layout.packed_chunk


@pytest.mark.parametrize("chunk", [-1, 3])
def test_a_chunk_outside_the_model_is_our_own_mistake(chunk: int) -> None:
    with pytest.raises(IndexError):
        Layout([3 * C], C).chunk_length(chunk)


@pytest.mark.parametrize(
    ("bytes_total", "chunk_bytes"),
    [
        (1, 256 * 1024),
        (512 * MIB, 256 * 1024),
        (512 * MIB + 1, 512 * 1024),
        (1024 * MIB, 512 * 1024),
        (16 * 1024 * MIB, 8 * MIB),
        (16 * 1024 * MIB + 1, 16 * MIB),
        (500 * 10**9, 16 * MIB),
        (16 * 2**40, 16 * MIB),
    ],
)
def test_the_default_chunk_size_makes_some_two_thousand_chunks_within_its_bounds(
    bytes_total: int, chunk_bytes: int
) -> None:
    assert default_chunk_bytes(bytes_total) == chunk_bytes


@pytest.mark.parametrize(
    ("bytes_total", "chunk_bytes"),
    [(200 * 10**6, 256 * 1024), (10 * 10**9, MIB), (16 * 10**9 - 1, MIB), (16 * 10**9, 8 * MIB), (10**12, 16 * MIB)],
)
def test_steps_of_a_run_have_small_chunks_where_these_are_not_too_many(bytes_total: int, chunk_bytes: int) -> None:
    assert step_chunk_bytes(bytes_total) == chunk_bytes


@pytest.mark.parametrize(
    ("mbit", "bytes_total", "chunk_bytes"),
    [
        (1, 10**9, 256 * 1024),
        (100, 10**9, 2 * MIB),
        (1_000, 500 * 10**9, 16 * MIB),
        (2_500, 500 * 10**9, 32 * MIB),
        (10_000, 500 * 10**9, 64 * MIB),
        (100_000, 500 * 10**9, 64 * MIB),
        (100, 16 * 2**40, 32 * MIB),
    ],
)
def test_chunks_for_a_link_are_what_it_carries_in_some_time(mbit: int, bytes_total: int, chunk_bytes: int) -> None:
    """Within bounds, and never so small that there would be too many."""
    assert chunk_bytes_for_link(mbit * 125_000, bytes_total) == chunk_bytes
    assert -(-bytes_total // chunk_bytes) <= CHUNKS_MAX


def test_limits_hold_at_the_edge() -> None:
    assert Layout([1_000_000 * C], C).chunk_count == 1_000_000
    assert Layout([16 * 2**40], 64 * MIB).bytes_total == 16 * 2**40
    with pytest.raises(ManifestError):
        Layout([1_000_000 * C, 1], C)


@given(st.lists(st.integers(0, 400_000), min_size=1, max_size=5), st.booleans(), st.data())
def test_the_chunks_of_some_bytes_of_a_file_are_those_that_hold_one_of_them(
    sizes: list[int], has_cuts: bool, data: st.DataObject
) -> None:
    cuts = [[size // 3, size - size // 3] if size >= C else None for size in sizes] if has_cuts else None
    layout = Layout(sizes, C, cuts)
    file_index = data.draw(st.integers(0, len(sizes) - 1))
    begin, end = sorted(
        (data.draw(st.integers(0, sizes[file_index])), data.draw(st.integers(0, sizes[file_index] + 9)))
    )
    expected = [
        chunk
        for chunk in range(layout.chunk_count)
        for one in layout.segments(chunk)
        if one.file_index == file_index and begin < one.offset + one.length and one.offset < end
    ]
    assert list(layout.chunks_between(file_index, begin, end)) == (expected if begin < end else [])
