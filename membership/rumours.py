"""What is passed on: bounded queues of items, each sent a limited number of times, in three classes with own budgets.

Classes: membership (records, contradictions, accusations), statements, progress. Each has a byte budget per second,
so none can starve another (memberlist drains system messages first, and user data starves at 1,000 members,
memberlist #299). Within a class the least-sent go first and, of those, the newest. A newer item with the same key
supersedes; hearing an item again from others counts as half a sending, because it is then less news than we thought.

Budgets are buckets that fill with time and hold half a second's worth, so that the worst second of one node stays
bounded too; a membership backlog above ``_BACKLOG`` bytes (forty crashes at once) doubles the rate for its class.
"""

from __future__ import annotations

from collections.abc import Hashable

MEMBERSHIP, STATEMENT, PROGRESS = 0, 1, 2
_BURST_S = 0.5
_BACKLOG = 6000
_URGENT_LEAD = 2.0  # a contradiction that waits behind accusations comes too late: liars could see to that
_QUEUE_MAX = (8192, 4096, 8192)


class Rumour:
    """One item on its way."""

    __slots__ = ("data", "key", "sent")

    def __init__(self, key: Hashable, data: bytes) -> None:
        self.key = key
        self.data = data
        self.sent = 0.0


class RumourClass:
    """One queue and its budget."""

    def __init__(self, bytes_per_s: float, length_max: int) -> None:
        self._rate = bytes_per_s
        self._length_max = length_max
        self._by_key: dict[Hashable, Rumour] = {}
        self._budget = bytes_per_s * _BURST_S
        self._at = 0.0
        self._backlog = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def add(self, key: Hashable, data: bytes, *, urgent: bool = False) -> None:
        """Pass on from now; replaces what has the same key. ``urgent`` goes before all that is not."""
        old = self._by_key.pop(key, None)
        if old is not None:
            self._backlog -= len(old.data)
        rumour = self._by_key[key] = Rumour(key, data)
        if urgent:
            rumour.sent = -_URGENT_LEAD
        self._backlog += len(data)
        if len(self._by_key) > self._length_max:
            most_sent = max(self._by_key.values(), key=lambda rumour: rumour.sent)
            self.discard(most_sent.key)
            self.dropped += 1

    def heard_again(self, key: Hashable) -> None:
        """Somebody told us what we are telling."""
        rumour = self._by_key.get(key)
        if rumour is not None:
            rumour.sent += 0.5

    def discard(self, key: Hashable) -> None:
        """Stop passing it on."""
        rumour = self._by_key.pop(key, None)
        if rumour is not None:
            self._backlog -= len(rumour.data)

    def take(self, room: int, limit: int, now: float) -> list[bytes]:
        """Items for one datagram with ``room`` bytes left; each taking counts as one sending."""
        if not self._by_key:
            return []
        rate = self._rate * 2 if self._backlog > _BACKLOG else self._rate
        self._budget = min(rate * _BURST_S, self._budget + (now - self._at) * rate)
        self._at = now
        room = min(room, int(self._budget))
        if room < 32:
            return []
        rumours = list(self._by_key.values())
        if len(rumours) > 1:
            rumours.reverse()  # newest first among the equally often sent: sorting is stable
            rumours.sort(key=_sent)
        taken: list[bytes] = []
        for rumour in rumours:
            size = len(rumour.data)
            if size > room:
                if room < 64:
                    break
                continue
            room -= size
            self._budget -= size
            taken.append(rumour.data)
            rumour.sent += 1.0
            if rumour.sent >= limit:
                self.discard(rumour.key)
        return taken


def _sent(rumour: Rumour) -> float:
    return rumour.sent


class Rumours:
    """The three classes together."""

    def __init__(self, rumour_bytes_per_s: int, statement_bytes_per_s: int, progress_bytes_per_s: int) -> None:
        rates = (rumour_bytes_per_s, statement_bytes_per_s, progress_bytes_per_s)
        self.classes = tuple(RumourClass(rate, size) for rate, size in zip(rates, _QUEUE_MAX, strict=True))
        self.membership, self.statements, self.progress = self.classes

    def __bool__(self) -> bool:
        return bool(self.membership or self.statements or self.progress)

    def take(self, room: int, limit: int, now: float) -> bytes:
        """As much as fits into ``room`` bytes: while others wait, each class takes a share."""
        if not self:
            return b""
        parts: list[bytes] = []
        left = room
        for index, queue in enumerate(self.classes):
            waiting = any(self.classes[index + 1 :])
            share = (left * 2 // 3 if index == MEMBERSHIP else left // 2) if waiting else left
            # Progress is superseded within seconds and may be lost: half of the sendings is enough.
            items = queue.take(share, limit if index != PROGRESS else max(3, limit // 2), now)
            parts += items
            left -= sum(map(len, items))
        return b"".join(parts)
