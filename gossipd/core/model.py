"""Two values that the brains are told: the ``Shape`` of a model in chunks, and the ``PeerView`` of a member.

What lives here: the two values. What does not: the manifest and the member record from which adapters make them.
"""

from __future__ import annotations

from msgspec import Struct

from membership.member import NodeId

_PACKED_FILE_S = 0.025  # several at a time over 0.2 s of distance, or from storage that takes 40 requests a second


class Shape(Struct, frozen=True):
    """What the planner needs to know of a model: no names, no hashes. ``chunk_bytes`` is the nominal size; a
    chunk may be shorter, and up to an eighth longer. ``extent_chunks`` adjacent chunks are read from external storage
    as one unit."""

    chunk_count: int
    chunk_bytes: int
    bytes_total: int
    extent_chunks: int
    has_sources: bool = True
    """Whether storage has it; a step that a job saved lies on hosts alone."""
    packed_chunk: int = 0
    packed_files: int = 0
    """From which chunk on small files are packed, and how many lie in one such chunk on average."""

    def packed_s(self, chunk: int) -> float:
        """Seconds that a read of this chunk may take for its many small files, each of which is a request."""
        return self.packed_files * _PACKED_FILE_S if chunk >= self.packed_chunk else 0.0

    @property
    def chunk_bytes_mean(self) -> int:
        """Bytes of a chunk of middle length, at most the nominal size: what several chunks take follows from it."""
        return min(self.chunk_bytes, -(-self.bytes_total // self.chunk_count))


class PeerView(Struct, frozen=True, cache_hash=True, gc=False):
    """What the planner knows of a member from its signed record. Roles follow from sets of all members' views, so the
    hash of one is computed once."""

    node: NodeId
    rack: str
    zone: str
    can_read_sources: bool = False
    seed_term: int = 0
    """The term of its claim to be a seed of its rack; zero: no claim."""
    name: str = ""
    """Its host name, by which the targets of a deployment may name it."""
