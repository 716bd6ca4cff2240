"""Which host has which role in one deployment: rack peers, importers, source readers, neighbours.

What lives here: the view (the usable hosts that are targets, by rack) and all that follows from it by rendezvous
hashing. What does not: holdings, and any decision about a chunk.

Neighbours are symmetric without negotiation, because both ends compute them from the same view. In a small cluster all
hosts are neighbours, in a larger one these:

* In the rack: all rack peers, or those on a ring with ``rack_peers_max`` neighbours each.
* Across racks: for each bucket the racks stand on a ring, and the first host of a rack's preference list is a neighbour
  of the first hosts of the racks 1, 2, 4, 8 ... places away: a chunk reaches R racks in log2 R hops.
* The source readers: all are neighbours of one another, which bounds their number. Each must hear what the others read.

Where extents are single chunks and not all hosts are neighbours, a source reader is first in its rack's preference
lists for the buckets that it reads: importers elsewhere then hear of a chunk one hop earlier, from its reader.

Hosts whose links are slower (``arrival_rates``) stand last in all lists: they take over, but nobody waits for them.
Rejected: to leave them out, because a view of rates that is wrong would leave roles to nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Generic, NamedTuple, Protocol, TypeVar

from gossipd.core.ids import Origin, Supplier
from gossipd.core.model import PeerView, Shape
from gossipd.core.targets import EVERY_HOST, Targets
from gossipd.swarm.peers import Peers
from gossipd.swarm.rendezvous import BUCKETS, bucket_firsts, bucket_lines, rack_lines, scores
from gossipd.swarm.settings import PlannerSettings
from membership.member import NodeId

_PLACES_MAX = 3_000_000  # 24 MB: the preference lists of 290 racks of 40 hosts, or the firsts of so many more
_RACK_TURNS_MAX = 5  # of these racks spread_far import at once
_LINES_PER_HOST = 5  # buckets for each host: even enough, and only some dozens of neighbours in other racks


@cache
def _ring_steps(size: int) -> tuple[int, ...]:
    """Distances of neighbours on a ring: powers of two, both ways."""
    steps = [2**power % size for power in range(max(1, size - 1).bit_length())]
    return tuple(sorted({step for near in steps for step in (near, size - near) if 0 < step < size}))


# Tables of all members: the planners of a simulation share them; a daemon needs one for each set of targets, and of
# each for the classes of chunks that it wants.
@lru_cache(maxsize=32)
def _by_rack(targets: frozenset[PeerView]) -> tuple[dict[str, tuple[NodeId, ...]], dict[NodeId, str]]:
    """The racks with their hosts, and the rack of every target. No caller changes them."""
    racks: dict[str, list[NodeId]] = {}
    for view in targets:
        racks.setdefault(view.rack, []).append(view.node)
    by_rack = {rack: tuple(sorted(members)) for rack, members in sorted(racks.items())}
    return by_rack, {view.node: view.rack for view in targets}


def _without(
    racks: dict[str, tuple[NodeId, ...]], rack_of: dict[NodeId, str], out: set[NodeId] | frozenset[NodeId]
) -> dict[str, tuple[NodeId, ...]]:  # fmt: skip
    """The racks without these hosts, and without those of which no other host is left."""
    touched = {rack_of[node] for node in out if node in rack_of}
    if not touched:
        return racks
    left = racks.copy()
    for rack in touched:
        left[rack] = tuple(node for node in racks[rack] if node not in out)
        if not left[rack]:
            del left[rack]
    return left


def _level_first(
    members: tuple[NodeId, ...], behind: frozenset[NodeId], salt: bytes, count: int
) -> tuple[tuple[NodeId, ...], ...]:
    """Preference lists of the members, each with those that are behind at its end. All others keep their order: hosts
    that disagree about one host disagree about nothing else. Rejected: to draw without those that are behind, because
    a load that is bounded then moves others' buckets too."""
    lines = bucket_lines(members, salt, count)
    if not behind:
        return lines
    return tuple([tuple(sorted(line, key=behind.__contains__)) for line in lines])


@lru_cache(maxsize=2_048)  # 600 bytes each in most clusters; which hosts read, and so stand first, changes more often
def _level_firsts(
    members: tuple[NodeId, ...], behind: frozenset[NodeId], salt: bytes, count: int
) -> tuple[NodeId, ...]:  # fmt: skip
    """The first of each of ``_level_first``."""
    return bucket_firsts(members, salt, count, behind)


class _Rack(NamedTuple):
    """The input from which the preference lists of a rack follow."""

    members: tuple[NodeId, ...]
    readers: tuple[NodeId, ...]
    heads: tuple[tuple[int, NodeId], ...]  # buckets, each with the source reader that is first in its list
    folds: int
    salt: bytes
    behind: frozenset[NodeId] = frozenset()

    def headless_lines(self) -> tuple[tuple[NodeId, ...], ...]:
        """The lists where no reader has a bucket of its own. The only source reader of a rack has to spread the first
        copies of what it reads. So it stands in the middle of every list and imports little, or nothing if it has
        a single rack peer. Rejected: at the end, because it then finishes last. Where a rack has several source
        readers, hashing places them."""
        importers = tuple(node for node in self.members if node not in self.readers)
        if not importers or len(self.readers) > 1:
            lines = list(_level_first(self.members, self.behind, self.salt, self.folds))
        else:
            half = max(1, sum(node not in self.behind for node in importers) // 2)
            drawn = _level_first(importers, self.behind, self.salt, self.folds)
            lines = [(*line[:half], *self.readers, *line[half:]) for line in drawn]
        return tuple(lines)

    def lines(self) -> tuple[tuple[NodeId, ...], ...]:
        """The preference lists of the rack, one for each bucket."""
        lines = list(_headless_lines(self._replace(heads=())))
        for bucket, reader in self.heads:
            lines[bucket] = (reader, *(node for node in lines[bucket] if node != reader))
        return tuple(lines)

    def firsts(self) -> tuple[NodeId, ...]:
        """The first of each of ``lines``: all that hosts of other racks need."""
        importers = tuple(node for node in self.members if node not in self.readers)
        drawn = importers if importers and len(self.readers) == 1 else self.members
        firsts, heads = _level_firsts(drawn, self.behind, self.salt, self.folds), dict(self.heads)
        return tuple(heads.get(bucket, first) for bucket, first in enumerate(firsts))


@lru_cache(maxsize=512)  # 8 kB each in most clusters
def _headless_lines(rack: _Rack) -> tuple[tuple[NodeId, ...], ...]:
    return rack.headless_lines()


Drawn = TypeVar("Drawn")


class _Drawn(Generic[Drawn]):
    """What was computed of racks lately: the planners of a simulation need the same. ``is_whole``: every host of a rack
    stands in each of its lines."""

    def __init__(self, draw: Callable[[_Rack], Drawn], *, is_whole: bool) -> None:
        self._draw, self._is_whole = draw, is_whole
        self._drawn: dict[_Rack, Drawn] = {}  # in order of use
        self._places = 0

    def of(self, rack: _Rack) -> Drawn:
        """Computed once."""
        found = self._drawn.pop(rack, None)
        if found is None:
            found = self._draw(rack)
            self._places += self._places_of(rack)
        self._drawn[rack] = found
        while self._places > _PLACES_MAX:
            oldest = next(iter(self._drawn))
            del self._drawn[oldest]
            self._places -= self._places_of(oldest)
        return found

    def _places_of(self, rack: _Rack) -> int:
        return rack.folds * (len(rack.members) if self._is_whole else 1)


_LINES = _Drawn(_Rack.lines, is_whole=True)
_FIRSTS = _Drawn(_Rack.firsts, is_whole=False)


class RolesMaker(Protocol):
    """Makes the roles of one deployment, for all of its chunks or for those that the same hosts want."""

    def __call__(self) -> Roles: ...


class Roles:
    """The view of one deployment as this host sees it. ``refresh`` recomputes it; all other methods read it."""

    def __init__(
        self, own: PeerView, targets: Targets, salt: bytes, settings: PlannerSettings, *, shape: Shape
    ) -> None:
        self._own = own
        self._shape = shape
        self._targets = targets
        self._salt = salt
        self._planner_settings = settings
        self._known: tuple[object, ...] = ()
        self._targets_of: tuple[object, ...] = ()
        self._views: dict[NodeId, PeerView] = {}  # of the targets that ``_targets_of`` leads to
        self._targets_set: frozenset[PeerView] = frozenset()
        self._behind: frozenset[NodeId] = frozenset()
        self.racks: dict[str, tuple[NodeId, ...]] = {}
        self.rack_of: dict[NodeId, str] = {}
        self._lines: tuple[tuple[NodeId, ...], ...] = ()  # of our own rack
        self._lines_of: tuple[object, ...] = ()
        self._lined_racks: dict[str, tuple[NodeId, ...]] = {}
        self._placed_of: tuple[tuple[str, ...], str, int] = ((), "", 0)
        self._rack_lines: tuple[tuple[str, ...], ...] = ((),) * BUCKETS  # of the racks in ``_placed_of``
        self._drawn_of: tuple[object, ...] = ()
        self._drawn: tuple[tuple[NodeId, ...], ...] = ()  # the readers' lines, of ``_drawn_of``
        self._firsts: dict[str, tuple[NodeId, ...]] = {}  # of every rack
        self._made_of: dict[str, _Rack] = {}
        self._folds = BUCKETS
        self.rack_peers: set[NodeId] = set()
        self.readers: tuple[NodeId, ...] = ()
        self.reader_lines: tuple[tuple[NodeId, ...], ...] = ((),) * BUCKETS
        self.readers_are_first = False  # in their racks' preference lists, for what they read
        self.neighbours: set[NodeId] = set()
        self.places: list[int] = [0] * BUCKETS
        self.rack_places: list[int] = [0] * BUCKETS

    def refresh(
        self, own: PeerView, peers: Peers, slow: frozenset[NodeId], seeds: frozenset[NodeId], now: float,
        *, without: frozenset[NodeId] = frozenset(), behind: frozenset[NodeId] = frozenset(),
    ) -> bool:  # fmt: skip
        """Look at the members again; True when a role may have moved. ``slow``: hosts that get no roles. ``seeds``:
        hosts that claim to be their racks' seeds, this one included. ``without``: hosts that do not want what these
        roles are about. ``behind``: hosts that stand behind all others in every list."""
        key = (own, peers.version, slow, seeds, without, behind)
        if key == self._known:
            return False
        self._known = key
        self._own, self._behind = own, behind
        unusable = peers.unusable(now)
        self._look_at_members(peers, without)
        racks, self.rack_of = _by_rack(self._targets_set)
        self.racks = _without(racks, self.rack_of, unusable | slow)
        out = {node for node in unusable if not peers.is_rotten(node, now)}
        self.readers = self._elect(out, slow, seeds)
        most = max((len(members) for members in self.racks.values()), default=1)
        self._folds = min(BUCKETS, 1 << (_LINES_PER_HOST * most - 1).bit_length())
        size = len(self._views)
        self.readers_are_first = self._shape.extent_chunks == 1 and size > self._planner_settings.everyone_max
        before = self._lines
        self._draw_lines()
        if self._lines is not before or not before:
            self.places = self._own_places()
        placed_of = (tuple(self.racks), own.rack, self._folds)
        if placed_of != self._placed_of:
            self._placed_of, self._rack_lines = placed_of, rack_lines(placed_of[0], self._salt)
            self.rack_places = self._own_rack_places()
        self.neighbours = self._neighbours(size)
        return True

    def _look_at_members(self, peers: Peers, without: frozenset[NodeId]) -> None:
        """Note the targets again, if the members' records have changed; there may be 10,000 of them."""
        own, include = self._own, self._targets.include
        targets_of = (own, peers.views_version, without)
        if targets_of == self._targets_of:
            return
        self._targets_of = targets_of
        targets = [view for view in peers.members() if view.node not in without] if without else peers.members()
        if self._targets != EVERY_HOST:
            targets = [view for view in targets if include(name=view.name, rack=view.rack)]
        if include(name=own.name, rack=own.rack):
            targets.append(own)
        self._views = {view.node: view for view in targets}
        self._targets_set = frozenset(targets)
        self.rack_peers = {view.node for view in targets if view.rack == own.rack and view.node != own.node}

    def _elect(self, out: set[NodeId], slow: frozenset[NodeId], seeds: frozenset[NodeId]) -> tuple[NodeId, ...]:
        """The source readers: targets among the seeds, as many as can be neighbours; else one target that can read.
        None of those in ``out``."""
        if not self._shape.has_sources:
            return ()
        claimants = [self._views[node] for node in seeds - out if node in self._views]
        readers = [view.node for view in claimants if view.can_read_sources]
        if readers:
            healthy = [node for node in readers if node not in slow] or readers
            first = sorted(healthy, key=lambda node: scores(node, self._salt, 1), reverse=True)
            return tuple(sorted(first[: self._planner_settings.far_neighbours_max + 1]))
        able = [node for node, view in self._views.items() if view.can_read_sources and node not in out]
        return (max(able, key=lambda node: scores(node, self._salt, 1)),) if able else ()

    def _draw_lines(self) -> None:
        """Compute the preference lists of source readers and of our own rack, and who is first in those of the others;
        what is known of unchanged racks is kept."""
        folds = self._folds if self.readers_are_first else BUCKETS
        lines_of = (self._own.rack, self.readers, self._behind, self._folds, self.readers_are_first)
        if lines_of == self._lines_of and self.racks == self._lined_racks:
            return
        self._lined_racks, self._lines_of = self.racks, lines_of
        drawn_of = (self.readers, self._behind.intersection(self.readers), folds)
        if drawn_of != self._drawn_of:
            self._drawn_of = drawn_of
            self._drawn = _level_first(self.readers, self._behind, self._salt + b"readers", folds)
            self.reader_lines = self._drawn * (BUCKETS // folds)
        first = self._heads(self._drawn) if self.readers_are_first else {}
        before, made_of = self._firsts, self._made_of
        self._firsts, self._made_of, self._lines = {}, {}, ()
        readers_of: dict[str, list[NodeId]] = {}
        for node in self.readers:
            readers_of.setdefault(self.rack_of[node], []).append(node)
        for rack, members in self.racks.items():
            readers = tuple([node for node in readers_of.get(rack, ()) if node in members])
            own = tuple([head for node in readers for head in first.get(node, ())])
            behind = self._behind.intersection(members) if self._behind else self._behind
            key = self._made_of[rack] = _Rack(members, readers, own, self._folds, self._salt, behind)
            if rack == self._own.rack:
                self._lines = _LINES.of(key)
            self._firsts[rack] = before[rack] if made_of.get(rack) == key else _FIRSTS.of(key)

    def _heads(self, lines: tuple[tuple[NodeId, ...], ...]) -> dict[NodeId, list[tuple[int, NodeId]]]:
        """The buckets in whose list each source reader is to be first: few enough for its neighbours on the rings."""
        room = self._planner_settings.subscribers_max - self._planner_settings.rack_peers_max - len(self.readers)
        most = room // max(1, len(_ring_steps(len(self.racks))))
        found: dict[NodeId, list[tuple[int, NodeId]]] = {reader: [] for reader in self.readers}
        for bucket, (reader, *_) in enumerate(lines if self.readers else ()):
            if len(found[reader]) < most:
                found[reader].append((bucket, reader))
        return found

    def _own_places(self) -> list[int]:
        lines = self._lines
        if not lines or self._own.node not in lines[0]:
            return [len(lines[0]) if lines else 0] * BUCKETS
        places = [line.index(self._own.node) for line in lines]
        return [places[bucket % self._folds] for bucket in range(BUCKETS)]

    def _own_rack_places(self) -> list[int]:
        if self._own.rack not in self.racks:
            return [0] * BUCKETS
        places = [line.index(self._own.rack) for line in self._rack_lines]
        # An importer hears of a chunk from its neighbours on the ring only, so their places are what counts.
        heard, size = len(_ring_steps(len(self.racks))), len(self.racks)
        turns = min(heard + 1, _RACK_TURNS_MAX)
        return [places[bucket % self._folds] * turns // size for bucket in range(BUCKETS)]

    def first_in_line(self, rack: str, bucket: int) -> NodeId | None:
        """The host that brings this bucket's chunks into that rack: it imports them, or reads them from storage."""
        firsts = self._firsts.get(rack)
        return firsts[bucket % self._folds] if firsts else None

    def firsts_elsewhere(self, bucket: int, sender: Supplier) -> list[NodeId]:
        """``first_in_line`` of every other rack, but for the sender's, which has the chunk."""
        without = (self._own.rack, None if isinstance(sender, Origin) else self.rack_of.get(sender))
        at = bucket % self._folds
        return [firsts[at] for rack, firsts in self._firsts.items() if rack not in without]

    def _neighbours(self, size: int) -> set[NodeId]:
        own = self._own.node
        if size <= self._planner_settings.everyone_max:
            return {node for node in self.rack_of if node != own}
        rack_peers = self._ring_of_rack_peers()
        far = self._ring_of_racks()
        if own in self.readers:
            far.update(node for node in self.readers if node != own)
        return rack_peers | far

    def _ring_of_rack_peers(self) -> set[NodeId]:
        ring = sorted([*self.rack_peers, self._own.node], key=lambda node: scores(node, self._salt, 1))
        if len(ring) <= self._planner_settings.rack_peers_max + 1:
            return set(self.rack_peers)
        at, size = ring.index(self._own.node), len(ring)
        chosen: set[NodeId] = set()
        step = 1
        while step < size:  # powers of two connect every pair within log2 hops; nearer ones fill the rest
            chosen |= {ring[(at + step) % size], ring[(at - step) % size]}
            step *= 2
        for step in range(3, size):
            if len(chosen) >= self._planner_settings.rack_peers_max:
                break
            chosen |= {ring[(at + step) % size], ring[(at - step) % size]}
        chosen.discard(self._own.node)
        return chosen

    def _ring_of_racks(self) -> set[NodeId]:
        found: set[NodeId] = set()
        for bucket, place in enumerate(self.places[: self._folds]):
            if place:
                continue
            ring = self._rack_lines[bucket]
            at = ring.index(self._own.rack)
            for step in _ring_steps(len(ring)):
                if (node := self.first_in_line(ring[(at + step) % len(ring)], bucket)) is not None:
                    found.add(node)
            if len(found) >= self._planner_settings.far_neighbours_max and self._own.node not in self.readers:
                break
        return found
