"""Dividing a model into extents: adjacent chunks that one thread reads and hashes together.

16 MiB are enough that opening and mapping cost nothing beside hashing, few enough that all cores end together, and the
size beyond which S3's requests get no cheaper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gossipd.manifest.chunk_layout import EXTENT_BYTES_MAX, Layout, Segment


@dataclass(frozen=True, slots=True)
class FileExtent:
    """``count`` chunks from ``first_chunk``: the bytes of ``segments``, end to end, cut every ``chunk_bytes``. Either
    adjacent chunks of one file, with one segment; or one chunk of packed files."""

    first_chunk: int
    count: int
    segments: tuple[Segment, ...]
    length: int


def runs(layout: Layout) -> Iterator[FileExtent]:
    """All of a model's chunks, each in exactly one extent."""
    per_extent = max(1, EXTENT_BYTES_MAX // layout.chunk_bytes)
    chunk = 0
    while chunk < layout.packed_chunk:
        segment = layout.segments(chunk)[0]
        stop = min(chunk + per_extent, layout.chunks_of(segment.file_index).stop)
        length = min((stop - chunk) * layout.chunk_bytes, layout.sizes[segment.file_index] - segment.offset)
        yield FileExtent(chunk, stop - chunk, (Segment(segment.file_index, segment.offset, length),), length)
        chunk = stop
    for packed in range(layout.packed_chunk, layout.chunk_count):
        yield FileExtent(packed, 1, layout.segments(packed), layout.chunk_length(packed))
