"""The hosts from which a model comes that no storage has: those that had all of it when they were first heard of.

What lives here: which hosts these are. What does not: what follows. Origins import nothing, so their rack peers have
their duties (``maintenance``); they are no measure for rack peers; they offer more upload slots, because all first
copies leave them (``maintenance``).
"""

from __future__ import annotations

from collections.abc import Mapping

from gossipd.core.model import Shape
from membership.member import NodeId

SPREAD_FAR = 2
"""``spread_far`` where an origin sends first copies: with more it sends its last chunks twice, with fewer it idles."""


class Origins:
    """The origins of one deployment; none where storage has it."""

    def __init__(self, own: NodeId, shape: Shape, *, is_own: bool) -> None:
        self._own = own
        self._shape = shape
        self.is_own = is_own and not shape.has_sources
        self._found = {own} if self.is_own else set[NodeId]()

    def heard(self, node: NodeId, *, is_full: bool, is_first: bool) -> None:
        """A peer's complete holdings. ``is_first``: nothing was known of it before."""
        if is_full and is_first and not self._shape.has_sources:
            self._found.add(node)

    def among(self, counts: Mapping[NodeId, int]) -> frozenset[NodeId]:
        """Those that still have all. ``counts``: the number of chunks that each peer holds."""
        size = self._shape.chunk_count
        return frozenset(node for node in self._found if node == self._own or counts.get(node) == size)
