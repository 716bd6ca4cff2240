"""A mutable set of chunk indexes: what a replica holds and what its journal claims.

What lives here: the set and its bytes. What does not: the immutable set for plans (``core.chunkset``).

The set is one bit a chunk. Rejected: a Python set, because a snapshot of a million chunks takes time and memory.
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
        """The set of these bits, least first. Bits beyond ``size`` are ignored, missing bytes are zeros."""
        bits = int.from_bytes(raw[: (size + 7) // 8], "little") & ((1 << size) - 1)
        made = cls(size)
        made.raw[:] = bits.to_bytes(len(made.raw), "little")
        made.count = bits.bit_count()
        return made

    def __contains__(self, index: int) -> bool:
        return bool(self.raw[index >> 3] >> (index & 7) & 1)

    def __iter__(self) -> Iterator[int]:
        return iter(self.snapshot())

    def __len__(self) -> int:
        return self.count

    def update(self, members: Iterable[int]) -> None:
        for index in members:
            if not self.raw[index >> 3] >> (index & 7) & 1:
                self.raw[index >> 3] |= 1 << (index & 7)
                self.count += 1

    def difference_update(self, members: Iterable[int]) -> None:
        for index in members:
            if self.raw[index >> 3] >> (index & 7) & 1:
                self.raw[index >> 3] &= ~(1 << (index & 7)) & 0xFF
                self.count -= 1

    def snapshot(self) -> ChunkSet:
        """An immutable copy."""
        return ChunkSet(self.size, int.from_bytes(self.raw, "little"))
