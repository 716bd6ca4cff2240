"""Fetches that are about to end and that nothing follows yet.

What lives here: which, by peer. What does not: when a fetch is about to end (the hands), what follows it
(``scheduler``).

Between the last byte of a chunk and the first of the next one asked of the same peer lie the news of a free slot, a
plan, a request through two queues, and often a refusal, as others ask for the same slot. Where a chunk takes a third
of a second that is a quarter of it, and the uplink does without that flow. So the next chunk is asked for a moment
before, on the same connection, and takes over the slot: sixteen hosts with chunks of 44 ms are 20 chunk times behind
the bound instead of 28, and 20 instead of 31 where each plans only every 20 ms (simulated lab, 512 chunks, storage read
in the same way); 250 hosts with chunks of 1 s are 23 instead of 24.
"""

from __future__ import annotations

from membership.member import NodeId


class Pipelining:
    """Of one deployment."""

    def __init__(self) -> None:
        self._chunks: dict[NodeId, list[int]] = {}

    def __contains__(self, node: NodeId) -> bool:
        return node in self._chunks

    def add(self, node: NodeId, chunk: int) -> None:
        """A fetch of this chunk from this peer is about to end."""
        self._chunks.setdefault(node, []).append(chunk)

    def take(self, node: NodeId) -> int | None:
        """A chunk behind which another can be asked for, which is then asked for; None when there is none."""
        chunks = self._chunks.get(node)
        if not chunks:
            return None
        chunk = chunks.pop(0)
        if not chunks:
            del self._chunks[node]
        return chunk

    def drop(self, node: NodeId, chunk: int) -> None:
        """The fetch has ended; no effect when something follows it, or it never was about to end."""
        chunks = self._chunks.get(node)
        if chunks and chunk in chunks:
            chunks.remove(chunk)
            if not chunks:
                del self._chunks[node]
