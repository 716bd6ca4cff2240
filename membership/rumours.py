"""Rumours: bounded queues of items, each sent a limited number of times, in three classes with their own budgets.

Classes: membership (records, contradictions, accusations), statements, progress. Each has a byte budget per second, so
that none can starve another (memberlist drains system messages first, and user data starves, memberlist #299). Within a
class the item sent least goes first and, of equals, the newest. A newer item with the same key supersedes. Hearing an
item from another node counts as half a sending, because fewer nodes lack it then (not so statements, ``event_store``).

A writer that fills a queue waits behind the others: each of its items gives way to as many sendings as it has
``_EACH`` items in the queue already, and a full queue drops the oldest item of the writer that has most in it. Else one
member that writes faster than the budget would always be the newest, and nothing else would go out.

Budgets fill with time and hold half a second's worth, so that the worst second of one node stays bounded too; the
membership class also pays the cost of a datagram of nothing but rumours (``overhead``). A membership backlog above
``_BACKLOG`` bytes doubles the rate of its class, but not its burst.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass

MEMBERSHIP, STATEMENT, PROGRESS = 0, 1, 2
_BURST_S = 0.5
_BACKLOG = 5000  # thirteen crashes at once, with four accusations each
_URGENT_LEAD = 2.0  # a contradiction that waits behind accusations comes too late, and liars could cause that
_EACH = 16  # items of one writer that wait side by side: a host with as many deployments is no flood
_ROOM_MIN = 32  # smaller items do not exist
_TOO_LARGE_MAX = 4  # items passed over because they do not fit into this datagram


@dataclass(slots=True, eq=False)
class Rumour:
    """One item on its way."""

    key: Hashable
    writer: Hashable
    data: bytes
    number: int
    lag: int
    sent: float

    @property
    def turn(self) -> float:
        """Lower goes first."""
        return self.sent + self.lag


class RumourClass:
    """One queue and its budget. A heap of (turn, newest first) orders the rumours. Its entries stay when a rumour is
    superseded, discarded or heard again: a stale one that comes up is dropped or put back at its right place."""

    def __init__(self, bytes_per_s: float, length_max: int, *, doubles: bool = False) -> None:
        self._rate = bytes_per_s
        self._length_max = length_max
        self._doubles = doubles
        self._by_key: dict[Hashable, Rumour] = {}
        self._by_writer: dict[Hashable, dict[Hashable, None]] = {}  # their keys, oldest first
        self._heap: list[tuple[float, int, Rumour]] = []
        self._number = 0
        self._budget = bytes_per_s * _BURST_S
        self._at = 0.0
        self._backlog = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def add(self, key: Hashable, data: bytes, writer: Hashable, *, urgent: bool = False) -> bool:
        """Pass on from now; replaces the item with the same key. ``urgent`` items go before all others. False when
        its writer has so many on the way that this one need not begin a round of its own."""
        self.discard(key)
        if len(self._by_key) >= self._length_max:
            loudest = max(self._by_writer.values(), key=len)
            self.discard(next(iter(loudest)))  # the oldest has had its time
            self.dropped += 1
        self._number -= 1
        written = self._by_writer.setdefault(writer, {})
        lag = len(written) // _EACH
        rumour = Rumour(key, writer, data, self._number, lag, -_URGENT_LEAD if urgent else 0.0)
        self._by_key[key] = rumour
        written[key] = None
        self._backlog += len(data)
        self._push(rumour)
        if len(self._heap) > 4 * self._length_max:
            self._heap = [(rumour.turn, rumour.number, rumour) for rumour in self._by_key.values()]
            heapq.heapify(self._heap)
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
            if not written:
                del self._by_writer[rumour.writer]

    def take(self, room: int, limit: int, now: float, overhead: int = 0) -> list[bytes]:
        """Items for one datagram with ``room`` bytes left; each taking counts as one sending. ``overhead`` is the
        further cost of the datagram when it would not be sent without these items."""
        if not self._by_key:
            return []
        rate = self._rate * 2 if self._doubles and self._backlog > _BACKLOG else self._rate
        self._budget = min(self._rate * _BURST_S, self._budget + (now - self._at) * rate)
        self._at = now
        room = min(room, int(self._budget) - overhead)
        taken: list[Rumour] = []
        too_large: list[Rumour] = []
        while self._heap and room >= _ROOM_MIN and len(too_large) < _TOO_LARGE_MAX:
            turn, _, rumour = heapq.heappop(self._heap)
            if self._by_key.get(rumour.key) is not rumour:
                continue
            if rumour.turn != turn:
                self._push(rumour)
            elif len(rumour.data) > room:
                too_large.append(rumour)
            else:
                room -= len(rumour.data)
                taken.append(rumour)
        if taken:
            self._budget -= overhead
        for rumour in taken:
            self._budget -= len(rumour.data)
            rumour.sent += 1.0
            if rumour.sent >= limit:
                self.discard(rumour.key)
            else:
                self._push(rumour)
        for rumour in too_large:
            self._push(rumour)
        return [rumour.data for rumour in taken]

    def _push(self, rumour: Rumour) -> None:
        heapq.heappush(self._heap, (rumour.turn, rumour.number, rumour))


class Rumours:
    """The three classes together."""

    def __init__(self, rumour_bytes_per_s: int, statement_bytes_per_s: int, progress_bytes_per_s: int) -> None:
        self.membership = RumourClass(rumour_bytes_per_s, 8192, doubles=True)
        self.statements = RumourClass(statement_bytes_per_s, 4096)
        self.progress = RumourClass(progress_bytes_per_s, 8192)
        self.classes = (self.membership, self.statements, self.progress)

    def __bool__(self) -> bool:
        return bool(self.membership or self.statements or self.progress)

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
