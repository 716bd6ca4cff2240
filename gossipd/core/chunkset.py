"""An immutable set of chunk indexes, kept as the bits of one Python integer.

What lives here: the set, its algebra and its wire form. What does not: which host holds it.

Why an integer: the algebra runs in C over machine words, and values compare and hash. Rejected: ``bitarray``, because
it is mutable; Roaring, because it is larger than raw bits for half-full sets, which gossip sends most.

Wire form: one kind byte, then

* ``0`` raw bits, little-endian, ``ceil(size / 8)`` bytes;
* ``1`` a list of 3-byte little-endian indexes, ascending: for nearly empty sets;
* ``2`` the same list, of what is *missing*: for nearly full ones.

The shortest is chosen. The receiver knows ``size`` from the manifest and refuses what does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from gossipd.core.errors import RemoteError

_RAW, _PRESENT, _MISSING = 0, 1, 2
_INDEX_BYTES = 3  # manifests have at most 1,000,000 chunks


class ChunkSetError(RemoteError):
    """A wire form that is not a chunk set of the expected size. Fault: the peer. State: unchanged. Retry: no."""

    code = "E_DECODE"


class ChunkSet(Struct, frozen=True):
    """Indexes in ``range(size)``. ``bits`` has bit ``i`` set when chunk ``i`` is in the set."""

    size: int
    bits: int = 0

    @classmethod
    def full(cls, size: int) -> ChunkSet:
        """All ``size`` chunks."""
        return cls(size, (1 << size) - 1)

    @classmethod
    def of(cls, size: int, indexes: Iterable[int]) -> ChunkSet:
        """The given indexes, each in ``range(size)``."""
        raw = bytearray((size + 7) // 8)
        for index in indexes:
            assert 0 <= index < size, f"chunk {index} outside 0..{size - 1}"
            raw[index >> 3] |= 1 << (index & 7)
        return cls(size, int.from_bytes(raw, "little"))

    def __contains__(self, index: int) -> bool:
        return bool(self.bits >> index & 1)

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __bool__(self) -> bool:
        return self.bits != 0

    def __iter__(self) -> Iterator[int]:
        """Ascending indexes."""
        raw = self.bits.to_bytes((self.size + 7) // 8, "little")
        for position, byte in enumerate(raw):
            while byte:
                low = byte & -byte
                yield position * 8 + low.bit_length() - 1
                byte ^= low

    def __or__(self, other: ChunkSet) -> ChunkSet:
        return ChunkSet(self.size, self.bits | other.bits)

    def __and__(self, other: ChunkSet) -> ChunkSet:
        return ChunkSet(self.size, self.bits & other.bits)

    def __sub__(self, other: ChunkSet) -> ChunkSet:
        return ChunkSet(self.size, self.bits & ~other.bits)

    @property
    def is_full(self) -> bool:
        """True when every chunk of the model is in the set."""
        return len(self) == self.size

    def to_wire(self) -> bytes:
        """The shortest of the three wire forms."""
        raw_bytes = (self.size + 7) // 8
        count = len(self)
        if count * _INDEX_BYTES < raw_bytes:
            return bytes([_PRESENT]) + _pack_indexes(self)
        if (self.size - count) * _INDEX_BYTES < raw_bytes:
            return bytes([_MISSING]) + _pack_indexes(ChunkSet.full(self.size) - self)
        return bytes([_RAW]) + self.bits.to_bytes(raw_bytes, "little")

    @classmethod
    def from_wire(cls, wire: bytes, *, size: int) -> ChunkSet:
        """The set that ``to_wire`` wrote. Raises ChunkSetError: wrong kind or length, or an index beyond ``size``."""
        if not wire:
            raise ChunkSetError("a chunk set must have a kind byte")
        kind, body = wire[0], wire[1:]
        if kind == _RAW:
            if len(body) != (size + 7) // 8:
                raise ChunkSetError(f"chunk set has {len(body)} bytes, need {(size + 7) // 8}")
            bits = int.from_bytes(body, "little")
            if bits >> size:
                raise ChunkSetError(f"chunk set names a chunk past {size - 1}")
            return cls(size, bits)
        if kind not in (_PRESENT, _MISSING) or len(body) % _INDEX_BYTES or len(body) > _INDEX_BYTES * size:
            raise ChunkSetError(f"chunk set of kind {kind} with {len(body)} bytes")
        indexes = [int.from_bytes(body[at : at + _INDEX_BYTES], "little") for at in range(0, len(body), _INDEX_BYTES)]
        if any(index >= size for index in indexes):
            raise ChunkSetError(f"chunk set names a chunk past {size - 1}")
        listed = cls.of(size, indexes)
        return listed if kind == _PRESENT else cls.full(size) - listed


def _pack_indexes(chunks: ChunkSet) -> bytes:
    return b"".join(index.to_bytes(_INDEX_BYTES, "little") for index in chunks)
