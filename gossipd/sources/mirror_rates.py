"""Which mirror a read goes to, and when a request is so slow that it is better made again.

Values only, one ``MirrorRates`` for all hosts. What does not live here: whether a host may be asked (``host_pace``).

Of each mirror two rates are smoothed: what one request brought per second, and that times the requests that were under
way, which is what the mirror has for all. The next request is expected to get the lesser of the first and its part of
the second. A read goes to the mirror where it is expected to get most, but not where it is expected to take four times
as long as elsewhere: then it waits. So mirrors end up with as many requests as their rates allow. A mirror of unknown
rate gets one request. One that fails, or has been given up as slow, is left alone for a while that doubles; one that
has sent wrong bytes for longer.

A request is slow when it has waited much longer than usual and has brought a quarter of the expected at most, in all
and of late. Each that is given up lowers what is expected, so that a slow-down of all is soon the usual.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from msgspec import Struct

_SMOOTHING = 0.2
_SHARE = 4.0  # a mirror that is slower than the best by this is not used; a request that is, is given up
_PATIENCE = 3.0  # times the usual before a request can be slow: a queue, a lost packet
LOOKED_S_MIN = 0.4  # nothing is slow before: several round trips, and a loss that is repaired
_LOWERED = 0.8
_ALONE_S_MIN = 5.0
_ALONE_S_MAX = 300.0
_LIED_S = 60.0
_KEYS_MAX = 1024
_KNOWN_S = 60.0  # a rate is known for this long; then one request finds it out again


class _Rates(Struct):
    one: float = 0.0  # bytes per second of one request; 0 is unknown
    all: float = 0.0
    assigned: int = 0  # reads that go there now
    alone_until: float = -inf
    alone_s: float = _ALONE_S_MIN
    rivals: tuple[str, ...] = ()  # mirrors that could have been chosen instead, the last time
    known_until: float = -inf

    def expected(self, requests: int) -> float:
        return min(self.one, self.all / max(1, requests))


class Brought(Struct, frozen=True):
    """What a request for ``length`` bytes has brought, in all and of late, in the seconds that were waited for it."""

    length: int
    received: int
    waited_s: float
    lately_bytes: int
    lately_s: float


class MirrorRates:
    """By the key of a mirror."""

    def __init__(self) -> None:
        self._rates: dict[str, _Rates] = {}

    def choose(self, places: dict[str, int], now: float) -> str | None:
        """The mirror for the next read. None: wait, each is in use as far as it makes sense. ``assign`` must follow.

        Args:
            places: mirrors that may be used, and how many reads each may have now; none for one that may not be asked
                at present. In the order of the manifest, which decides between equals.
        """
        left_alone = {key for key in places if now < self._of(key).alone_until}
        usable = [key for key in places if key not in left_alone] or list(places)
        known = [self._of(key).expected(self._of(key).assigned + 1) for key in usable]
        best = max(known, default=0.0)
        chosen, most = None, -1.0
        for key, expected in zip(usable, known, strict=True):
            rates = self._of(key)
            if rates.assigned >= places[key]:
                continue
            if now >= rates.known_until:
                if rates.assigned:
                    continue
                expected = inf
            if expected > most and expected >= best / _SHARE:
                chosen, most = key, expected
        return chosen

    def assign(self, key: str, rivals: Iterable[str] = ()) -> None:
        """A read goes there that may go to ``rivals`` as well; ``release`` must follow."""
        rates = self._of(key)
        rates.assigned += 1
        rates.rivals = tuple(rivals)

    def release(self, key: str) -> None:
        """The read is over."""
        rates = self._of(key)
        rates.assigned = max(0, rates.assigned - 1)

    def came(self, key: str, byte_count: int, waited_s: float, requests: int, now: float) -> None:
        """A request brought bytes while so many were under way on average, itself included."""
        rates = self._of(key)
        one = byte_count / max(waited_s, 1e-6)
        weight = _SMOOTHING if rates.one else 1.0
        rates.one += weight * (one - rates.one)
        rates.all += weight * (one * max(1, requests) - rates.all)
        rates.known_until = now + _KNOWN_S

    def failed(self, key: str, now: float) -> None:
        """A read from there ended without its bytes: others are asked first for a while."""
        self._leave_alone(key, now, self._of(key).alone_s)

    def lied(self, key: str, now: float) -> None:
        """The mirror sent wrong bytes."""
        rates = self._of(key)
        rates.alone_s = max(_LIED_S, rates.alone_s)
        self._leave_alone(key, now, rates.alone_s)

    def is_left_alone(self, key: str, now: float) -> bool:
        """Whether others are asked first."""
        return now < self._of(key).alone_until

    def has_rival(self, key: str, now: float) -> bool:
        """Whether another mirror could have been chosen the last time that is not left alone now."""
        return any(other != key and not self.is_left_alone(other, now) for other in self._of(key).rivals)

    def is_slow(self, key: str, brought: Brought, requests: int) -> bool:
        """Whether a request has brought so little, in all and of late, that it should be made again."""
        rates = self._of(key)
        best = max((self._rates[other].one for other in rates.rivals if other in self._rates), default=0.0)
        expected = rates.expected(requests) or best
        if not expected or brought.waited_s < max(LOOKED_S_MIN, _PATIENCE * brought.length / expected):
            return False
        is_moving = brought.lately_bytes * _SHARE >= expected * brought.lately_s
        return not is_moving and brought.received * _SHARE < expected * brought.waited_s

    def given_up(self, key: str) -> None:
        """A request was given up as slow."""
        rates = self._of(key)
        rates.one *= _LOWERED
        rates.all *= _LOWERED

    def _leave_alone(self, key: str, now: float, seconds: float) -> None:
        rates = self._of(key)
        if now >= rates.alone_until:
            rates.alone_until = now + seconds
            rates.alone_s = min(_ALONE_S_MAX, 2 * rates.alone_s)

    def _of(self, key: str) -> _Rates:
        found = self._rates.get(key)
        if found is None:
            while len(self._rates) >= _KEYS_MAX:
                del self._rates[next(iter(self._rates))]
            found = self._rates[key] = _Rates()
        return found
