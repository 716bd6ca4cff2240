"""Fetches that are about to end and after which no request is queued yet.

What lives here: those fetches, by peer. What does not: when one is about to end (adapters), the next (``scheduler``).

Between the last byte of a chunk and the first byte of the next one from the same peer lie the announcement of a free
slot, a plan, a request through two queues, and often a refusal, because other hosts ask for the same slot. Meanwhile
the uplink lacks a flow. So the next chunk is requested earlier, on the same connection, and inherits the upload slot.
"""

from __future__ import annotations

from membership.member import NodeId


class Pipelining:
    """The fetches of one deployment."""

    def __init__(self) -> None:
        self.chunks: dict[NodeId, list[int]] = {}
        """By peer; no caller changes it."""

    def __contains__(self, node: NodeId) -> bool:
        return node in self.chunks

    def add(self, node: NodeId, chunk: int) -> None:
        """The fetch of this chunk from this peer is about to end."""
        self.chunks.setdefault(node, []).append(chunk)

    def take(self, node: NodeId) -> int | None:
        """Take a fetch after which the caller requests the next chunk; None when there is none."""
        chunks = self.chunks.get(node)
        if not chunks:
            return None
        chunk = chunks[0]
        self.drop(node, chunk)
        return chunk

    def drop(self, node: NodeId, chunk: int) -> None:
        """The fetch has ended; no effect when a request follows it, or it was never about to end."""
        chunks = self.chunks.get(node)
        if chunks and chunk in chunks:
            chunks.remove(chunk)
            if not chunks:
                del self.chunks[node]
