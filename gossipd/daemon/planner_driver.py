"""The planner's turn: events in from anywhere, commands out to one place.

Worker threads and the trio loop post events; the planner hears them in batches, plans, and its commands are
performed, all in one turn of the loop (``runtime.turn_loop``), so that there are no locks and no part can call back in.

Why batches: with 256 KiB chunks on a fast link thousands of events a second arrive, and one plan over a
batch costs little more than one over a single event.
"""

from __future__ import annotations

import math
from collections import deque
from functools import partial
from heapq import heappop, heappush
from time import monotonic
from typing import Protocol

import trio

from gossipd.core.events import Command, Event
from gossipd.runtime.turn_loop import Phase, TurnLoop
from gossipd.swarm.planner import Planner


class PlannerPort(Protocol):
    """What surrounds the planner. Called on the trio loop; nothing waits."""

    def note(self, event: Event) -> None:
        """An event that the planner hears next, for counting."""

    def perform(self, command: Command) -> None:
        """Begin what the planner wants."""

    def start_threads(self) -> None:
        """The end of a turn: what ``perform`` left to threads begins now."""


class PlannerDriver:
    """Feeds one Planner. ``post`` may be called from any thread; all else belongs to the trio loop."""

    def __init__(self, planner: Planner, turn_loop: TurnLoop) -> None:
        self.planner = planner
        self._turn_loop = turn_loop
        self._events: deque[Event] = deque()  # bounded by work in flight: every event answers a command or a peer
        self._later: deque[tuple[float, Event]] = deque()  # by the monotonic clock; bounded as ``_events``
        self._timed: list[tuple[float, int, Event]] = []  # a heap, by the loop's clock and in the order of posting
        self._timed_count = 0
        self._due_s = -math.inf  # fixed at each plan: the planner counts some deadlines from when it is asked

    def post(self, event: Event, in_s: float = 0.0) -> None:
        """Give an event to the planner, in so many seconds, from any thread. Those of one thread that are given at once
        keep their order."""
        if in_s > 0:
            self._later.append((monotonic() + in_s, event))
        else:
            self._events.append(event)
        self._turn_loop.wake_from_thread()

    async def run(self, port: PlannerPort) -> None:
        """Never returns; cancelled with the daemon."""

        def start(now: float) -> bool:
            port.start_threads()
            return False

        deciding = self._turn_loop.joined(Phase.DECIDE, partial(self._turn, port), due_s=self._next_due_s)
        with deciding, self._turn_loop.joined(Phase.START, start):
            await trio.sleep_forever()

    def look_again(self) -> None:
        """The planner was told something other than by an event: plan soon. On the trio loop."""
        self._due_s = -math.inf
        self._turn_loop.wake()

    def _next_due_s(self) -> float:
        return min(self._due_s, self._timed[0][0]) if self._timed else self._due_s

    def _post_timed(self, now: float) -> None:
        while self._later:
            at_s, event = self._later.popleft()
            self._timed_count += 1
            heappush(self._timed, (now + at_s - monotonic(), self._timed_count, event))
        while self._timed and self._timed[0][0] <= now:
            self._events.append(heappop(self._timed)[2])

    def _turn(self, port: PlannerPort, now: float) -> bool:
        self._post_timed(now)
        heard = bool(self._events)
        if not heard and now < self._due_s:
            return False
        while self._events:
            event = self._events.popleft()
            port.note(event)
            self.planner.handle(event, now)
        self.planner.plan(now)
        for command in self.planner.drain():
            port.perform(command)
        self._due_s = self.planner.next_deadline(now)
        self._turn_loop.turn_interval.chunk_time_s = self.planner.chunk_time_s()
        return heard
