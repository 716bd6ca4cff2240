"""A set of chunk indexes that changes: what a replica holds, and what its journal says it held.

What lives here: the set and its bytes. What does not: the immutable set that is sent and planned with
(``core.chunkset``).

One bit a chunk, so that a snapshot of a million chunks in the journal is copied, not counted: a Python set of them
took 0.1 to 0.2 s to build (found by the fuzzer) and 50 MB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gossipd.core.chunkset import ChunkSet


class Bits:
    """A mutable set of chunk indexes that knows its size."""

    __slots__ = ("count", "raw", "size")

    def __init__(self, size: int, members: Iterable[int] = ()) -> None:
        self.size = size
        self.raw = bytearray((size + 7) // 8)
        self.count = 0
        self.update(members)

    @classmethod
    def of_raw(cls, size: int, raw: bytes | bytearray) -> Bits:
        """The set whose bits these are, least first; bits past ``size`` name no chunk, bytes that lack are zeros."""
        bits = int.from_bytes(raw[: (size + 7) // 8], "little") & ((1 << size) - 1)
        made = cls(size)
        made.raw[:] = bits.to_bytes(len(made.raw), "little")
        made.count = bits.bit_count()
        return made

    def __contains__(self, index: int) -> bool:
        return bool(self.raw[index >> 3] >> (index & 7) & 1)

    def __iter__(self) -> Iterator[int]:
        """Ascending indexes."""
        return iter(self.snapshot())

    def __len__(self) -> int:
        return self.count

    def update(self, members: Iterable[int]) -> None:
        """Add all of them."""
        for index in members:
            if not self.raw[index >> 3] >> (index & 7) & 1:
                self.raw[index >> 3] |= 1 << (index & 7)
                self.count += 1

    def difference_update(self, members: Iterable[int]) -> None:
        """Remove all of them."""
        for index in members:
            if self.raw[index >> 3] >> (index & 7) & 1:
                self.raw[index >> 3] &= ~(1 << (index & 7)) & 0xFF
                self.count -= 1

    def snapshot(self) -> ChunkSet:
        """As an immutable set."""
        return ChunkSet(self.size, int.from_bytes(self.raw, "little"))
