"""Which neighbour holds which chunk of one deployment.

What lives here: what each peer has said it holds, and, for each chunk that is still wanted here, its holders in our
rack and elsewhere. What does not: the decisions that follow (``demand``, ``scheduler``).

A peer "holds" a chunk that can be asked for there, also one that is still on its way to the peer. Peers that hold
everything are kept apart: a full copy costs nothing per chunk. The lists of a chunk are dropped when the chunk is
stored here, so memory follows what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable

from gossipd.core.chunkset import ChunkSet
from membership.member import NodeId


class Availability:
    """Holdings of the neighbours. ``near`` are rack peers, ``far`` all others."""

    def __init__(self, size: int, held: int) -> None:
        self.size = size
        self.full_bits = (1 << size) - 1
        self._bits: dict[NodeId, int] = {}  # the chunks that each peer has said it holds
        self.near_full: dict[NodeId, None] = {}  # ordered: the choice among holders must not follow a hash seed
        self.far_full: dict[NodeId, None] = {}
        self.near: dict[int, list[NodeId]] = {}
        self.far: dict[int, list[NodeId]] = {}
        self._held = held

    def stored(self, chunk: int) -> None:
        """This host holds the chunk and asks no peer for it."""
        self._held |= 1 << chunk
        self.near.pop(chunk, None)
        self.far.pop(chunk, None)

    def lost_here(self, chunk: int, rack_peers: set[NodeId]) -> None:
        """This host wants the chunk again: list the peers that have said they hold it."""
        self._held &= ~(1 << chunk)
        for node, bits in self._bits.items():
            if bits >> chunk & 1 and node not in self.near_full and node not in self.far_full:
                (self.near if node in rack_peers else self.far).setdefault(chunk, []).append(node)

    def replace(self, node: NodeId, chunks: ChunkSet, *, near: bool) -> tuple[int, ...]:
        """A peer's complete holdings replace what was known of it. Returns the wanted chunks that are new there."""
        before = self.bits_of(node)
        if before & ~chunks.bits:
            self.forget(node)
            before = 0
        if chunks.is_full:
            self.forget(node)
            self._bits[node] = chunks.bits
            (self.near_full if near else self.far_full)[node] = None
            return tuple(ChunkSet(self.size, self.full_bits & ~self._held & ~before))
        return self._add_many(node, chunks.bits & ~before, near=near)

    def add(self, node: NodeId, chunks: Iterable[int], *, near: bool) -> tuple[int, ...]:
        """A peer holds these chunks too. Returns the new ones that are wanted here."""
        bits, held, size = self._bits.get(node, 0), self._held, self.size
        lists = self.near if near else self.far
        news = []
        for chunk in chunks:
            bit = 1 << chunk
            if bits & bit or chunk >= size:
                continue
            bits |= bit
            if not held & bit:
                if (holders := lists.get(chunk)) is None:
                    lists[chunk] = [node]
                else:
                    holders.append(node)
                news.append(chunk)
        self._bits[node] = bits
        return tuple(news)

    def _add_many(self, node: NodeId, bits: int, *, near: bool) -> tuple[int, ...]:
        """As ``add``, for any number: one pass over the bits, while ``add`` copies all bits for each chunk."""
        lists = self.near if near else self.far
        news = tuple(ChunkSet(self.size, bits & ~self._held))
        for chunk in news:
            lists.setdefault(chunk, []).append(node)
        self._bits[node] = bits | self.bits_of(node)
        return news

    def drop(self, node: NodeId, chunks: Iterable[int]) -> None:
        """A peer holds these chunks no longer."""
        if node in self.near_full or node in self.far_full:
            near, bits = node in self.near_full, self.bits_of(node)
            self.forget(node)
            self._add_many(node, bits, near=near)
        for chunk in chunks:
            if self.bits_of(node) >> chunk & 1:
                self._bits[node] &= ~(1 << chunk)
                self._unlist(node, chunk)

    def forget(self, node: NodeId) -> None:
        """Drop all that was known of a peer."""
        bits = self._bits.pop(node, 0)
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
        """Number of holders in our rack, this host not counted."""
        return len(self.near.get(chunk, ())) + len(self.near_full)

    def far_count(self, chunk: int) -> int:
        """Number of holders outside our rack, as far as is known."""
        return len(self.far.get(chunk, ())) + len(self.far_full)

    def near_holders(self, chunk: int) -> list[NodeId]:
        """Rack peers that hold the chunk."""
        holders = self.near.get(chunk, [])
        return [*holders, *self.near_full] if self.near_full else holders

    def far_holders(self, chunk: int) -> list[NodeId]:
        """Holders outside our rack."""
        holders = self.far.get(chunk, [])
        return [*holders, *self.far_full] if self.far_full else holders

    def lacks(self, node: NodeId, chunk: int) -> bool:
        """Whether the peer does not hold the chunk, as far as is known."""
        return not self.bits_of(node) >> chunk & 1

    def bits_of(self, node: NodeId) -> int:
        """The chunks that the peer holds, as far as is known, as bits."""
        return self._bits.get(node, 0)

    def count_of(self, node: NodeId) -> int:
        """The number of chunks that the peer holds, as far as is known."""
        return self.bits_of(node).bit_count()

    def union(self) -> int:
        """The chunks that some peer is known to hold, as bits."""
        union = 0
        for bits in self._bits.values():
            union |= bits
        return union
