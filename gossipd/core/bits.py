"""A mutable set of chunk indexes: what a replica holds, what its journal claims, what a peer has said it holds.

What lives here: the set and its bytes. What does not: the immutable value that is sent and compared (``chunkset``).

The set is one bit a chunk. A look or a change costs the same for a million chunks as for ten. Rejected: the bits of an
integer, because each change copies all of them; a Python set, because it takes 30 bytes or more for each chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gossipd.core.chunkset import ChunkSet


class Bits:
    """A mutable set of chunk indexes, all in ``range(size)``. Loops over many chunks may use ``raw`` (bit ``i & 7`` of
    byte ``i >> 3``) and ``count``, and change both together."""

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

    @classmethod
    def of(cls, chunks: ChunkSet) -> Bits:
        """A set that begins with these chunks."""
        made = cls(chunks.size)
        made.raw[:] = chunks.bits.to_bytes(len(made.raw), "little")
        made.count = len(chunks)
        return made

    def __contains__(self, index: int) -> bool:
        return bool(self.raw[index >> 3] >> (index & 7) & 1)

    def __iter__(self) -> Iterator[int]:
        return iter(self.snapshot())

    def __len__(self) -> int:
        return self.count

    def add(self, index: int) -> bool:
        """False when the chunk was in the set."""
        at, bit = index >> 3, 1 << (index & 7)
        if self.raw[at] & bit:
            return False
        self.raw[at] |= bit
        self.count += 1
        return True

    def discard(self, index: int) -> bool:
        """False when the chunk was not in the set."""
        at, bit = index >> 3, 1 << (index & 7)
        if not self.raw[at] & bit:
            return False
        self.raw[at] ^= bit
        self.count -= 1
        return True

    def update(self, members: Iterable[int]) -> None:
        for index in members:
            self.add(index)

    def difference_update(self, members: Iterable[int]) -> None:
        for index in members:
            self.discard(index)

    def snapshot(self) -> ChunkSet:
        """An immutable copy."""
        return ChunkSet(self.size, self.as_int())

    def as_int(self) -> int:
        """The set as the bits of an integer: a copy."""
        return int.from_bytes(self.raw, "little")
