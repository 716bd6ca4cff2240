"""When fetches and reads that were foretold to end count as about to end.

What lives here: those times, for one deployment. What does not: how they are foretold (``runtime.incoming_chunks``),
and what follows (``deployment_swarm``). A flight that has failed meanwhile keeps its time, which then means nothing.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush

from gossipd.core.ids import ChunkIndex, Supplier


class Endings:
    """At most a few for each flight, all within a second."""

    def __init__(self) -> None:
        self._times: list[tuple[float, int, ChunkIndex, Supplier]] = []  # a heap; the count keeps the order of equals
        self._count = 0

    def expect(self, chunk: ChunkIndex, supplier: Supplier, at_s: float) -> None:
        """The chunk counts as about to end from that time on."""
        self._count += 1
        heappush(self._times, (at_s, self._count, chunk, supplier))

    def take(self, now: float) -> list[tuple[ChunkIndex, Supplier]]:
        """Those whose time has come, in that order."""
        due = []
        while self._times and self._times[0][0] <= now:
            due.append(heappop(self._times)[2:])
        return due

    @property
    def next_s(self) -> float:
        """When ``take`` has something; infinity while nothing is expected."""
        return self._times[0][0] if self._times else math.inf
