"""Which hosts want which chunks of one deployment, as classes of chunks that the same hosts want.

What lives here: what each host has told, and the classes of the chunks that are wanted here. What does not: what
follows from them (``class_roles``).

A host that has told nothing wants everything, as every host did before there were parts. While all that are known want
the same as this one there is one class, and no class costs anything. A host whose want cannot be told in few bytes
counts as one that wants nothing: nobody relies on it, and it looks after itself. Hosts that differ in what they have
heard compute other classes; that costs time or a duplicate read, never a chunk.

Classes beyond ``CLASSES_MAX`` stay together: their chunks are then looked after by hosts that want all of them.
"""

from __future__ import annotations

from gossipd.core.chunkset import ChunkSet
from membership.member import NodeId

CLASSES_MAX = 64


class Interests:
    """Owned by one ``DeploymentSwarm``. ``wanted``: the bits of the chunks that this host wants."""

    def __init__(self, size: int, wanted: int) -> None:
        self._full = (1 << size) - 1
        self.size = size
        self.wanted = wanted
        self.version = 0
        """Changes with what is told."""
        self._told: dict[NodeId, int] = {}

    def heard(self, node: NodeId, chunks: ChunkSet) -> None:
        """A peer wants these chunks, of the model's size; all of them: like a peer that has told nothing."""
        if chunks.size != self.size or self._told.get(node, self._full) == chunks.bits:
            return
        self.version += 1
        if chunks.bits == self._full:
            del self._told[node]
        else:
            self._told[node] = chunks.bits

    def of(self, node: NodeId) -> ChunkSet:
        """The chunks that a peer wants; all where its want cannot be told."""
        return ChunkSet(self.size, self._told.get(node) or self._full)

    def served_by(self, chunks: int) -> frozenset[NodeId]:
        """The peers that want a part, and no chunk besides these."""
        return frozenset(node for node, bits in self._told.items() if bits and not bits & ~chunks)

    @property
    def is_uniform(self) -> bool:
        """Whether everybody who is known wants everything."""
        return self.wanted == self._full and not self._told

    def classes(self) -> list[int]:
        """The chunks that are wanted here, parted by who else wants them; as bits, in an order that all share."""
        parts = [self.wanted] if self.wanted else []
        for bits in sorted({self.wanted, *self._told.values()}):
            if len(parts) >= CLASSES_MAX:
                break
            parts = [one for part in parts for one in (part & bits, part & ~bits) if one]
        return sorted(parts)

    def without(self, chunks: int) -> frozenset[NodeId]:
        """The hosts that do not want all of these chunks."""
        return frozenset(node for node, bits in self._told.items() if chunks & ~bits)
