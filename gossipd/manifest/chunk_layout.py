"""Where every chunk of a model lies, from the sizes of its files, the chunk size, and the cuts of files of tensors.

What lives here: the rule and the arithmetic. What does not: hashes, paths and bytes; chunks of a file that has cuts
(``chunk_borders``).

The rule. Files of at least one chunk come first, in the order of the manifest; each begins a new chunk, and its last
chunk may be short. Without cuts its chunks are a plain grid. All smaller files follow in the same order, packed end to
end as if they were one file. A file of no bytes lies nowhere. So a new version with another ``config.json`` shares
every chunk of its weights with the old one, and ten thousand small files do not cost ten thousand chunks.

The manifest holds no offsets of chunks: computed ones cannot be wrong, and no peer is ever asked for one. The state is
integer arrays, 16 bytes a file and 8 for each chunk of files with cuts; a chunk is found by bisection.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from math import log2
from operator import sub

from msgspec import Struct

from gossipd.manifest.chunk_borders import chunk_begins
from gossipd.manifest.errors import ManifestError

CHUNK_BYTES_MIN = 64 * 1024  # below it the hash list and the requests outweigh the data
CHUNK_BYTES_MAX = 64 * 1024 * 1024  # a chunk is held in memory whole; the pool is 128 MiB
CHUNKS_MAX = 1_000_000
BYTES_TOTAL_MAX = 16 * 2**40
DEFAULT_CHUNK_BYTES_MIN = 256 * 1024
DEFAULT_CHUNK_BYTES_MAX = 16 * 1024 * 1024
STEP_CHUNK_BYTES_MAX = 1024 * 1024  # of a step with frozen weights 70 % was shared, with 16 MiB nothing
STEP_BYTES_MAX = 16 * 10**9  # above, chunks of 1 MiB are so many that they cost more than they save
EXTENT_BYTES_MAX = 16 * 1024 * 1024  # the size beyond which a request to S3 gets no cheaper
EXTENTS_MIN = 256  # extents in flight stay under one per cent of a model, two or three seeds reading at once
_AT_ONCE = 4096  # numbers that are compared before other threads may run
CHUNK_TIME_S = 0.15  # at 100 Mbit/s, 2 MiB took a seventh less CPU than 512 KiB, and hosts were done sooner
DEFAULT_CHUNKS = 2048  # relaying costs log2(hosts) chunk times: 10 of 2,048 is half a per cent


class Segment(Struct, frozen=True):
    """``length`` bytes at ``offset`` of file ``file_index``; a chunk of packed files may be several segments."""

    file_index: int
    offset: int
    length: int


def default_chunk_bytes(bytes_total: int) -> int:
    """``2^ceil(log2(bytes_total / 2048))`` between 256 KiB and 16 MiB."""
    per_chunk = -(-bytes_total // DEFAULT_CHUNKS)
    power = 1 << max(0, (per_chunk - 1).bit_length())
    return min(max(power, DEFAULT_CHUNK_BYTES_MIN), DEFAULT_CHUNK_BYTES_MAX)


def step_chunk_bytes(bytes_total: int) -> int:
    """For a step of a training run: at most 1 MiB below 16 GB, because frozen weights among others are shared with the
    step before by whole chunks alone."""
    chosen = default_chunk_bytes(bytes_total)
    return min(chosen, STEP_CHUNK_BYTES_MAX) if bytes_total < STEP_BYTES_MAX else chosen


def chunk_bytes_for_link(bytes_per_s: float, bytes_total: int) -> int:
    """The power of two that is nearest to what a link carries in ``CHUNK_TIME_S``, between 256 KiB and 64 MiB; larger
    where the model would else have more than ``CHUNKS_MAX`` chunks.
    """
    carried = max(1.0, bytes_per_s * CHUNK_TIME_S)
    nearest = 1 << max(0, round(log2(carried)))
    least = 1 << max(0, (-(-bytes_total // CHUNKS_MAX) - 1).bit_length())
    return min(max(nearest, least, DEFAULT_CHUNK_BYTES_MIN), CHUNK_BYTES_MAX)


def extent_chunks(bytes_total: int, chunk_bytes: int) -> int:
    """How many adjacent chunks are read from external storage as one unit. ``chunk_bytes``: of a chunk of middle
    length."""
    return max(1, min(EXTENT_BYTES_MAX, bytes_total // EXTENTS_MIN) // chunk_bytes)


class Layout:
    """The chunks of files of the given sizes. Immutable.

    ``cuts``: for each file None (a plain grid), or the lengths of its stretches; None: no file has any.
    """

    __slots__ = (
        "_begins", "_cut_at", "_packed_files", "_packed_starts", "_short", "_whole_files", "_whole_starts",
        "bytes_total", "chunk_bytes", "chunk_bytes_max", "chunk_count", "packed_chunk", "sizes",
    )  # fmt: skip

    def __init__(
        self, sizes: Sequence[int], chunk_bytes: int, cuts: Sequence[Sequence[int] | None] | None = None
    ) -> None:
        """Raises ManifestError ``E_CHUNK_LAYOUT`` or ``E_LIMIT`` when no such layout may exist."""
        _check_chunk_bytes(chunk_bytes)
        if cuts is not None:
            _check_cuts(cuts, sizes, chunk_bytes)
        self.sizes = array("Q", sizes)
        self.chunk_bytes = self.chunk_bytes_max = chunk_bytes
        self.bytes_total = sum(sizes)
        self._whole_files, self._whole_starts = array("L"), array("L")
        self._packed_files, self._packed_starts = array("L"), array("Q")
        self._short: dict[int, int] = {}  # on plain grids, the lengths of chunks that are not ``chunk_bytes`` long
        self._begins: array[int] = array("Q")  # of the chunks of files with cuts, one file after the other
        self._cut_at: dict[int, int] = {}  # such a file -> where in ``_begins`` it begins
        next_chunk = packed = 0
        for index, size in enumerate(sizes):
            if size >= chunk_bytes:
                self._whole_files.append(index)
                self._whole_starts.append(next_chunk)
                next_chunk += self._lay(index, size, next_chunk, None if cuts is None else cuts[index])
            elif size:
                self._packed_files.append(index)
                self._packed_starts.append(packed)
                packed += size
        self.packed_chunk = next_chunk
        self.chunk_count = next_chunk + -(-packed // chunk_bytes)
        if packed % chunk_bytes:
            self._short[self.chunk_count - 1] = packed % chunk_bytes
        if self.bytes_total > BYTES_TOTAL_MAX:
            raise ManifestError(f"bytes_total={self.bytes_total} max={BYTES_TOTAL_MAX}", code="E_LIMIT")
        if self.chunk_bytes_max > CHUNK_BYTES_MAX:
            raise ManifestError(
                f"cuts make a chunk of {self.chunk_bytes_max} bytes, at most {CHUNK_BYTES_MAX}: give a smaller chunk",
                code="E_CHUNK_LAYOUT",
            )
        if self.chunk_count > CHUNKS_MAX:
            raise ManifestError(f"chunks={self.chunk_count} max={CHUNKS_MAX}", code="E_LIMIT")

    def _lay(self, index: int, size: int, first: int, cuts: Sequence[int] | None) -> int:
        """Lay a file of at least a chunk from chunk ``first`` on; returns its number of chunks."""
        if cuts is None:
            count = -(-size // self.chunk_bytes)
            if size % self.chunk_bytes:
                self._short[first + count - 1] = size % self.chunk_bytes
            return count
        if size > BYTES_TOTAL_MAX:  # before its chunks are made
            raise ManifestError(f"bytes_total>={size} max={BYTES_TOTAL_MAX}", code="E_LIMIT")
        if size // self.chunk_bytes // 2 + len(self._begins) > CHUNKS_MAX:  # no chunk has two
            raise ManifestError(f"chunks>{CHUNKS_MAX} max={CHUNKS_MAX}", code="E_LIMIT")
        begins = chunk_begins(cuts, self.chunk_bytes)
        self._cut_at[index] = len(self._begins)
        self._begins.extend(begins)
        for at in range(0, len(begins) - 1, _AT_ONCE):
            part = begins[at : at + _AT_ONCE + 1]
            self.chunk_bytes_max = max(self.chunk_bytes_max, *map(sub, part[1:], part))
        self.chunk_bytes_max = max(self.chunk_bytes_max, size - begins[-1])
        return len(begins)

    @property
    def has_cuts(self) -> bool:
        """Whether any file has chunks that are not on a plain grid."""
        return bool(self._cut_at)

    @property
    def packed_files_mean(self) -> int:
        """How many small files lie in one packed chunk on average, rounded up; none without such files."""
        return -(-len(self._packed_files) // max(1, self.chunk_count - self.packed_chunk))

    @property
    def chunk_bytes_mean(self) -> int:
        """Bytes of a chunk of middle length: the nominal size on plain grids."""
        return -(-self.bytes_total // self.chunk_count) if self._cut_at else self.chunk_bytes

    def chunk_length(self, chunk: int) -> int:
        """Bytes of ``chunk``: ``chunk_bytes``, or fewer for the last one of a plain file and of the packed files; any
        from 1 to ``chunk_bytes_max`` in a file with cuts."""
        self._check_index(chunk)
        return self._place(chunk)[2] if self._cut_at and chunk < self.packed_chunk else self._plain_length(chunk)

    def segments(self, chunk: int) -> tuple[Segment, ...]:
        """Where the bytes of ``chunk`` lie, in the order in which they are hashed."""
        self._check_index(chunk)
        if chunk < self.packed_chunk:
            return (Segment(*self._place(chunk)),)
        begin = (chunk - self.packed_chunk) * self.chunk_bytes
        end = begin + self._plain_length(chunk)
        at = bisect_right(self._packed_starts, begin) - 1
        found = []
        while at < len(self._packed_files) and self._packed_starts[at] < end:
            start, file_index = self._packed_starts[at], self._packed_files[at]
            first = max(begin, start)
            last = min(end, start + self.sizes[file_index])
            found.append(Segment(file_index, first - start, last - first))
            at += 1
        return tuple(found)

    def chunks_of(self, file_index: int) -> range:
        """The chunks that hold any byte of a file; chunks of packed files hold bytes of other files too."""
        size = self.sizes[file_index]
        if size >= self.chunk_bytes:
            at = bisect_right(self._whole_files, file_index) - 1
            return range(self._whole_starts[at], self._whole_stop(at))
        if not size:
            return range(0)
        begin = self._packed_starts[bisect_right(self._packed_files, file_index) - 1]
        first = self.packed_chunk + begin // self.chunk_bytes
        return range(first, self.packed_chunk + (begin + size - 1) // self.chunk_bytes + 1)

    def chunks_between(self, file_index: int, begin: int, end: int) -> range:
        """The chunks that hold bytes ``begin`` to ``end``, not included, of a file; none for no bytes."""
        chunks = self.chunks_of(file_index)
        begin, end = max(0, begin), min(end, self.sizes[file_index])
        if begin >= end:
            return range(0)
        if self.sizes[file_index] < self.chunk_bytes:
            start = self._packed_starts[bisect_right(self._packed_files, file_index) - 1]
            size, first = self.chunk_bytes, self.packed_chunk
            return range(first + (start + begin) // size, first + (start + end - 1) // size + 1)
        at = self._cut_at.get(file_index)
        if at is None:
            return range(chunks.start + begin // self.chunk_bytes, chunks.start + (end - 1) // self.chunk_bytes + 1)
        low, high = at, at + len(chunks)
        first = bisect_right(self._begins, begin, low, high) - 1 - at
        last = bisect_right(self._begins, end - 1, low, high) - 1 - at
        return range(chunks.start + first, chunks.start + last + 1)

    def _whole_stop(self, at: int) -> int:
        return self._whole_starts[at + 1] if at + 1 < len(self._whole_starts) else self.packed_chunk

    def _place(self, chunk: int) -> tuple[int, int, int]:
        """File, offset and length of a chunk that lies in one file of at least a chunk."""
        at = bisect_right(self._whole_starts, chunk) - 1
        file_index, number = self._whole_files[at], chunk - self._whole_starts[at]
        first = self._cut_at.get(file_index)
        if first is None:
            return file_index, number * self.chunk_bytes, self._plain_length(chunk)
        begin = self._begins[first + number]
        is_last = chunk + 1 == self._whole_stop(at)
        return file_index, begin, (self.sizes[file_index] if is_last else self._begins[first + number + 1]) - begin

    def _plain_length(self, chunk: int) -> int:
        return self._short.get(chunk, self.chunk_bytes)

    def _check_index(self, chunk: int) -> None:
        if not 0 <= chunk < self.chunk_count:
            raise IndexError(f"chunk {chunk} outside 0..{self.chunk_count - 1}")


def _check_cuts(cuts: Sequence[Sequence[int] | None], sizes: Sequence[int], chunk_bytes: int) -> None:
    if len(cuts) != len(sizes):
        raise ManifestError(f"there are cuts for {len(cuts)} of {len(sizes)} files", code="E_CHUNK_LAYOUT")
    for index, (lengths, size) in enumerate(zip(cuts, sizes, strict=True)):
        if lengths is None:
            continue
        if size < chunk_bytes:
            raise ManifestError(f"cuts[{index}] is for a file smaller than a chunk", code="E_CHUNK_LAYOUT")
        if min(lengths, default=0) < 1 or sum(lengths) != size:
            raise ManifestError(
                f"cuts[{index}] must be lengths of at least 1 whose sum is the file's {size} bytes",
                code="E_CHUNK_LAYOUT",
            )


def _check_chunk_bytes(chunk_bytes: int) -> None:
    if chunk_bytes <= 0 or chunk_bytes & (chunk_bytes - 1):
        raise ManifestError(f"chunk_bytes {chunk_bytes} must be a power of two", code="E_CHUNK_LAYOUT")
    if not CHUNK_BYTES_MIN <= chunk_bytes <= CHUNK_BYTES_MAX:
        raise ManifestError(
            f"chunk_bytes {chunk_bytes} must be from {CHUNK_BYTES_MIN} to {CHUNK_BYTES_MAX}", code="E_CHUNK_LAYOUT"
        )
