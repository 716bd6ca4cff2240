"""A hash of what one node believes, cheap to keep and cheap to compare.

The sum, modulo 2**64, of the marks of all that is believed (living members at their incarnation, statements), in total
and per bucket. The total rides on every probe; two nodes compare the 256 buckets when totals differ. Rejected: XOR,
because two equal wrong entries cancel out; a Merkle tree, because its upper levels save nothing at 10,000 entries.
"""

from __future__ import annotations

from array import array

BUCKET_COUNT = 256
_MASK = 2**64 - 1


class Digest:
    """Total and buckets, updated with every change."""

    __slots__ = ("_buckets", "total")

    def __init__(self) -> None:
        self.total = 0
        self._buckets = array("Q", bytes(8 * BUCKET_COUNT))

    def change(self, bucket: int, mark: int) -> None:
        """Add a mark, or take one away (negative)."""
        self.total = (self.total + mark) & _MASK
        self._buckets[bucket] = (self._buckets[bucket] + mark) & _MASK

    def bucket_hashes(self) -> list[int]:
        """32 bits for each bucket."""
        return [(total ^ total >> 32) & 0xFFFFFFFF for total in self._buckets]

    def copy(self) -> Digest:
        """An independent copy."""
        twin = Digest()
        twin.total = self.total
        twin._buckets = self._buckets[:]
        return twin
