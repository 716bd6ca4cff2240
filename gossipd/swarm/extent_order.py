"""The order in which a model's extents leave storage, and which chunks stand where in it.

What lives here, for one deployment: positions, the chunks and the bucket of each, also where hosts want other chunks.
What does not: who owns a bucket (``roles``), and which extents are read (``source_read_planner``).
"""

from __future__ import annotations

from collections.abc import Iterator

from gossipd.core.model import Shape
from gossipd.swarm.class_roles import extents_of
from gossipd.swarm.rendezvous import BUCKETS, bucket_of, reading_order


class ExtentOrder:
    """All hosts that know the same model and salt compute the same order."""

    def __init__(self, shape: Shape, salt: bytes) -> None:
        self._shape = shape
        self._order = reading_order(-(-shape.chunk_count // shape.extent_chunks), salt, shape.extent_chunks)
        self._position_of: list[int] = []
        self.class_of: bytes | None = None
        """For each chunk the number of its class, from 1, and 0 for one that is not wanted here; None: all want all."""
        self.by_chunk = False
        """Whether the bucket of an extent is that of its first chunk, and not that of its turn."""
        self._extents: list[range] = []  # with several classes, in the order; each of one class
        self._extent_of: dict[int, int] = {}  # chunk -> its position among them
        self._lay_out()

    def _lay_out(self) -> None:
        self._position_of = [0] * len(self._order)
        for position, extent in enumerate(self._order):
            self._position_of[extent] = position
        self._extents, self._extent_of = [], {}
        if self.class_of is not None:
            whole = [self.chunks(position) for position in range(len(self._order))]
            self._extents = extents_of(self.class_of, whole)
            self._extent_of = {chunk: at for at, extent in enumerate(self._extents) for chunk in extent}

    def set_classes(self, class_of: bytes | None) -> None:
        """Extents are cut where the class changes, so that each has one line of readers."""
        self.class_of = class_of
        self._lay_out()

    def read_from_start(self) -> None:
        """The model's own order from now on."""
        self._order = tuple(range(len(self._order)))
        self._lay_out()

    def __len__(self) -> int:
        return len(self._extents) if self.class_of is not None else len(self._order)

    def position(self, chunk: int) -> int | None:
        """The position of a chunk's extent; None for a chunk that is not wanted here."""
        if self.class_of is not None:
            return self._extent_of.get(chunk)
        return self._position_of[chunk // self._shape.extent_chunks]

    def chunks(self, position: int) -> range:
        """The chunks of the extent that stands there."""
        if self._extents:
            return self._extents[position]
        first = self._order[position] * self._shape.extent_chunks
        return range(first, min(first + self._shape.extent_chunks, self._shape.chunk_count))

    def bucket(self, position: int) -> int:
        """The bucket of the extent that stands there."""
        if self.class_of is not None:
            first = self._extents[position].start
            return (self.class_of[first] - 1) * BUCKETS + bucket_of(first)
        return bucket_of(self._order[position] * self._shape.extent_chunks) if self.by_chunk else position % BUCKETS

    def absent(self, present: bytearray) -> Iterator[int]:
        """The positions with a chunk that is not present. By slices, because a model may have a million chunks, and
        every peer that loses a chunk leads here."""
        width = self._shape.extent_chunks
        if self.class_of is not None:
            parts = enumerate(self._extents)
            return (position for position, part in parts if 0 in present[part.start : part.stop])
        extents = enumerate(self._order)
        return (at for at, extent in extents if 0 in present[extent * width : (extent + 1) * width])
