"""Who holds which chunk of one deployment, as heard from neighbours.

What lives here: what each peer has said it holds, and, for each chunk that is still wanted here, the list of
its holders in our rack and elsewhere. What does not: what to do about it (``demand``, ``scheduler``).

A peer "holds" what can be asked for there: a chunk that is still on its way to it is among that, and is taken back if
it does not come.

Peers that hold everything are kept apart: hearing of a full copy costs nothing per chunk. Lists of a chunk are
dropped when it is stored here, so memory follows what is missing, not what exists.
"""

from __future__ import annotations

from collections.abc import Iterable

from gossipd.core.chunkset import ChunkSet
from membership.member import NodeId


class _Holdings:
    """What one peer has said it holds."""

    __slots__ = ("bits", "count")

    def __init__(self, bits: int, count: int) -> None:
        self.bits = bits
        self.count = count


class Availability:
    """Holdings of the neighbours. ``near`` are rack mates, ``far`` all others."""

    def __init__(self, size: int, held: int) -> None:
        self.size = size
        self.full_bits = (1 << size) - 1
        self._holdings: dict[NodeId, _Holdings] = {}
        self.near_full: dict[NodeId, None] = {}  # ordered: the choice among holders must not follow a hash seed
        self.far_full: dict[NodeId, None] = {}
        self.near: dict[int, list[NodeId]] = {}
        self.far: dict[int, list[NodeId]] = {}
        self._held = held

    def stored(self, chunk: int) -> None:
        """Held here now: nobody needs to be asked for it."""
        self._held |= 1 << chunk
        self.near.pop(chunk, None)
        self.far.pop(chunk, None)

    def lost_here(self, chunk: int, rack_peers: set[NodeId]) -> None:
        """Wanted again: find its holders among what peers have said."""
        self._held &= ~(1 << chunk)
        for node, holdings in self._holdings.items():
            if holdings.bits >> chunk & 1 and node not in self.near_full and node not in self.far_full:
                (self.near if node in rack_peers else self.far).setdefault(chunk, []).append(node)

    def replace(self, node: NodeId, chunks: ChunkSet, *, near: bool) -> tuple[int, ...]:
        """Complete holdings of a peer; what was known of it before is void. Returns wanted chunks that are news."""
        before = self.bits_of(node)
        if before & ~chunks.bits:
            self.forget(node)
            before = 0
        if chunks.is_full:
            self.forget(node)
            self._holdings[node] = _Holdings(chunks.bits, self.size)
            (self.near_full if near else self.far_full)[node] = None
            return tuple(ChunkSet(self.size, self.full_bits & ~self._held & ~before))
        return self._add_many(node, chunks.bits & ~before, near=near)

    def add(self, node: NodeId, chunks: Iterable[int], *, near: bool) -> tuple[int, ...]:
        """A peer holds these too. Returns those of them that are wanted here."""
        if (holdings := self._holdings.get(node)) is None:
            holdings = self._holdings[node] = _Holdings(0, 0)
        bits, held, size = holdings.bits, self._held, self.size
        lists = self.near if near else self.far
        news = []
        for chunk in chunks:
            bit = 1 << chunk
            if bits & bit or chunk >= size:
                continue
            bits |= bit
            holdings.count += 1
            if not held & bit:
                if (holders := lists.get(chunk)) is None:
                    lists[chunk] = [node]
                else:
                    holders.append(node)
                news.append(chunk)
        holdings.bits = bits
        return tuple(news)

    def _add_many(self, node: NodeId, bits: int, *, near: bool) -> tuple[int, ...]:
        """As ``add``, for any number: one pass over the bits, where ``add`` copies all of them for each chunk."""
        lists = self.near if near else self.far
        news = tuple(ChunkSet(self.size, bits & ~self._held))
        for chunk in news:
            lists.setdefault(chunk, []).append(node)
        bits |= self.bits_of(node)
        self._holdings[node] = _Holdings(bits, bits.bit_count())
        return news

    def drop(self, node: NodeId, chunks: Iterable[int]) -> None:
        """A peer does not hold these any more."""
        if node in self.near_full or node in self.far_full:
            near, bits = node in self.near_full, self.bits_of(node)
            self.forget(node)
            self._add_many(node, bits, near=near)
        if (holdings := self._holdings.get(node)) is None:
            return
        for chunk in chunks:
            if holdings.bits >> chunk & 1:
                holdings.bits &= ~(1 << chunk)
                holdings.count -= 1
                self._unlist(node, chunk)

    def forget(self, node: NodeId) -> None:
        """All that was known of a peer."""
        bits = self.bits_of(node)
        self._holdings.pop(node, None)
        if node in self.near_full or node in self.far_full:
            self.near_full.pop(node, None)
            self.far_full.pop(node, None)
            return
        for chunk in ChunkSet(self.size, bits & ~self._held):
            self._unlist(node, chunk)

    def _unlist(self, node: NodeId, chunk: int) -> None:
        for lists in (self.near, self.far):
            if (holders := lists.get(chunk)) is not None and node in holders:
                holders.remove(node)
                if not holders:
                    del lists[chunk]

    def near_count(self, chunk: int) -> int:
        """Holders in our rack, this host not counted."""
        return len(self.near.get(chunk, ())) + len(self.near_full)

    def far_count(self, chunk: int) -> int:
        """Holders outside our rack, as far as we have been told."""
        return len(self.far.get(chunk, ())) + len(self.far_full)

    def near_holders(self, chunk: int) -> list[NodeId]:
        """Rack mates that hold the chunk."""
        holders = self.near.get(chunk, [])
        return [*holders, *self.near_full] if self.near_full else holders

    def far_holders(self, chunk: int) -> list[NodeId]:
        """Holders outside our rack."""
        holders = self.far.get(chunk, [])
        return [*holders, *self.far_full] if self.far_full else holders

    def lacks(self, node: NodeId, chunk: int) -> bool:
        """As far as we know the peer does not hold the chunk."""
        holdings = self._holdings.get(node)
        return holdings is None or not holdings.bits >> chunk & 1

    def bits_of(self, node: NodeId) -> int:
        """What the peer holds, as far as we know."""
        holdings = self._holdings.get(node)
        return holdings.bits if holdings is not None else 0

    def count_of(self, node: NodeId) -> int:
        """How many chunks that is."""
        holdings = self._holdings.get(node)
        return holdings.count if holdings is not None else 0

    def union(self) -> int:
        """Bits of every chunk that some peer is known to hold."""
        union = 0
        for holdings in self._holdings.values():
            union |= holdings.bits
        return union
