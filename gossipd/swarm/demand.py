"""Which wanted chunks may be asked for now, kept up to date chunk by chunk instead of being searched for.

What lives here: for one deployment the chunks ready to be asked of rack mates, those this host is to import
from another rack, and those whose turn has not come. What does not: whom to ask (``scheduler``).

A chunk spreads inside a rack along a shallow tree that nobody builds. Each bucket of chunks has its line of
mates (``rendezvous``): with h holders known in the rack only the first ``spread x h`` in line may ask, so the
first holders are not swamped and copies double; whoever is later in line asks anyway after a while. Importing
works by the same line: the first imports at once, the next only when a chunk that another rack is known to hold
has not come into the rack for ``import_fallback_s`` per place. The line is a hint: a wrong view costs time or a
duplicate, never a chunk. Rejected: strict trees (one slow parent starves its branch; at 97 % load each
hop queues for tens of chunks).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from random import Random

from gossipd.swarm.availability import Availability
from gossipd.swarm.rendezvous import BUCKETS, bucket_of
from gossipd.swarm.settings import PlannerSettings


class IndexedSet:
    """A set of ints with O(1) add, discard and random sampling."""

    __slots__ = ("_items", "_where")

    def __init__(self) -> None:
        self._items: list[int] = []
        self._where: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item: int) -> bool:
        return item in self._where

    def __iter__(self) -> Iterator[int]:
        return iter(self._items)

    def add(self, item: int) -> None:
        """No effect when it is in."""
        if item not in self._where:
            self._where[item] = len(self._items)
            self._items.append(item)

    def discard(self, item: int) -> None:
        """No effect when it is not in."""
        at = self._where.pop(item, None)
        if at is None:
            return
        last = self._items.pop()
        if last != item:
            self._items[at] = last
            self._where[last] = at

    def sample(self, count: int, rng: Random) -> list[int]:
        """At most ``count`` members: a random run of the internal order, which swaps keep shuffled."""
        items = self._items
        size = len(items)
        if size <= count:
            return list(items)
        start = int(rng.random() * size)
        run = items[start : start + count]
        return run if len(run) == count else run + items[: count - len(run)]


class Demand:
    """What this host may ask for now. Chunks in flight are in neither set."""

    def __init__(self, availability: Availability, settings: PlannerSettings) -> None:
        self._availability = availability
        self._settings = settings
        self.near = IndexedSet()
        self.imports = IndexedSet()
        self.wanted = set[int]()  # neither held nor in flight
        self._places: list[int] = [0] * BUCKETS
        self._rack_places: list[int] = [0] * BUCKETS
        self._turns: list[tuple[float, int, bool]] = []  # (when, chunk, whether it is for an import)
        self._turn_set: set[tuple[int, bool]] = set()

    def want(self, chunks: Iterable[int]) -> None:
        """Neither held nor in flight (any more)."""
        self.wanted.update(chunks)

    def unwant(self, chunk: int) -> None:
        """Held or in flight now."""
        self.wanted.discard(chunk)
        self.near.discard(chunk)
        self.imports.discard(chunk)

    def set_places(self, places: list[int], rack_places: list[int], now: float, late_wait_s: float) -> None:
        """Duties have moved, so look again at every wanted chunk that somebody holds, or that may be asked for.

        Args:
            places: for each bucket our place in our rack's line, from 0.
            rack_places: for each bucket our rack's place among the racks.
        """
        self._places, self._rack_places = places, rack_places
        for chunk in list(self.imports):
            if places[bucket_of(chunk)] > 0:
                self.imports.discard(chunk)
        known = self._availability
        heard_of = {*known.near, *known.far, *self.near, *self.imports}
        for chunk in self.wanted if known.near_full or known.far_full else heard_of:
            self.consider(chunk, now, late_wait_s)

    def consider(self, chunk: int, now: float, late_wait_s: float) -> None:
        """A wanted chunk's holders have changed, or its fetch has ended: may it be asked for?

        Args:
            patience_s: how long one who is late in line waits.
        """
        if chunk not in self.wanted:
            return
        place = self._places[bucket_of(chunk)]
        holders = self._availability.near_count(chunk)
        if holders:
            self.imports.discard(chunk)
            if place <= self._settings.spread * holders or self._availability.near_full:
                self.near.add(chunk)
            elif chunk not in self.near:
                self._later(now + late_wait_s, chunk, importing=False)
            return
        self.near.discard(chunk)
        far = self._availability.far_count(chunk)
        if not far:
            self.imports.discard(chunk)
        elif place == 0:
            if self._rack_places[bucket_of(chunk)] < self._settings.spread_far * far:
                self.imports.add(chunk)
            elif chunk not in self.imports:
                self._later(now + late_wait_s, chunk, importing=True)
        elif chunk not in self.imports:
            wait_s = max(self._settings.import_fallback_s, 2 * late_wait_s)
            self._later(now + wait_s * min(place, 8), chunk, importing=True)

    def _later(self, due: float, chunk: int, *, importing: bool) -> None:
        key = (chunk, importing)
        if key not in self._turn_set:
            self._turn_set.add(key)
            heappush(self._turns, (due, chunk, importing))

    def take_turns(self, now: float) -> None:
        """Let those ask whose time in line is over."""
        while self._turns and self._turns[0][0] <= now:
            _, chunk, importing = heappop(self._turns)
            self._turn_set.discard((chunk, importing))
            if chunk not in self.wanted:
                continue
            if self._availability.near_count(chunk):
                self.near.add(chunk)
            elif importing and self._availability.far_count(chunk):
                self.imports.add(chunk)

    def next_turn(self) -> float | None:
        """When ``take_turns`` has something to do."""
        return self._turns[0][0] if self._turns else None
