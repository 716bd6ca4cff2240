"""Chunks that begin at tensors: by examples, and by properties over any header."""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossipd.manifest.chunk_borders import chunk_begins, cuts_of
from gossipd.manifest.chunk_layout import Layout, Segment
from gossipd.manifest.errors import ManifestError

C = 64 * 1024
M = C // 16
LENGTHS = (
    st.integers(0, 4 * C)
    | st.integers(0, 2 * M)
    | st.sampled_from([0, 1, M - 1, M, M + 1, C - M, C, C + M - 1, C + M, 2 * C])
)
HEADERS = st.integers(8, 3 * C) | st.integers(8, 2 * M)
TENSORS = st.lists(LENGTHS, max_size=20)
RUNS = st.lists(st.integers(0, M // 4), max_size=3)
Around: TypeAlias = tuple[int, list[int], list[int]]
"""A header, and the tensors before and after the one that is looked at."""
CASES = settings(deadline=None)  # ``python -m tests.bench.edits --cases 10000`` tries more


def lengths_of(cuts: tuple[int, ...]) -> list[int]:
    begins = [*chunk_begins(cuts, C), sum(cuts)]
    return [end - begin for begin, end in pairwise(begins)]


def test_the_header_has_a_chunk_of_its_own_however_small() -> None:
    assert lengths_of(cuts_of(100, [2 * C], C)) == [100, C, C]


def test_the_grid_begins_again_at_each_tensor_of_a_margin() -> None:
    assert lengths_of(cuts_of(100, [C + M, M, C], C)) == [100, C, M, M, C]


def test_no_border_is_less_than_a_margin_before_a_tensor_ends() -> None:
    assert lengths_of(cuts_of(100, [C + M - 1, 2 * C + M], C)) == [100, C + M - 1, C, C, M]


def test_small_tensors_join_the_first_chunk_of_the_tensor_that_follows() -> None:
    cuts = cuts_of(100, [10, 20, 2 * C], C)
    assert cuts == (100, 30, 2 * C)
    assert lengths_of(cuts) == [100, 30 + C, C]


def test_small_tensors_that_reach_a_margin_together_stand_alone() -> None:
    assert lengths_of(cuts_of(100, [M // 2, M // 2, C], C)) == [100, M, C]


def test_small_tensors_at_the_end_of_the_file_stand_alone() -> None:
    assert lengths_of(cuts_of(100, [C, 7], C)) == [100, C, 7]


def test_a_header_of_many_chunks_has_a_grid_of_its_own() -> None:
    assert lengths_of(cuts_of(2 * C + M, [C], C)) == [C, C, M, C]


def test_the_longest_chunk_has_a_chunk_and_two_margins() -> None:
    assert max(lengths_of(cuts_of(100, [M - 1, C + M - 1], C))) == C + 2 * M - 2


@CASES
@given(HEADERS, TENSORS)
def test_chunks_fill_the_file_without_gap_or_overlap(header: int, tensors: list[int]) -> None:
    check_chunks_of(header, tensors)


def check_chunks_of(header: int, tensors: list[int]) -> None:
    """Of one file with that header: every rule on chunks, as a layout and as offsets."""
    cuts = cuts_of(header, tensors, C)
    size = header + sum(tensors)
    assert sum(cuts) == size
    assert min(cuts) >= 1
    lengths = lengths_of(cuts)
    assert sum(lengths) == size
    assert all(1 <= length < C + 2 * M for length in lengths)
    assert all(length >= M for length in lengths[1:-1] if header >= M)
    if size < C:
        return
    layout = Layout([9, size, C + 1], C, [None, cuts, None])
    at = 0
    for chunk in range(len(lengths)):
        assert layout.segments(chunk) == (Segment(1, at, lengths[chunk]),)
        assert layout.chunk_length(chunk) == lengths[chunk]
        at += lengths[chunk]
    assert layout.chunks_of(1) == range(len(lengths))
    assert layout.chunks_of(2) == range(len(lengths), len(lengths) + 2)
    assert layout.chunk_bytes_max == max(C, *lengths)
    assert [layout.segments(chunk) for chunk in range(len(lengths), layout.chunk_count)] == [
        (Segment(2, 0, C),), (Segment(2, C, 1),), (Segment(0, 0, 9),),
    ]  # fmt: skip


@CASES
@given(st.tuples(HEADERS, TENSORS, TENSORS), st.tuples(HEADERS, TENSORS, TENSORS), st.integers(M, 4 * C), RUNS)
def test_a_tensor_has_the_same_digests_in_two_files(one: Around, two: Around, length: int, run: list[int]) -> None:
    check_same_tensor(one, two, length, run)


def check_same_tensor(one: Around, two: Around, length: int, run: list[int]) -> None:
    """A tensor of ``length``, after the same small tensors, in two files: the same chunks."""
    found = []
    for header, before, after in (one, two):
        ahead = [*before, M, *run]
        cuts = cuts_of(header, [*ahead, length, *after], C)
        found.append(chunks_within(cuts, header + sum(ahead), length))
    assert found[0] == found[1]
    assert sum(size for _, size in found[0]) >= length


def chunks_within(cuts: tuple[int, ...], begin: int, length: int) -> list[tuple[int, int]]:
    """The chunks with bytes of the tensor, each by its place relative to the tensor's start and its length."""
    begins = [*chunk_begins(cuts, C), sum(cuts)]
    return [
        (at - begin, end - at) for at, end in pairwise(begins) if end > begin and at < begin + length
    ]  # fmt: skip


@CASES
@given(st.lists(st.integers(1, 2 * C) | st.integers(1, M), min_size=1, max_size=30))
def test_cuts_that_no_publisher_writes_make_chunks_within_the_same_bounds(cuts: list[int]) -> None:
    lengths = lengths_of(tuple(cuts))
    assert sum(lengths) == sum(cuts)
    assert all(1 <= length < C + 2 * M for length in lengths)
    assert all(length >= M for length in lengths[1:-1])


@pytest.mark.parametrize(
    ("cuts", "says"),
    [
        ([], "cuts for 0 of 1"),
        ([None, None], "cuts for 2 of 1"),
        ([[]], "sum is the file's"),
        ([[C]], "sum is the file's"),
        ([[2 * C, 0]], "lengths of at least 1"),
        ([[2 * C + 1, -1]], "lengths of at least 1"),
    ],
)
def test_cuts_that_do_not_fit_the_files_are_refused(cuts: list[list[int] | None], says: str) -> None:
    with pytest.raises(ManifestError, match=says) as caught:
        Layout([2 * C], C, cuts)
    assert caught.value.code == "E_CHUNK_LAYOUT"


def test_cuts_of_a_packed_file_are_refused() -> None:
    with pytest.raises(ManifestError, match="smaller than a chunk"):
        Layout([C - 1, C], C, [[C - 1], None])


def test_a_chunk_longer_than_the_longest_that_a_pool_must_hold_is_refused() -> None:
    largest = 64 * 1024 * 1024
    assert Layout([largest], largest, [[largest]]).chunk_bytes_max == largest
    with pytest.raises(ManifestError, match="smaller chunk"):
        Layout([100 + largest + 1], largest, [[100, largest + 1]])


def test_cuts_of_a_huge_file_are_refused_before_its_chunks_are_made() -> None:
    with pytest.raises(ManifestError) as caught:
        Layout([2**50], C, [[2**50]])
    assert caught.value.code == "E_LIMIT"
    with pytest.raises(ManifestError) as caught:
        Layout([2**43], C, [[2**43]])
    assert caught.value.code == "E_LIMIT"


def test_a_plain_layout_is_what_it_was_without_cuts() -> None:
    sizes = [10, 3 * C + 5, 0, C]
    plain, none = Layout(sizes, C), Layout(sizes, C, [None] * 4)
    for chunk in range(plain.chunk_count):
        assert plain.segments(chunk) == none.segments(chunk)
    assert plain.chunk_bytes_mean == none.chunk_bytes_mean == C
