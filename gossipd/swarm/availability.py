"""Which neighbour holds which chunk of one deployment.

What lives here: what each peer has said it holds, and, for each chunk that is still wanted here, its holders in our
rack and elsewhere. What does not: the decisions that follow (``demand``, ``scheduler``).

A peer "holds" a chunk that can be asked for there, also one that is still on its way to the peer. Peers that hold
everything are kept apart: a full copy costs nothing per chunk. The lists of a chunk are dropped when the chunk is
stored here, so memory follows what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable

from gossipd.core.bits import Bits
from gossipd.core.chunkset import ChunkSet
from membership.member import NodeId


class Availability:
    """Holdings of the neighbours. ``near`` are rack peers, ``far`` all others."""

    def __init__(self, size: int, held: int) -> None:
        self.size = size
        self._holdings: dict[NodeId, Bits] = {}  # the chunks that each peer has said it holds
        self.counts: dict[NodeId, int] = {}
        """The number of chunks that each peer holds, where it is not 0; no caller changes it."""
        self.near_full: dict[NodeId, None] = {}  # ordered: the choice among holders must not follow a hash seed
        self.far_full: dict[NodeId, None] = {}
        self.near: dict[int, list[NodeId]] = {}
        self.far: dict[int, list[NodeId]] = {}
        self._held = Bits.of(ChunkSet(size, held))

    def stored(self, chunk: int) -> None:
        """This host holds the chunk and asks no peer for it."""
        self._held.add(chunk)
        self.near.pop(chunk, None)
        self.far.pop(chunk, None)

    def lost_here(self, chunk: int, rack_peers: set[NodeId]) -> None:
        """This host wants the chunk again: list the peers that have said they hold it."""
        self._held.discard(chunk)
        for node, holdings in self._holdings.items():
            if chunk in holdings and node not in self.near_full and node not in self.far_full:
                (self.near if node in rack_peers else self.far).setdefault(chunk, []).append(node)

    def replace(self, node: NodeId, chunks: ChunkSet, *, near: bool) -> tuple[int, ...]:
        """A peer's complete holdings replace what was known of it. Returns the wanted chunks that are new there."""
        before = self.bits_of(node)
        if before & ~chunks.bits:
            self.forget(node)
            before = 0
        if chunks.is_full:
            self.forget(node)
            self._know(node, chunks)
            (self.near_full if near else self.far_full)[node] = None
            return tuple(ChunkSet(self.size, chunks.bits & ~self._held.as_int() & ~before))
        return self._add_many(node, chunks.bits & ~before, near=near)

    def add(self, node: NodeId, chunks: Iterable[int], *, near: bool) -> tuple[int, ...]:
        """A peer holds these chunks too. Returns the new ones that are wanted here."""
        holdings = self._holdings.get(node)
        if holdings is None:
            holdings = self._holdings[node] = Bits(self.size)
        raw, held, size, count = holdings.raw, self._held.raw, self.size, holdings.count
        lists = self.near if near else self.far
        news = []
        for chunk in chunks:
            at, bit = chunk >> 3, 1 << (chunk & 7)
            if chunk >= size or raw[at] & bit:
                continue
            raw[at] |= bit
            count += 1
            if not held[at] & bit:
                if (holders := lists.get(chunk)) is None:
                    lists[chunk] = [node]
                else:
                    holders.append(node)
                news.append(chunk)
        holdings.count = self.counts[node] = count
        return tuple(news)

    def _know(self, node: NodeId, chunks: ChunkSet) -> None:
        self._holdings[node] = Bits.of(chunks)
        self.counts[node] = len(chunks)

    def _add_many(self, node: NodeId, bits: int, *, near: bool) -> tuple[int, ...]:
        """As ``add``, for any number: one pass over the bits."""
        lists = self.near if near else self.far
        news = tuple(ChunkSet(self.size, bits & ~self._held.as_int()))
        for chunk in news:
            lists.setdefault(chunk, []).append(node)
        self._know(node, ChunkSet(self.size, bits | self.bits_of(node)))
        return news

    def drop(self, node: NodeId, chunks: Iterable[int]) -> None:
        """A peer holds these chunks no longer."""
        if node in self.near_full or node in self.far_full:
            near, bits = node in self.near_full, self.bits_of(node)
            self.forget(node)
            self._add_many(node, bits, near=near)
        if (holdings := self._holdings.get(node)) is None:
            return
        for chunk in chunks:
            if holdings.discard(chunk):
                self._unlist(node, chunk)
        self.counts[node] = holdings.count

    def forget(self, node: NodeId) -> None:
        """Drop all that was known of a peer."""
        bits = self.bits_of(node)
        self._holdings.pop(node, None)
        self.counts.pop(node, None)
        if node in self.near_full or node in self.far_full:
            self.near_full.pop(node, None)
            self.far_full.pop(node, None)
            return
        for chunk in ChunkSet(self.size, bits & ~self._held.as_int()):
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

    def is_origin_near(self, chunk: int) -> bool:
        """Whether of the rack one complete host holds the chunk, and no other: as a step is where it was saved."""
        return len(self.near_full) == 1 and not self.near.get(chunk)

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
        holdings = self._holdings.get(node)
        return holdings is None or not 0 <= chunk < self.size or chunk not in holdings

    def lacking(self, nodes: Iterable[NodeId], chunk: int) -> list[NodeId]:
        """The peers of these that do not hold the chunk, as far as is known."""
        holdings, at, bit = self._holdings, chunk >> 3, 1 << (chunk & 7)
        return [node for node in nodes if (one := holdings.get(node)) is None or not one.raw[at] & bit]

    def bits_of(self, node: NodeId) -> int:
        """The chunks that the peer holds, as far as is known, as bits."""
        holdings = self._holdings.get(node)
        return holdings.as_int() if holdings is not None else 0

    def count_of(self, node: NodeId) -> int:
        """The number of chunks that the peer holds, as far as is known."""
        return self.counts.get(node, 0)

    def has_holder(self, chunk: int, *, but: frozenset[NodeId]) -> bool:
        """Whether some peer holds the chunk that is none of ``but``, as far as is known."""
        if not but:
            return bool(self.near_full or self.far_full or self.near.get(chunk) or self.far.get(chunk))
        return not but.issuperset(self.near_holders(chunk) + self.far_holders(chunk))

    def union(self, *, but: frozenset[NodeId] = frozenset()) -> int:
        """The chunks that some peer is known to hold, none of ``but``, as bits."""
        union = 0
        for node, holdings in self._holdings.items():
            if node not in but:
                union |= holdings.as_int()
        return union
