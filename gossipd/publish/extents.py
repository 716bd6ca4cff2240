"""Dividing a model into extents: adjacent chunks that one thread reads and hashes together.

16 MiB are enough that opening and mapping cost nothing beside hashing, few enough that all cores end together, and the
size beyond which S3's requests get no cheaper.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from msgspec import Struct

from gossipd.manifest.chunk_layout import EXTENT_BYTES_MAX, Layout, Segment


class FileExtent(Struct, frozen=True):
    """The chunks from ``first_chunk`` on that have these ``lengths``: the bytes of ``segments``, end to end. Either
    adjacent chunks of one file, with one segment; or one chunk of packed files."""

    first_chunk: int
    lengths: tuple[int, ...]
    segments: tuple[Segment, ...]

    @property
    def count(self) -> int:
        return len(self.lengths)

    @property
    def length(self) -> int:
        return sum(self.lengths)


def runs_by_file(layout: Layout) -> list[list[FileExtent]]:
    """The same, those of one file together and in order; those of packed files are one group."""
    keyed = groupby(
        runs(layout), lambda run: run.segments[0].file_index if run.first_chunk < layout.packed_chunk else -1
    )
    return [list(group) for _, group in keyed]


def runs(layout: Layout) -> Iterator[FileExtent]:
    """All of a model's chunks, each in exactly one extent."""
    chunk = 0
    while chunk < layout.packed_chunk:
        (first,) = layout.segments(chunk)
        stop = layout.chunks_of(first.file_index).stop
        lengths, length = [first.length], first.length
        while chunk + len(lengths) < stop:
            following = layout.chunk_length(chunk + len(lengths))
            if length + following > EXTENT_BYTES_MAX:
                break
            lengths.append(following)
            length += following
        yield FileExtent(chunk, tuple(lengths), (Segment(first.file_index, first.offset, length),))
        chunk += len(lengths)
    for packed in range(layout.packed_chunk, layout.chunk_count):
        yield FileExtent(packed, (layout.chunk_length(packed),), layout.segments(packed))
