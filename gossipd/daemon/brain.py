"""The loop that owns the planner: events in from anywhere, commands out to one place.

Worker threads and the trio loop post events; the planner hears them in batches, plans, and its commands are
performed, all in this one task, so that there are no locks and nobody can call back in.

Why batches: with 256 KiB chunks on a fast link thousands of events a second arrive, and one plan over a
batch costs little more than one over a single event. ``PLAN_INTERVAL_S`` bounds the rate of planning; it is
half of the chunk time of the smallest chunks at 100 Mbit/s (21 ms), so that it never decides how
stale a plan is.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

import trio

from gossipd.core.events import Command, Event
from gossipd.core.planner import Planner

PLAN_INTERVAL_S = 0.01


class Brain:
    """Feeds one Planner. ``post`` may be called from any thread; all else belongs to the trio loop.

    Args:
        note: sees every event just before the planner does, for counting.
    """

    def __init__(self, planner: Planner, *, perform: Callable[[Command], None], note: Callable[[Event], None]) -> None:
        self.planner = planner
        self._perform = perform
        self._note = note
        self._events: deque[Event] = deque()  # bounded by work in flight: every event answers a command or a peer
        self._woken = trio.Event()
        self._token = trio.lowlevel.current_trio_token()

    def post(self, event: Event) -> None:
        """Hand an event to the planner, from any thread. Events of one thread keep their order."""
        self._events.append(event)
        try:
            self._token.run_sync_soon(self._wake, idempotent=True)
        except trio.RunFinishedError:
            return  # the daemon is gone; a worker thread outlived it by a moment

    def _wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        """Never returns; cancelled with the daemon."""
        while True:
            deadline = self.planner.next_deadline(trio.current_time())
            with trio.move_on_at(deadline if math.isfinite(deadline) else math.inf):
                await self._woken.wait()
            self._woken = trio.Event()
            now = trio.current_time()
            while self._events:
                event = self._events.popleft()
                self._note(event)
                self.planner.handle(event, now)
            self.planner.plan(now)
            for command in self.planner.drain():
                self._perform(command)
            await trio.sleep(PLAN_INTERVAL_S)
