"""From chunks to requests: the byte ranges of files that bring the next chunks. Pure.

A file of at least one chunk starts on a chunk boundary, so adjacent chunks of it are one range. Smaller files are
packed together; such a chunk takes one range for each piece of a file.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from gossipd.core.ids import ChunkIndex
from gossipd.manifest.chunk_layout import Segment
from gossipd.manifest.manifest import Manifest


class ReadExtent(Struct, frozen=True):
    """Chunks whose bytes, in order, are those of ``ranges``, in order."""

    chunks: tuple[ChunkIndex, ...]
    ranges: tuple[Segment, ...]


def next_extent(manifest: Manifest, chunks: Sequence[ChunkIndex], *, range_bytes_max: int) -> ReadExtent:
    """The longest run from ``chunks[0]`` that needs one request, or one packed chunk. There is at least one chunk, and
    chunks to be read together are in ascending order. One chunk may be longer than ``range_bytes_max``.
    """
    first, *others = manifest.segments(chunks[0])
    if others:
        return ReadExtent((chunks[0],), (first, *others))
    count, length = 1, first.length
    for chunk in chunks[1:]:
        following = manifest.segments(chunk)
        if len(following) != 1:
            break
        piece = following[0]
        if piece.file_index != first.file_index or piece.offset != first.offset + length:
            break
        if length + piece.length > range_bytes_max:
            break
        count += 1
        length += piece.length
    return ReadExtent(tuple(chunks[:count]), (Segment(first.file_index, first.offset, length),))


def ranges_after(ranges: Sequence[Segment], received: int) -> tuple[Segment, ...]:
    """What is left of ``ranges`` when so many of their bytes have come."""
    left: list[Segment] = []
    for part in ranges:
        come = min(received, part.length)
        received -= come
        if come < part.length:
            left.append(Segment(part.file_index, part.offset + come, part.length - come))
    return tuple(left)
