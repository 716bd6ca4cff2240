"""The beat: hearing, deciding and saying take their turns together, in one task, a hundred times a second at most.

What lives here: when turns are taken, and in which order. What does not: what is done in them; each takes what there
is, never blocks, and says whether there was something. How long the rests between them are is ``turn_interval``'s.

At some hundred messages and events a second most of what a daemon's loop costs is waking up: a task of its own for each
socket and for the planner, each with its own pause, came to 180 wake-ups a second of 0.4 ms each where twelve chunks a
second arrived (8 daemons on two cores, beside other load; caches are cold every time). So while anything happens nobody
waits for his own socket. The beat hears all sockets, plans, and sends, then rests until the next beat; after some beats
in which nothing happened it sleeps until a socket is readable, a thread has an event, or something is due. One wake-up
per beat serves everybody, a batch at each socket is one batch for the planner, and what it says leaves in the same
turn. The price: what comes during a rest waits for its end, half a beat on average. Only a flood, which fills a
socket's batch, has two turns a beat.

Rejected: a pause of its own for each task (as above), and a common grid of pauses (the wake-ups come together, but each
is still a task, a cancel scope and a registration with epoll, which is most of the cost).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from operator import itemgetter

import trio
import zmq

from gossipd.runtime.turn_interval import TurnInterval
from gossipd.runtime.zmq_trio import SocketWakeup, has_unread

_QUIET_BEATS = 3  # going to sleep and waking cost about as much as so many empty turns


class Phase(IntEnum):
    """The order within one turn."""

    HEAR = 0
    DECIDE = 1
    SAY = 2


class TurnLoop:
    """``run`` takes the turns. All else is for the trio loop, but ``wake_from_thread`` for any thread."""

    def __init__(self, *, late: Callable[[float], None] = lambda late_s: None) -> None:
        """
        Args:
            late: told how late the loop woke us from each rest, in seconds.
        """
        self._late = late
        self._turns: list[tuple[Phase, Callable[[float], bool]]] = []
        self._deadlines: list[Callable[[], float]] = []
        self._sockets: list[zmq.Socket[bytes]] = []
        self._woken = trio.Event()
        self._asleep = trio.Event()
        self._is_awake = False  # a turn will be taken within a beat: whoever posts need not wake it
        self._posted = False  # from a thread, since the last turn began
        self._hurried = False
        self.turn_interval = TurnInterval()
        self._next_s = -math.inf
        self._token = trio.lowlevel.current_trio_token()

    @contextmanager
    def joined(
        self, phase: Phase, turn: Callable[[float], bool], *, due_s: Callable[[], float] = lambda: math.inf
    ) -> Iterator[None]:
        """Take part for the length of a ``with``.

        Args:
            turn: given the time, does what there is to do; True when there was something.
            due_s: when ``turn`` must be taken though nobody wakes the beat; a time that does not move by itself.
        """
        part = (phase, turn)
        self._turns = sorted([*self._turns, part], key=itemgetter(0))
        self._deadlines.append(due_s)
        self.wake()
        try:
            yield
        finally:
            self._turns = [one for one in self._turns if one is not part]
            self._deadlines.remove(due_s)

    def wake(self) -> None:
        """There is something to do: take a turn as soon as the last one is a beat ago."""
        self._woken.set()
        if self._asleep.is_set():
            self._asleep = trio.Event()

    def wake_from_thread(self) -> None:
        """``wake`` from any thread, after what there is to do was put where a turn finds it."""
        self._posted = True
        if not self._is_awake:
            try:
                self._token.run_sync_soon(self.wake, idempotent=True)
            except trio.RunFinishedError:
                return  # the daemon is gone; a worker thread outlived it by a moment

    def awake(self) -> trio.Event | None:
        """None while it sleeps; else turns are being taken, until this event."""
        return None if self._asleep.is_set() else self._asleep

    def hurry(self) -> None:
        """A turn left something undone to give others theirs: the next one follows after half a beat."""
        self._hurried = True

    async def watch(self, socket: zmq.Socket[bytes]) -> None:
        """Wake the beat when ``socket``, which a turn reads until it is empty, may have something. Never returns."""
        wakeup = SocketWakeup()
        self._sockets.append(socket)
        try:
            while True:
                await wakeup.wait(socket)
                self.wake()
                await self._asleep.wait()  # till then the turns read it
        finally:
            self._sockets.remove(socket)

    async def run(self) -> None:
        """Take turns until cancelled."""
        while True:
            with trio.move_on_at(min((due_s() for due_s in self._deadlines), default=math.inf)):
                await self._woken.wait()
            self._is_awake = True
            quiet = _QUIET_BEATS - 1  # a turn that was only due, and finds nothing, is one turn
            while quiet < _QUIET_BEATS:
                await self._rest()
                quiet = 0 if self._take_turn() else quiet + 1
            # From here on threads wake us. What one left a moment earlier must not lie, nor what a turn's own calls on
            # a socket took out of its descriptor unseen (a watcher waits for that).
            self._is_awake = False
            if self._posted or any(map(has_unread, self._sockets)):
                self._woken.set()
            if not self._woken.is_set():
                self._asleep.set()

    async def _rest(self) -> None:
        is_early = trio.current_time() < self._next_s
        await trio.sleep_until(self._next_s)
        if is_early:
            late_s = trio.current_time() - self._next_s
            self.turn_interval.woken(late_s)
            self._late(late_s)

    def _take_turn(self) -> bool:
        self._woken, self._posted, self._hurried = trio.Event(), False, False
        now = trio.current_time()
        busy = False
        for _, turn in self._turns:
            busy = turn(now) or busy
        # From its end, so that however long turns take others have theirs.
        rest_s = self.turn_interval.rest_s
        self._next_s = trio.current_time() + (rest_s / 2 if self._hurried else rest_s)
        return busy
