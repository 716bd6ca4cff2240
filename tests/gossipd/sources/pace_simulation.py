"""Hosts with limits and readers with a ``Pace`` on a virtual clock: how close the paces come to what a host allows.

No thread, socket or clock. A reader has several workers; each asks its pace, waits as told, and repeats what was
refused after the pause that ``SourceAdmission.take_retry`` would give.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from gossipd.sources.host_pace import Pace, Turn
from gossipd.sources.settings import SourceSettings

ROUND_TRIP_S = 0.002
WORKERS = 8  # the default of ``sources.connections``


@dataclass
class Host:
    """A storage server: what it allows, and what it has seen."""

    connections: int = 0
    requests_per_s: float = 0.0
    burst: int = 1
    status: int = 503
    retry_after_s: float | None = None
    refuses_each: int = 0
    refuses_when: Callable[[float], bool] = lambda _: False
    under_way: int = 0
    requests: int = 0
    refused: int = 0
    most_at_once: int = 0
    _tokens: float = 0.0
    _at: float = 0.0

    def __post_init__(self) -> None:
        self._tokens = float(self.burst)

    def asked(self, now: float) -> bool:
        """Whether a request is answered; then ``under_way`` counts it."""
        self.requests += 1
        if self.requests_per_s:
            self._tokens = min(float(self.burst), self._tokens + (now - self._at) * self.requests_per_s)
            self._at = now
        is_refused = bool(self.connections) and self.under_way >= self.connections
        is_refused = is_refused or (bool(self.requests_per_s) and self._tokens < 1.0)
        is_refused = is_refused or (self.refuses_when(now) and self.requests % self.refuses_each == 0)
        if is_refused:
            self.refused += 1
            return False
        self._tokens -= 1.0
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        return True


@dataclass
class Reader:
    """Workers that share a pace."""

    pace: Pace
    done: int = 0
    idle: deque[int] = field(default_factory=deque)
    repeats: dict[int, int] = field(default_factory=dict)


class Simulation:
    """``seeds`` readers with ``reads`` for all, as they help each other; a read takes ``read_s``. Each seed begins
    ``late_s`` after the one before.
    """

    def __init__(
        self, host: Host, *, reads: int, read_s: float, seeds: int = 1, late_s: float = 0.0, rng: int = 1
    ) -> None:
        self.host = host
        self._late_s = late_s
        self.now = 0.0
        self._read_s = read_s
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._rng = Random(rng)
        self._reads = reads
        self.readers = [Reader(Pace(SourceSettings(), Random(rng + seed))) for seed in range(seeds)]
        for reader in self.readers:
            reader.idle.extend(range(WORKERS))

    def run(self, most_s: float = 1000.0) -> float:
        """Seconds until all reads are done."""
        for place, reader in enumerate(self.readers):
            self._at(place * self._late_s, partial(self._try, reader))
        while self._queue and self.now < most_s:
            self.now, _, act = heapq.heappop(self._queue)
            act()
            if sum(reader.done for reader in self.readers) >= self._reads:
                return self.now
        return self.now

    def _at(self, delay_s: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now + delay_s, self._count, act))

    def _try(self, reader: Reader) -> None:
        """Let waiting workers ask, as after each notification."""
        while reader.idle and self._begun() < self._reads:
            wait_s = reader.pace.wait_s(self.now)
            if wait_s > 0.0:
                self._at(min(wait_s, 0.1) + self._rng.uniform(0, 0.002), lambda: self._try(reader))
                return
            worker = reader.idle.popleft()
            turn = reader.pace.begin(self.now)
            self._at(ROUND_TRIP_S / 2, partial(self._arrives, reader, worker, turn))

    def _begun(self) -> int:
        return sum(reader.done + reader.pace.connections.under_way for reader in self.readers)

    def _arrives(self, reader: Reader, worker: int, turn: Turn) -> None:
        if self.host.asked(self.now):
            self._at(ROUND_TRIP_S / 2, lambda: reader.pace.answered(turn, self.now))
            self._at(self._read_s * self._rng.uniform(0.9, 1.1), lambda: self._left(reader, worker, turn))
        else:
            self._at(ROUND_TRIP_S / 2, lambda: self._was_refused(reader, worker, turn))

    def _left(self, reader: Reader, worker: int, turn: Turn) -> None:
        self.host.under_way -= 1
        reader.pace.answered(turn, self.now)
        reader.pace.ended(turn, is_good=True)
        reader.done += 1
        reader.repeats.pop(worker, None)
        reader.idle.append(worker)
        self._try(reader)

    def _was_refused(self, reader: Reader, worker: int, turn: Turn) -> None:
        pace = reader.pace
        pace.refused(turn, self.now, is_too_many=self.host.status == 429, retry_after_s=self.host.retry_after_s)
        pace.failed(turn, self.now, self.host.retry_after_s)
        pace.ended(turn, is_good=False)
        repeats = reader.repeats[worker] = reader.repeats.get(worker, 0) + 1
        pause_s = 0.0 if pace.failures else pace.pause_s(min(1, repeats - 1))
        if not pace.take_retry():
            pause_s = 2.0  # the planner's

        def again() -> None:
            reader.idle.append(worker)
            self._try(reader)

        self._at(pause_s, again)
        self._try(reader)
