"""From chunks to requests: every byte of every chunk once, in order, and no request longer than allowed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gossipd.manifest.chunk_layout import Segment
from gossipd.sources.ranges import next_extent, ranges_after
from tests.gossipd.sources.models import CHUNK_BYTES, sign

sizes = st.lists(st.integers(0, 5 * CHUNK_BYTES), min_size=1, max_size=6).filter(any)


@given(sizes, st.integers(1, 6 * CHUNK_BYTES), st.data())
def test_runs_bring_exactly_the_chunks_asked_for(sizes: list[int], range_bytes_max: int, data: st.DataObject) -> None:
    manifest = sign({f"f{at}": bytes(size) for at, size in enumerate(sizes)}, "http://storage/")
    everything = range(manifest.chunk_count)
    asked = sorted(data.draw(st.sets(st.sampled_from(everything), min_size=1)))
    pending = list(asked)
    brought: list[int] = []
    while pending:
        run = next_extent(manifest, pending, range_bytes_max=range_bytes_max)
        assert list(run.chunks) == pending[: len(run.chunks)]
        assert sum(part.length for part in run.ranges) == sum(manifest.chunk_length(chunk) for chunk in run.chunks)
        assert len(run.chunks) == 1 or (len(run.ranges) == 1 and run.ranges[0].length <= range_bytes_max)
        wanted = [piece for chunk in run.chunks for piece in manifest.segments(chunk)]
        flat = [(part.file_index, part.offset + at) for part in run.ranges for at in (0, part.length - 1)]
        assert flat[0] == (wanted[0].file_index, wanted[0].offset)
        assert flat[-1] == (wanted[-1].file_index, wanted[-1].offset + wanted[-1].length - 1)
        brought += run.chunks
        pending = pending[len(run.chunks) :]
    assert brought == asked


def test_a_gap_in_the_chunks_ends_a_run() -> None:
    manifest = sign({"a": bytes(6 * CHUNK_BYTES)}, "http://storage/")
    run = next_extent(manifest, [0, 1, 3, 4], range_bytes_max=10 * CHUNK_BYTES)
    assert run.chunks == (0, 1)


def test_what_has_come_of_ranges_is_left_out() -> None:
    ranges = (Segment(0, 10, 5), Segment(1, 0, 7))
    assert ranges_after(ranges, 0) == ranges
    assert ranges_after(ranges, 3) == (Segment(0, 13, 2), Segment(1, 0, 7))
    assert ranges_after(ranges, 5) == (Segment(1, 0, 7),)
    assert ranges_after(ranges, 11) == (Segment(1, 6, 1),)
    assert ranges_after(ranges, 12) == ()
