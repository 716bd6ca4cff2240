"""Figures of one host that only grow, and how long things take: what the daemon counts and ``metrics`` shows.

What lives here: a histogram that is cheap to feed, the measure of the loop's lag, and the frozen set of figures that a
daemon hands over when it is scraped. What does not: the figures of the whole cluster (``schema``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import trio

# Seconds; from a 256 KiB chunk over a fast link to a 16 MiB chunk over a saturated one.
FETCH_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# Seconds; the aim is a p99 under 20 ms, and a probe of the membership times out at some hundred.
LAG_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)
LAG_INTERVAL_S = 0.1  # each look costs some 0.25 ms of waking up and going to sleep again
LAG_INTERVAL_AWAKE_S = 1.0  # while the beat looks ten times as often
LAG_WINDOW = 6_600  # a minute of looks and of beats at their most (``runtime.turn_loop``)


@dataclass(frozen=True, slots=True)
class HistogramFigures:
    """``counts[i]`` observations were at most ``bounds[i]``; the last count is of those above all bounds."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class Histogram:
    """Observations by size. Fed by one thread; read by any."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def figures(self) -> HistogramFigures:
        """What has been observed so far."""
        return HistogramFigures(self._bounds, tuple(self._counts), self._total)


class LoopLag:
    """How late the trio loop wakes a task that is due: the delay that every probe and every frame suffers too.

    Looks of its own, ten a second, see a loop that is stuck while nothing else is due. While a model moves the beat
    adds its wake-ups, which cost nothing to look at: 30 looks in the 3 s of a 2 GB model made a maximum of the p99.
    """

    def __init__(self) -> None:
        self.histogram = Histogram(LAG_BOUNDS_S)
        self._recent: deque[float] = deque(maxlen=LAG_WINDOW)
        self._count = 0
        self._interval_s = LAG_INTERVAL_S

    async def run(self) -> None:
        """Never returns; cancelled with the daemon."""
        while True:
            others = self._count
            due = trio.current_time() + self._interval_s
            await trio.sleep_until(due)
            is_looked_at = self._count - others >= self._interval_s / LAG_INTERVAL_S
            self._interval_s = LAG_INTERVAL_AWAKE_S if is_looked_at else LAG_INTERVAL_S
            self.observe(trio.current_time() - due)

    def observe(self, late_s: float) -> None:
        """Count one wake-up that came ``late_s`` after it was due."""
        self._count += 1
        self.histogram.observe(late_s)
        self._recent.append(late_s)

    def p99_s(self) -> float:
        """The 99th percentile of the last LAG_WINDOW looks, a minute or more; 0 before the first observation."""
        ordered = sorted(self._recent)
        return ordered[int(len(ordered) * 0.99)] if ordered else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentCounters:
    """What this host did for one deployment. The keys are bounded words, never names of peers.

    ``received_bytes`` by origin, peer_rack, peer_far, disk; ``sent_bytes`` by rack, far; ``verify_failures`` and
    ``wasted_bytes`` by origin, peer, disk and by duplicate, corrupt, cancelled; ``chunks`` by held, missing, in_flight.
    """

    deployment: str
    received_bytes: Mapping[str, int] = field(default_factory=dict)
    sent_bytes: Mapping[str, int] = field(default_factory=dict)
    verify_failures: Mapping[str, int] = field(default_factory=dict)
    wasted_bytes: Mapping[str, int] = field(default_factory=dict)
    chunks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCounters:
    """Everything of this host that is not in the snapshot."""

    deployments: Sequence[DeploymentCounters] = ()
    source_requests: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By scheme and result: ok, throttled, failed, refused."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """What was turned away at the doors, by a bounded word: bad_mac, replay, stranger, inbox, status, ..."""
    uploads_busy: int = 0
    uploads_max: int = 0
    buffers_busy_bytes: int = 0
    buffers_max_bytes: int = 0
    fetch_seconds: HistogramFigures | None = None
    loop_lag_seconds: HistogramFigures | None = None
