"""From chunks to requests: which byte ranges of which files bring the next chunks, pure.

A file of at least one chunk starts on a chunk boundary, so neighbouring chunks of it are one range; smaller files are
packed together into chunks, each of which takes one range for each piece of a file in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gossipd.core.ids import ChunkIndex

if TYPE_CHECKING:
    from gossipd.manifest.manifest import Manifest


@dataclass(frozen=True, slots=True)
class FileRange:
    """``length`` bytes from ``offset`` of the manifest's file ``file_index``."""

    file_index: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class ReadExtent:
    """Chunks whose bytes, one after the other, are those of ``ranges``, one after the other."""

    chunks: tuple[ChunkIndex, ...]
    ranges: tuple[FileRange, ...]


def next_extent(manifest: Manifest, chunks: Sequence[ChunkIndex], *, range_bytes_max: int) -> ReadExtent:
    """The longest run that begins with ``chunks[0]`` and needs one request, or one packed chunk.

    Args:
        chunks: at least one; in ascending order where they are to be read together.
        range_bytes_max: a run ends before this size, but holds at least one chunk.
    """
    pieces = [FileRange(one.file_index, one.offset, one.length) for one in manifest.segments(chunks[0])]
    if len(pieces) != 1:
        return ReadExtent((chunks[0],), tuple(pieces))
    first = pieces[0]
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
    return ReadExtent(tuple(chunks[:count]), (FileRange(first.file_index, first.offset, length),))
