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
        self.clock_ahead_s = trio.current_time() - monotonic()
        """The time by which the planner plans, less the monotonic clock's: trio counts from a random time."""
        self._events: deque[Event] = deque()  # bounded by work in flight: every event answers a command or a peer
        self.free_slots = planner.free_slots
        """Uploads that could begin now. Any thread sets it; a turn takes it along, as it is worth none by itself."""
        self._due_s = -math.inf  # fixed at each plan: the planner counts some deadlines from when it is asked

    def post(self, event: Event) -> None:
        """Give an event to the planner, from any thread. Those of one thread keep their order."""
        self._events.append(event)
        self._turn_loop.wake_from_thread()

    async def run(self, port: PlannerPort) -> None:
        """Never returns; cancelled with the daemon."""

        def start(now: float) -> bool:
            port.start_threads()
            return False

        deciding = self._turn_loop.joined(Phase.DECIDE, partial(self._turn, port), due_s=lambda: self._due_s)
        with deciding, self._turn_loop.joined(Phase.START, start):
            await trio.sleep_forever()

    def look_again(self) -> None:
        """The planner was told something other than by an event: plan soon. On the trio loop."""
        self._due_s = -math.inf
        self._turn_loop.wake()

    def _turn(self, port: PlannerPort, now: float) -> bool:
        heard = bool(self._events)
        if not heard and now < self._due_s:
            return False
        self.planner.free_slots = self.free_slots
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
