"""Counters of this host for the metrics page: a cheap histogram, the lag of the event loop, frozen counts.

What lives here: a cheap histogram, the lag of the event loop, and the frozen counters that the daemon returns for a
scrape. What does not: figures of the whole cluster (``schema``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence

import trio
from msgspec import Struct, field

from gossipd.runtime.look_interval import next_look_s

# Seconds; from a 256 KiB chunk over a fast link to a 16 MiB chunk over a saturated one.
FETCH_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# Seconds; the aim is a p99 under 20 ms, and a probe of the membership times out at some hundred.
LAG_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)
LAG_INTERVAL_S = 1.0  # each sample costs a wake-up, which it shares with other tasks
LAG_WINDOW = 6_600  # a minute of samples, at the most that the turn loop adds (``runtime.turn_loop``)


class HistogramFigures(Struct, frozen=True):
    """``counts[i]`` observations were at most ``bounds[i]``; the last count is of those above all bounds."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class Histogram:
    """Observations by size. One thread writes, any may read."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def figures(self) -> HistogramFigures:
        return HistogramFigures(self._bounds, tuple(self._counts), self._total)


class LoopLag:
    """How late the trio loop wakes a due task: a delay that every probe and every frame suffers. A sample a
    second detects a loop that is stuck while nothing else is due. While a model moves, the turn loop adds its own
    wake-ups, because the samples alone would be too few for a p99."""

    def __init__(self) -> None:
        self.histogram = Histogram(LAG_BOUNDS_S)
        self._recent: deque[float] = deque(maxlen=LAG_WINDOW)

    async def run(self) -> None:
        """Never returns; cancelled with the daemon."""
        while True:
            due = next_look_s(LAG_INTERVAL_S)
            await trio.sleep_until(due)
            self.observe(trio.current_time() - due)

    def observe(self, late_s: float) -> None:
        self.histogram.observe(late_s)
        self._recent.append(late_s)

    def p99_s(self) -> float:
        """The 99th percentile of the last LAG_WINDOW samples, a minute or more; 0 without samples."""
        ordered = sorted(self._recent)
        return ordered[int(len(ordered) * 0.99)] if ordered else 0.0


class DeploymentCounters(Struct, frozen=True, kw_only=True):
    """The work of this host for one deployment. Keys are bounded words, never names of peers. ``received_bytes`` by
    origin, peer_rack, peer_far, disk; ``sent_bytes`` by rack, far; ``verify_failures`` and ``wasted_bytes`` by origin,
    peer, disk and by duplicate, corrupt, cancelled; ``chunks`` by held, missing, in_flight: requests to peers and
    storage that have not ended, of chunks that count as missing."""

    deployment: str
    received_bytes: Mapping[str, int] = field(default_factory=dict)
    sent_bytes: Mapping[str, int] = field(default_factory=dict)
    verify_failures: Mapping[str, int] = field(default_factory=dict)
    wasted_bytes: Mapping[str, int] = field(default_factory=dict)
    chunks: Mapping[str, int] = field(default_factory=dict)


class LocalCounters(Struct, frozen=True, kw_only=True):
    """The counters of this host that are not in the snapshot."""

    deployments: Sequence[DeploymentCounters] = ()
    source_requests: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By scheme and result: ok, throttled, failed, refused."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Refused connections and requests, by a bounded word: bad_mac, replay, stranger, inbox, status, ..."""
    uploads_failed: Mapping[str, int] = field(default_factory=dict)
    """Transfers from here that began and failed, by code."""
    control_bytes: Mapping[str, int] = field(default_factory=dict)
    """By ``sent`` and ``received``."""
    control_events: Mapping[str, int] = field(default_factory=dict)
    """Everything else that control links count, by a bounded word."""
    planner_events: int = 0
    planner_turns: int = 0
    credential_ends: Mapping[str, float] = field(default_factory=dict)
    """When credentials for storage end, by scheme, in seconds since 1970; of those whose end is known."""
    uploads_busy: int = 0
    uploads_max: int = 0
    buffers_busy_bytes: int = 0
    buffers_max_bytes: int = 0
    fetch_seconds: HistogramFigures | None = None
    loop_lag_seconds: HistogramFigures | None = None
