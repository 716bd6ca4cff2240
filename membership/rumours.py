"""Rumours: bounded queues of items, each sent a limited number of times, in three classes with their own budgets.

Classes: membership (records, contradictions, accusations), statements, progress. Each has a byte budget per second, so
that none can starve another (memberlist drains system messages first, and user data starves, memberlist #299). Within a
class the item sent least goes first and, of equals, the newest. A newer item with the same key supersedes. Hearing an
item from another node counts as half a sending, because fewer nodes lack it then (not so statements, ``event_store``).

A writer that fills a queue waits behind the others: each of its items gives way to as many sendings as it has
``_EACH`` items in the queue already, and a full queue drops the oldest item of the writer that has most in it. Else one
member that writes faster than the budget would always be the newest, and nothing else would go out. Half of what a
budget holds at most is kept for writers that have taken little of it lately, and their items go before those of a
*loud* one, which has taken more: what one member writes must not use up what others need to be heard at once.

Budgets fill with time and hold half a second's worth, so that the worst second of one node stays bounded too; the
membership class also pays the cost of a datagram of nothing but rumours (``overhead``). A membership backlog above
``_BACKLOG`` bytes doubles the rate of its class, but not its burst.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Hashable

from msgspec import Struct

from membership.writer_counts import WriterCounts

MEMBERSHIP, STATEMENT, PROGRESS = 0, 1, 2
_BURST_S = 0.5
_BACKLOG = 5000  # thirteen crashes at once, with four accusations each
_URGENT_LEAD = 2.0  # a contradiction that waits behind accusations comes too late, and liars could cause that
_EACH = 16  # items of one writer that wait side by side: a host with as many deployments is no flood
_LOUD_LAG = 16  # above the sendings of any item, so that a loud writer's come after all others
_RESERVE = 0.5  # of what a budget holds at most, for writers that are not loud; one is that has taken as much
_QUIET = 0.25  # the same, below which it is loud no longer
_TAKEN_SPARE = 64  # writers whose bytes have come back and that are still in the table, while none is loud
_TOO_LARGE_MAX = 4  # items passed over because they do not fit into this datagram


class Rumour(Struct, eq=False):
    """One item on its way."""

    key: Hashable
    writer: Hashable
    data: bytes
    number: int
    lag: int
    extra: int
    sent: float


class _Spending:
    """Bytes of the budget that each writer has taken lately: they come back at half of the rate."""

    def __init__(self, bytes_per_s: float) -> None:
        self._back_per_s = bytes_per_s / 2
        self._loud_bytes = bytes_per_s * _BURST_S * _RESERVE
        self._quiet_bytes = bytes_per_s * _BURST_S * _QUIET
        self._taken: dict[Hashable, tuple[float, float]] = {}  # bytes, and when that was; those above 0
        self.loud: set[Hashable] = set()

    def take(self, writer: Hashable, count: int, now: float) -> None:
        """A writer's item is sent."""
        taken = min(self._left(writer, now) + count, 2 * self._loud_bytes)
        self._taken[writer] = (taken, now)
        if taken > self._loud_bytes:
            self.loud.add(writer)

    def settle(self, now: float) -> bool:
        """Forget what has come back. Whether a writer is loud no longer."""
        if not self.loud and len(self._taken) <= _TAKEN_SPARE:
            return False
        is_one_quiet = False
        for writer in list(self._taken):
            left = self._left(writer, now)
            if left < self._quiet_bytes and writer in self.loud:
                self.loud.remove(writer)
                is_one_quiet = True
            if not left:
                del self._taken[writer]
        return is_one_quiet

    def is_loud(self, writer: Hashable) -> bool:
        """Whether it has taken more than its part; as of the last ``settle``."""
        return writer in self.loud

    def _left(self, writer: Hashable, now: float) -> float:
        taken, at = self._taken.get(writer, (0.0, now))
        return max(0.0, taken - (now - at) * self._back_per_s)


class RumourClass:
    """One queue and its budget. A heap of (turn, newest first) orders the rumours. Its entries stay when a rumour is
    superseded, discarded or heard again: a stale one that comes up is dropped or put back at its right place."""

    def __init__(self, bytes_per_s: float, length_max: int, *, doubles: bool = False) -> None:
        self._rate = bytes_per_s
        self._length_max = length_max
        self._doubles = doubles
        self._by_key: dict[Hashable, Rumour] = {}
        self._by_writer: dict[Hashable, dict[Hashable, None]] = {}  # their keys, oldest first
        self._counts: WriterCounts[Hashable] = WriterCounts()
        self._heap: list[tuple[float, int, Rumour]] = []
        self._number = 0
        self._least_bytes = sys.maxsize  # no item is smaller
        self._budget = bytes_per_s * _BURST_S
        self._reserve = int(self._budget * _RESERVE)
        self._spending = _Spending(bytes_per_s)
        self._at = 0.0
        self._backlog = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def add(self, key: Hashable, data: bytes, writer: Hashable, *, urgent: bool = False, extra: int = 0) -> bool:
        """Pass on from now; replaces the item with the same key. ``urgent`` items go before all others; an item is
        sent ``extra`` times more than the limit says. False when its writer has so many on the way that this one need
        not begin a round of its own."""
        self.discard(key)
        if len(self._by_key) >= self._length_max:
            oldest = next(iter(self._by_writer[self._counts.loudest]))
            self.discard(oldest)  # it has had its time
            self.dropped += 1
        self._number -= 1
        written = self._by_writer.setdefault(writer, {})
        lag = len(written) // _EACH
        rumour = Rumour(key, writer, data, self._number, lag, extra, -_URGENT_LEAD if urgent else 0.0)
        self._by_key[key] = rumour
        written[key] = None
        self._counts.change(writer, 1)
        self._backlog += len(data)
        self._least_bytes = min(self._least_bytes, len(data))
        self._push(rumour)
        if len(self._heap) > 4 * self._length_max:
            self._sort()
        return lag == 0

    def item_of(self, key: Hashable) -> bytes | None:
        """The item while it is passed on."""
        rumour = self._by_key.get(key)
        return None if rumour is None else rumour.data

    def heard_again(self, key: Hashable) -> None:
        """Another node told us this item."""
        rumour = self._by_key.get(key)
        if rumour is not None:
            rumour.sent += 0.5

    def discard(self, key: Hashable) -> None:
        """Stop passing it on."""
        rumour = self._by_key.pop(key, None)
        if rumour is not None:
            self._backlog -= len(rumour.data)
            written = self._by_writer[rumour.writer]
            del written[key]
            self._counts.change(rumour.writer, -1)
            if not written:
                del self._by_writer[rumour.writer]
            if not self._by_key:
                self._heap, self._least_bytes = [], sys.maxsize

    def take(self, room: int, limit: int, now: float, overhead: int = 0) -> list[bytes]:
        """Items for one datagram with ``room`` bytes left; each taking counts as one sending. ``overhead`` is the
        further cost of the datagram when it would not be sent without these items."""
        if not self._by_key:
            return []
        rate = self._rate * 2 if self._doubles and self._backlog > _BACKLOG else self._rate
        self._budget = min(self._rate * _BURST_S, self._budget + (now - self._at) * rate)
        self._at = now
        if self._spending.settle(now):
            self._sort()
        left = int(self._budget) - overhead
        taken = self._choose(min(room, left), left - self._reserve)
        if taken:
            self._budget -= overhead
        for rumour in taken:
            self._budget -= len(rumour.data)
            self._spending.take(rumour.writer, len(rumour.data), now)
            rumour.sent += 1.0
            if rumour.sent >= limit + rumour.extra:
                self.discard(rumour.key)
            else:
                self._push(rumour)
        return [rumour.data for rumour in taken]

    def _choose(self, room: int, spare: int) -> list[Rumour]:
        """Those that go first of what fits into ``room`` bytes; off the heap. A loud writer's fit into ``spare``."""
        taken: list[Rumour] = []
        too_large: list[Rumour] = []
        heap, by_key = self._heap, self._by_key
        while heap and room >= self._least_bytes and len(too_large) < _TOO_LARGE_MAX:
            turn, _, rumour = heapq.heappop(heap)
            if by_key.get(rumour.key) is not rumour:
                continue
            size = len(rumour.data)
            if self._turn(rumour) != turn:
                self._push(rumour)
            elif size > spare and self._spending.is_loud(rumour.writer):
                too_large.append(rumour)
                break  # only such writers' items come after it
            elif size > room:
                too_large.append(rumour)
            else:
                room -= size
                spare -= size
                taken.append(rumour)
        for rumour in too_large:
            self._push(rumour)
        return taken

    def _turn(self, rumour: Rumour) -> float:
        """Lower goes first."""
        turn = rumour.sent + rumour.lag
        return turn + _LOUD_LAG if self._spending.loud and self._spending.is_loud(rumour.writer) else turn

    def _sort(self) -> None:
        """Drop stale entries, and move up what has an earlier turn than it had."""
        self._heap = [(self._turn(rumour), rumour.number, rumour) for rumour in self._by_key.values()]
        heapq.heapify(self._heap)

    def _push(self, rumour: Rumour) -> None:
        heapq.heappush(self._heap, (self._turn(rumour), rumour.number, rumour))


class Rumours:
    """The three classes together."""

    def __init__(self, rumour_bytes_per_s: int, statement_bytes_per_s: int, progress_bytes_per_s: int) -> None:
        self.membership = RumourClass(rumour_bytes_per_s, 8192, doubles=True)
        self.statements = RumourClass(statement_bytes_per_s, 4096)
        self.progress = RumourClass(progress_bytes_per_s, 8192)
        self.classes = (self.membership, self.statements, self.progress)

    def __bool__(self) -> bool:
        return any(map(len, self.classes))

    def take(self, room: int, limit: int, now: float, overhead: int = 0) -> bytes:
        """As much as fits into ``room`` bytes; while several classes wait, each takes a share."""
        if not self:
            return b""
        parts: list[bytes] = []
        left = room
        for index, queue in enumerate(self.classes):
            waiting = any(self.classes[index + 1 :])
            share = (left * 2 // 3 if index == MEMBERSHIP else left // 2) if waiting else left
            items = queue.take(share, limit, now, overhead if index == MEMBERSHIP else 0)
            parts += items
            left -= sum(map(len, items))
        return b"".join(parts)
