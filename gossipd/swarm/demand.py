"""Which wanted chunks this host may ask for now, kept up to date chunk by chunk rather than searched for.

What lives here, for one deployment: the chunks that may be asked of rack peers, the chunks that this host is to import
from another rack, and the chunks whose turn has not come. What does not: the choice of the peer (``scheduler``).

A chunk spreads inside a rack along a shallow tree that no host builds. Each bucket of chunks has a preference list of
the rack's hosts (``rendezvous``). With h known holders in the rack, only hosts of ranks up to ``spread x h`` ask: the
first holders are not swamped, and the copies double. A host of a later rank asks after ``late_wait``.

Imports follow the same list. The host of rank 0 imports at once. A host of a later rank imports a chunk that another
rack is known to hold when it has not come into the rack after ``import_fallback_s`` for each rank. The list is a hint:
hosts whose views differ cost time or a duplicate, never a chunk.

Where one complete host is all that the rack has of a chunk (the origin: a step was saved there), it is as if the rack
had nothing as soon as another rack has some: the origin's uplink is what the whole cluster waits for. Rejected: strict
trees, because one slow parent starves its branch, and near full load every hop queues.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from random import Random

from gossipd.swarm.availability import Availability
from gossipd.swarm.rendezvous import BUCKETS, bucket_of
from gossipd.swarm.settings import PlannerSettings

_PLACES_WAITED = 8  # at most, of the line of those who import after all


class IndexedSet:
    """A set of ints with O(1) add, discard and random sampling."""

    __slots__ = ("_where", "items")

    def __init__(self) -> None:
        self.items: list[int] = []
        """In an order that ``discard`` keeps shuffled. Only this set changes it; its length is asked for often."""
        self._where: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.items)

    def __contains__(self, item: int) -> bool:
        return item in self._where

    def __iter__(self) -> Iterator[int]:
        return iter(self.items)

    def add(self, item: int) -> None:
        """No effect when the item is in the set."""
        if item not in self._where:
            self._where[item] = len(self.items)
            self.items.append(item)

    def discard(self, item: int) -> None:
        """No effect when the item is not in the set."""
        at = self._where.pop(item, None)
        if at is None:
            return
        last = self.items.pop()
        if last != item:
            self.items[at] = last
            self._where[last] = at

    def sample(self, count: int, rng: Random) -> list[int]:
        """At most ``count`` items: a random stretch of the internal order, which ``discard`` keeps shuffled."""
        items = self.items
        size = len(items)
        if size <= count:
            return list(items)
        start = int(rng.random() * size)
        run = items[start : start + count]
        return run if len(run) == count else run + items[: count - len(run)]


class Demand:
    """The chunks that this host may ask for now. Chunks in flight are in neither set."""

    def __init__(self, availability: Availability, settings: PlannerSettings) -> None:
        self._availability = availability
        self._planner_settings = settings
        self.near = IndexedSet()
        self.imports = IndexedSet()
        self.own_imports = IndexedSet()
        """Those for which no rack peer waits: nobody else in the rack wants the chunk."""
        self.wanted = set[int]()  # neither held nor in flight
        self._places: list[int] = [0] * BUCKETS
        self._rack_places: list[int] = [0] * BUCKETS
        self._turns: list[tuple[float, int, bool]] = []  # heap of (when, chunk, whether it is for an import)
        self._turn_set: set[tuple[int, bool]] = set()
        self._line_of: Callable[[int], int] = bucket_of
        self._lone: Sequence[bool] = ()

    def want(self, chunks: Iterable[int]) -> None:
        """These chunks are neither held nor in flight (any more)."""
        self.wanted.update(chunks)

    def unwant(self, chunk: int) -> None:
        """This chunk is held or in flight now."""
        self.wanted.discard(chunk)
        self.near.discard(chunk)
        self._drop_import(chunk)

    def _drop_import(self, chunk: int) -> None:
        self.imports.discard(chunk)
        self.own_imports.discard(chunk)

    def _may_import(self, chunk: int) -> None:
        is_lone = bool(self._lone) and self._lone[self._line_of(chunk)]
        (self.own_imports if is_lone else self.imports).add(chunk)

    def ready_count(self) -> int:
        """How many chunks may be asked for now."""
        return len(self.near.items) + len(self.imports.items) + len(self.own_imports.items)

    def own_share(self, window: int, importing: int) -> int:
        """How many more of ``own_imports`` may begin: would they go first as the other imports do, what rack peers hold
        would be left for the end, and their uplinks all that is left to ask. ``importing``: imports under way."""
        own = len(self.own_imports)
        return max(0, math.ceil(window * own / max(1, own + len(self.near))) - importing)

    def set_places(
        self, places: list[int], rack_places: list[int], now: float, late_wait_s: float,
        *, line_of: Callable[[int], int] = bucket_of, lone: Sequence[bool] = (),
    ) -> None:  # fmt: skip
        """The roles have moved: consider again every wanted chunk that a peer holds or that may be asked for.
        ``places``: for each bucket, this host's rank in its rack's preference list, from 0. ``rack_places``: for each
        bucket, the rank of this host's rack among the racks, from 0. ``line_of``: a chunk's place in both, where there
        are classes of chunks. ``lone``: for each of these places, whether nobody else in the rack wants its chunks;
        empty with one class."""
        self._places, self._rack_places, self._line_of, self._lone = places, rack_places, line_of, lone
        before = [*self.imports, *self.own_imports]
        for chunk in before:
            if lone or chunk in self.own_imports or places[line_of(chunk)] > 0:
                self._drop_import(chunk)
        known = self._availability
        heard_of = {*known.near, *known.far, *self.near, *before}
        for chunk in self.wanted if known.near_full or known.far_full else heard_of:
            self.consider(chunk, now, late_wait_s)

    def consider(self, chunk: int, now: float, late_wait_s: float) -> None:
        """A wanted chunk's holders have changed, or its fetch has ended: may this host ask for it? ``late_wait_s``: how
        long a host of a late rank waits."""
        if chunk not in self.wanted:
            return
        line = self._line_of(chunk)
        place = self._places[line]
        holders, is_origin = self._availability.near_count(chunk), self._availability.is_origin_near(chunk)
        if holders and not (is_origin and self._availability.far.get(chunk)):  # the origin's uplink is for the others
            self._drop_import(chunk)
            if place <= self._planner_settings.spread * holders or (self._availability.near_full and not is_origin):
                self.near.add(chunk)
            elif chunk not in self.near:
                self._later(now + late_wait_s, chunk, importing=False)
            return
        self.near.discard(chunk)
        far = self._availability.far_count(chunk)
        wait_s = max(self._planner_settings.import_fallback_s, 2 * late_wait_s)
        is_import = chunk in self.imports or chunk in self.own_imports
        if not far:
            self._drop_import(chunk)
        elif place == 0:
            if self._rack_places[line] < self._planner_settings.spread_far * far:
                self._may_import(chunk)
            elif not is_import:
                self._later(now + late_wait_s, chunk, importing=True)
            if holders:  # where no other rack sends, after all
                self._later(now + wait_s * _PLACES_WAITED, chunk, importing=False)
        elif not is_import:
            self._later(now + wait_s * min(place, _PLACES_WAITED), chunk, importing=True)

    def _later(self, due: float, chunk: int, *, importing: bool) -> None:
        key = (chunk, importing)
        if key not in self._turn_set:
            self._turn_set.add(key)
            heappush(self._turns, (due, chunk, importing))

    def take_turns(self, now: float) -> None:
        """Move the chunks whose waiting time is over to those that may be asked for."""
        while self._turns and self._turns[0][0] <= now:
            _, chunk, importing = heappop(self._turns)
            self._turn_set.discard((chunk, importing))
            if chunk not in self.wanted:
                continue
            if self._availability.near_count(chunk):
                self.near.add(chunk)
            elif importing and self._availability.far_count(chunk):
                self._may_import(chunk)

    def next_turn(self) -> float | None:
        """When ``take_turns`` has something to do."""
        return self._turns[0][0] if self._turns else None
