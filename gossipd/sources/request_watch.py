"""One request for a range of a source, compared with others while it lasts.

What lives here: what the request has brought of late, and the error that ends it. What does not: what is expected of it
(``mirror_rates``), and making it again (``reader``).

A request is made again only on evidence that it does not move: a server has sent most of the range by then, and sends
it again. So the time until the first bytes counts only while it lasts; one that was answered late and moves is over
sooner than a new one. After the first bytes, what has come since the last look counts, and all that has come.
"""

from __future__ import annotations

from typing import Protocol

from gossipd.sources.errors import SourceSlowError
from gossipd.sources.location import Location
from gossipd.sources.mirror_rates import LOOKED_S_MIN, Brought

_LATELY_S = 0.2  # of waiting: less may be one burst
_REST_MIN = 64 * 1024  # bytes; fewer are here before a new request is answered, and up to 8 KiB came with the head


class Comparison(Protocol):
    """What is known of requests like this one. Thread-safe."""

    def is_slow(self, mirror: str, location: Location, brought: Brought) -> bool:
        """Whether it has brought so little that it should be made again."""

    def given_up(self, mirror: str) -> None:
        """It was given up as slow."""


class RequestWatch:
    """Owned by the thread that reads."""

    def __init__(self, comparison: Comparison, mirror: str, location: Location, length: int) -> None:
        self._comparison, self._mirror, self._location, self._length = comparison, mirror, location, length
        self._before: tuple[int, float] | None = None  # bytes and seconds at the last look that had any

    def look(self, received: int, waited_s: float) -> bool:
        """Whether the request is slow, by what has come since the look before, too; call it while bytes come and while
        none come. ``received``: all so far, in ``waited_s`` seconds of waiting for the source."""
        lately_bytes, lately_s = received, waited_s
        if self._before is not None:
            lately_bytes, lately_s = received - self._before[0], waited_s - self._before[1]
            if lately_s < _LATELY_S:
                return False
        if received:
            is_first, self._before = self._before is None, (received, waited_s)
            if is_first:
                return False
        is_ending = lately_bytes > 0 and self._length - received < _REST_MIN
        if waited_s < LOOKED_S_MIN or is_ending:
            return False
        brought = Brought(self._length, received, waited_s, lately_bytes, lately_s)
        return self._comparison.is_slow(self._mirror, self._location, brought)

    def given_up(self, received: int, waited_s: float) -> SourceSlowError:
        """The request is ended: the error to raise."""
        self._comparison.given_up(self._mirror)
        return SourceSlowError(
            self._location.shown, f"{received} bytes in {waited_s:.1f} s, when other requests were far quicker"
        )
