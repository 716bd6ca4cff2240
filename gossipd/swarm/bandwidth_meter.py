"""The receive rate that this host's own link has shown, and what a chunk takes at that rate.

What lives here: a peak-hold over short windows of received bytes. What does not: limits, which the adapters enforce.
Rejected: the rate of single fetches, because fetches share the link; to take a long time between two chunks for an idle
link, because large chunks on slow links would never be measured.
"""

from __future__ import annotations

_WINDOW_S = 0.25  # some ten chunk times of the smallest chunks at 100 Mbit/s
_WINDOW_CHUNKS = 10  # fewer come in bursts, which show the senders' pace, not the link's
_WINDOW_S_MAX = 2.5  # the longest first window: on slow links large chunks are too few for the bound above
_SLOW_WINDOW_CHUNKS = 20  # later ones that last longer: each begins with chunks half-way, which count whole
_WINDOW_BYTES = 512 * 1024  # less arrives before the link is full, and measures the time of asking
_DECAY = 0.99  # of the peak per window: it halves in 17 s, so a lowered limit shows within a minute; in slow windows,
# per _WINDOW_S_MAX of them, it halves in three minutes
_CHUNK_TIME_S_MIN = 0.0005
_CHUNK_TIME_S_MAX = 10.0


class BandwidthMeter:
    """Received bytes in, rate out."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._bytes = 0
        self._chunks = 0
        self._is_first = False
        self.waited_s = 0.0  # how long the first chunks have taken so far, in doubling steps; 0 when the rate is known
        self.rate = 0.0  # bytes/s, 0 while unknown
        self.version = 0  # changes with ``rate`` and ``waited_s``

    def expects(self, chunks: int, now: float) -> None:
        """Note that ``chunks`` are on their way here now. While none are, time says nothing about the link."""
        if not chunks:
            self._since_s = None
        elif self._since_s is None:
            self._since_s, self._bytes, self._chunks = now, 0, 0
            self._is_first = True
        elif not self.rate and now - self._since_s > 2 * self.waited_s:
            self.waited_s = min(_CHUNK_TIME_S_MAX, now - self._since_s)
            self.version += 1

    def received(self, length: int, now: float) -> None:
        """A chunk has come over the network. The first window begins with the first request where chunks take long: the
        chunks that share the link arrive together, and all but one of them would seem to take no time. Where chunks are
        quick it begins with the first arrival, because the time before that is mostly the time of asking."""
        if self._since_s is None:
            return
        if self._is_first:
            self._is_first = False
            if now - self._since_s < _WINDOW_S:
                self._since_s = now
                return
        self._bytes += length
        self._chunks += 1
        span = now - self._since_s
        if self._bytes < _WINDOW_BYTES or span < _WINDOW_S:
            return
        is_slow = span >= _WINDOW_S_MAX
        if self._chunks >= (_SLOW_WINDOW_CHUNKS if is_slow else _WINDOW_CHUNKS) or (is_slow and not self.rate):
            kept = self.rate * _DECAY ** max(1.0, span / _WINDOW_S_MAX)
            self.rate, self.waited_s = max(kept, self._bytes / span), 0.0
            self.version += 1
            self._since_s, self._bytes, self._chunks = now, 0, 0

    def chunk_time_s(self, chunk_bytes: int, fallback_s: float) -> float:
        """What a chunk takes when it has the link for itself; ``fallback_s`` while nothing has been measured."""
        if not self.rate:
            return fallback_s
        return min(_CHUNK_TIME_S_MAX, max(_CHUNK_TIME_S_MIN, chunk_bytes / self.rate))
