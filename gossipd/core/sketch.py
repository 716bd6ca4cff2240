"""A sketch of holdings: which shares of a model a host has, in bins of adjacent chunks.

What lives here: the sketch as a value, and what it is made of. What does not: whose holdings are known
(``swarm.planner``), and display.
"""

from __future__ import annotations

from msgspec import Struct

from gossipd.core.chunkset import ChunkSet

BINS = 64
FINE_BINS = 256  # of one host, which is asked for it
SHARE_MAX = 254
NOTHING_WANTED = 255


class KnownHoldings(Struct, frozen=True):
    """The chunks that a host has and wants. ``heard_s``: when it said so last; None for this host."""

    held: ChunkSet
    wanted: ChunkSet
    heard_s: float | None


def sketch(held: ChunkSet, wanted: ChunkSet, bins_max: int = BINS) -> bytes:
    """One byte for each bin: of the chunks that are wanted there the share that is held, in 254ths. 254 only when all
    are, 0 only when none is; 255 where none is wanted. A model of fewer chunks than ``bins_max`` has a bin for each.
    """
    size = held.size
    if wanted.is_full and (held.is_full or not held):  # most hosts, before and after
        return bytes([SHARE_MAX if held else 0]) * min(bins_max, size)
    width = (size + 7) // 8
    have, want = (one.to_bytes(width, "little") for one in (held.bits & wanted.bits, wanted.bits))
    bins = min(bins_max, size)
    read, whole, shares = int.from_bytes, wanted.is_full, bytearray()
    first = 0
    for number in range(1, bins + 1):
        end = number * size // bins
        # A slice is counted, as shifting the whole would copy it for each bin.
        low, high, shift, mask = first >> 3, (end + 7) >> 3, first & 7, (1 << (end - first)) - 1
        here = (read(have[low:high], "little") >> shift & mask).bit_count()
        of = end - first if whole else (read(want[low:high], "little") >> shift & mask).bit_count()
        shares.append((max(1, SHARE_MAX * here // of) if here else 0) if of else NOTHING_WANTED)
        first = end
    return bytes(shares)
