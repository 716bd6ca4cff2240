"""The course of a simulated run, in the form in which a daemon keeps that of a deployment.

What lives here: noting what each host has and from where. What does not: the form (``deployment.history``), and what a
report makes of it.
"""

from __future__ import annotations

from gossipd.core.chunkset import ChunkSet
from gossipd.core.sketch import sketch
from gossipd.deployment.history import History, Told, column_at
from gossipd.sim.host import SimHost, Transfer


class Course:
    """Of one run; times are those of its clock."""

    def __init__(self, hosts: int, chunks: int, chunk_bytes: int) -> None:
        self.history = History(began_wall_s=0.0)
        self.moved = [[0, 0, 0] for _ in range(hosts)]
        """Of each host the bytes from storage, from its rack, from other racks."""
        self._told = [(0, 0, 0)] * hosts
        self._sketched = [-1] * hosts
        """Of each host the column in which its chunks were looked at last."""
        self._chunks, self._chunk_bytes = chunks, chunk_bytes
        self._all = ChunkSet.full(chunks)

    def carried(self, transfer: Transfer) -> None:
        """All bytes of a transfer have come."""
        taker, server = transfer.taker, transfer.server
        source = 0 if server is None else 1 if server.rack == taker.rack else 2
        self.moved[taker.index][source] += len(transfer.chunks) * self._chunk_bytes

    def tell(self, host: SimHost, now: float) -> None:
        """A host has a new chunk, or has died."""
        source, same, cross = self.moved[host.index]
        before = self._told[host.index]
        self._told[host.index] = (source, same, cross)
        is_complete = host.held_count >= self._chunks
        told = Told(
            host.held_count / self._chunks, (source - before[0], same - before[1], cross - before[2]),
            "" if host.alive else "dead", is_open=not is_complete, is_final=is_complete or not host.alive,
        )  # fmt: skip
        self.history.heard(host.node, now, told)
        column = column_at(now)
        if column != self._sketched[host.index]:
            self._sketched[host.index] = column
            shares = sketch(ChunkSet(self._chunks, host.held), self._all)
            self.history.sketched(host.node, now, host.held_count, shares)
