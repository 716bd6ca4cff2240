"""The roles of one deployment where hosts want different parts of it: one ``Roles`` for each class of chunks.

What lives here: which class a chunk is in, and the roles that count for it. What does not: who wants what
(``interests``), and how roles follow from a view (``roles``).

Among the hosts that want a class everything is as if the class were a model of its own: they alone read it, import it
and are first to ask. So nothing is read or imported for those who do not want it, and a rack of which nobody wants a
chunk never gets it. While all want everything there is one class, whose roles are those of the whole view.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gossipd.core.chunkset import ChunkSet
from gossipd.core.model import PeerView
from gossipd.swarm.interests import Interests
from gossipd.swarm.peers import Peers
from gossipd.swarm.rendezvous import BUCKETS, bucket_of
from gossipd.swarm.roles import Roles, RolesMaker
from membership.member import NodeId


class ClassRoles:
    """``whole``: the roles among all targets, which also say who is in our rack."""

    def __init__(self, make: RolesMaker, interests: Interests) -> None:
        self._make = make
        self._interests = interests
        self._version = -1
        self._classes: list[int] = []
        self._without: list[frozenset[NodeId]] = []  # by class: the hosts that do not want all of it
        self.whole = make()
        self._parts: list[Roles] = []
        self.class_of: bytes | None = None
        """By chunk: the number of its class, from 1; 0 for a chunk that is not wanted here. None: one class."""
        self.neighbours: set[NodeId] = set()

    def refresh(
        self, own: PeerView, peers: Peers, slow: frozenset[NodeId], seeds: frozenset[NodeId], now: float,
        *, behind: frozenset[NodeId] = frozenset(),
    ) -> bool:  # fmt: skip
        """As ``Roles.refresh``, for every class."""
        has_changed = self.whole.refresh(own, peers, slow, seeds, now, behind=behind)
        if self._version != self._interests.version:
            self._version, has_changed = self._interests.version, True
            self._classify()
        for without, roles in zip(self._without, self._parts, strict=True):
            has_changed |= roles.refresh(own, peers, slow, seeds, now, without=without, behind=behind)
        if has_changed:
            self.neighbours = self.whole.neighbours.union(*(roles.neighbours for roles in self._parts))
        return has_changed

    def _classify(self) -> None:
        if self._interests.is_uniform:
            self._classes, self._without, self._parts, self.class_of = [], [], [], None
            return
        before = dict(zip(self._classes, self._parts, strict=True))
        self._classes = self._interests.classes()
        self._without = [self._interests.without(bits) for bits in self._classes]
        self._parts = [before.get(bits) or self._make() for bits in self._classes]
        numbers = bytearray(self._interests.size)
        for number, bits in enumerate(self._classes, start=1):
            for chunk in ChunkSet(self._interests.size, bits):
                numbers[chunk] = number
        self.class_of = bytes(numbers)

    def of(self, chunk: int) -> Roles:
        """The roles that count for a chunk; those of the whole view for one that is not wanted here."""
        number = self.class_of[chunk] if self.class_of is not None else 0
        return self._parts[number - 1] if number else self.whole

    def lacking(self, present: bytearray) -> list[Roles]:
        """The roles of the classes of which a chunk is not present: whom it concerns that nobody reads it."""
        if self.class_of is None:
            return [self.whole]
        numbers = {number for number, is_there in zip(self.class_of, present, strict=True) if number and not is_there}
        return [self._parts[number - 1] for number in sorted(numbers)]

    def line_of(self, chunk: int) -> int:
        """The place of a chunk's class and bucket in ``places``, ``rack_places`` and ``reader_lines``."""
        number = self.class_of[chunk] if self.class_of is not None else 1
        return max(0, number - 1) * BUCKETS + bucket_of(chunk)

    @property
    def places(self) -> list[int]:
        """This host's rank for each class and bucket."""
        return [place for roles in self._parts for place in roles.places] if self._parts else self.whole.places

    @property
    def lone(self) -> list[bool]:
        """For each class and bucket: whether nobody else in this rack wants its chunks; empty with one class."""
        return [is_lone for roles in self._parts for is_lone in [not roles.rack_peers] * BUCKETS]

    @property
    def rack_places(self) -> list[int]:
        """This rack's rank for each class and bucket."""
        parts = self._parts
        return [place for roles in parts for place in roles.rack_places] if parts else self.whole.rack_places

    @property
    def reader_lines(self) -> tuple[tuple[NodeId, ...], ...]:
        """The preference lists of source readers for each class and bucket."""
        parts = self._parts
        return tuple(line for roles in parts for line in roles.reader_lines) if parts else self.whole.reader_lines

    @property
    def readers_are_first(self) -> bool:
        """Whether readers are first in their racks for what they read; with several classes: whether lines are by
        chunk, as they are then."""
        return bool(self._parts) or self.whole.readers_are_first


def extents_of(class_of: Sequence[int], extents: Iterable[range]) -> list[range]:
    """Extents in the same order, cut where the class changes, without the chunks that are not wanted."""
    found: list[range] = []
    for extent in extents:
        begin = extent.start
        for chunk in range(extent.start + 1, extent.stop + 1):
            if chunk == extent.stop or class_of[chunk] != class_of[begin]:
                if class_of[begin]:
                    found.append(range(begin, chunk))
                begin = chunk
    return found
