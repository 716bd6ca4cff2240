"""The main loop: hearing, deciding and saying take turns together, in one task, at most a hundred times a second.

What lives here: when turns are taken, and in which order. What does not: their work; each part does what there is,
never blocks, and reports whether there was something. The rests in between are ``turn_interval``'s.

At some hundred messages and events a second, waking up is most of the cost of the loop, because caches are cold each
time. So while anything happens no task waits for its own socket: a turn hears all sockets, plans, and sends, and then
the loop rests. After some empty turns it sleeps until a socket is readable, a thread posts an event, or something is
due. One wake-up serves all parts: the messages of all sockets are one batch for the planner, and its messages leave in
the same turn. The price: a message that arrives during a rest waits for its end, half a rest on average. A flood that
fills a socket's batch halves the rest.

Rejected: a task with a pause of its own for each socket and the planner, because it wakes most often; a common grid of
pauses, because each task still costs a cancel scope and a registration with epoll.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from functools import partial
from operator import itemgetter
from time import perf_counter

import trio
import zmq

from gossipd.runtime.loop_clock import make_sleeper
from gossipd.runtime.slow_steps import SlowSteps
from gossipd.runtime.turn_interval import TurnInterval
from gossipd.runtime.zmq_trio import SocketWakeup, has_unread

_PART_S = 0.005  # shorter ones together may hold up the loop, but none of them is to blame
_QUIET_BEATS = 3  # falling asleep and waking cost as much as this many empty turns


class Phase(IntEnum):
    HEAR = 0
    DECIDE = 1
    SAY = 2
    START = 3
    """Threads are woken last: they need the interpreter's lock, which the loop gives up when it rests."""


class TurnLoop:
    """``run`` takes the turns. Only the trio loop may call the methods, except ``wake_from_thread``."""

    def __init__(
        self, *, late: Callable[[float], None] = lambda late_s: None, slow: SlowSteps | None = None
    ) -> None:  # fmt: skip
        """``late``: receives the lateness of the wake-up from each rest, in seconds. ``slow``: hears of long parts."""
        self._late = late
        self._slow = slow
        self._parts: list[tuple[Phase, Callable[[float], bool], Callable[[], float]]] = []
        self._sockets: list[zmq.Socket[bytes]] = []
        self._sleeper = make_sleeper()
        self._is_woken = self._is_sleeping = False
        self._asleep = trio.Event()
        self._is_awake = False  # a turn is certain within a rest, so threads need not wake the loop
        self._posted = False  # by a thread, since the last turn began
        self._hurried = False
        self.turn_interval = TurnInterval()
        self._next_s = -math.inf
        self._token = trio.lowlevel.current_trio_token()

    @contextmanager
    def joined(
        self, phase: Phase, turn: Callable[[float], bool], *, due_s: Callable[[], float] = lambda: math.inf
    ) -> Iterator[None]:
        """Add a part for the length of a ``with``. ``turn``: given the time, does its work; True when there was some.
        ``due_s``: when ``turn`` must be taken without a wake-up; a fixed time until the next turn.
        """
        part = (phase, turn, due_s)
        self._parts = sorted([*self._parts, part], key=itemgetter(0))
        self.wake()
        try:
            yield
        finally:
            self._parts = [one for one in self._parts if one is not part]

    def wake(self) -> None:
        """There is work: take a turn after the present rest."""
        self._is_woken = True
        if self._is_sleeping:
            self._sleeper.wake()
        if self._asleep.is_set():
            self._asleep = trio.Event()

    def wake_from_thread(self) -> None:
        """``wake`` from any thread, after its work was put where a turn finds it."""
        self._posted = True
        if not self._is_awake:
            try:
                self._token.run_sync_soon(self.wake, idempotent=True)
            except trio.RunFinishedError:
                return  # a worker thread outlived the loop by a moment

    def awake(self) -> trio.Event | None:
        """None while the loop sleeps; else an event that is set when it falls asleep."""
        return None if self._asleep.is_set() else self._asleep

    def hurry(self) -> None:
        """A turn left work undone to give others theirs: the next one follows after half a rest."""
        self._hurried = True

    async def watch(self, socket: zmq.Socket[bytes]) -> None:
        """Wake the loop when ``socket``, which a turn reads until it is empty, may have a message. Never returns."""
        wakeup = SocketWakeup()
        self._sockets.append(socket)
        try:
            while True:
                await wakeup.wait(socket)
                if not has_unread(socket):
                    continue  # the wait ended for safety's sake, and nothing was missed
                self.wake()
                await self._asleep.wait()  # until then the turns read the socket
        finally:
            self._sockets.remove(socket)

    async def run(self) -> None:
        while True:
            if not self._is_woken:
                await self._sleep()
            self._is_awake = True
            quiet = _QUIET_BEATS - 1  # a turn that was only due and finds nothing is a single turn
            while quiet < _QUIET_BEATS:
                quiet = 0 if self._take_turn(await self._rest()) else quiet + 1
            # From here on threads wake the loop. A thread may have posted just before, and a turn's own calls may have
            # consumed the edge of a socket's descriptor, for which a watcher waits: check both.
            self._is_awake = False
            if self._posted or any(map(has_unread, self._sockets)):
                self._is_woken = True
            if not self._is_woken:
                self._asleep.set()

    async def _sleep(self) -> None:
        self._is_sleeping = True
        try:
            await self._sleeper.sleep(min((due_s() for _, _, due_s in self._parts), default=math.inf))
        finally:
            self._is_sleeping = False

    async def _rest(self) -> float:
        is_early = trio.current_time() < self._next_s
        await self._sleeper.sleep(self._next_s)
        now = trio.current_time()
        if is_early:
            self.turn_interval.woken(now - self._next_s)
            self._late(now - self._next_s)
        return now

    def _take_turn(self, now: float) -> bool:
        self._is_woken = self._posted = self._hurried = False
        busy = False
        for _, turn, _ in self._parts:
            begun_s = perf_counter()
            busy = turn(now) or busy
            if self._slow is not None and (took_s := perf_counter() - begun_s) >= _PART_S:
                self._slow.part_took(_name_of(turn), took_s)
        # Counted from the turn's end, so that other tasks have their time however long turns take.
        rest_s = self.turn_interval.rest_s
        self._next_s = trio.current_time() + (rest_s / 2 if self._hurried else rest_s)
        return busy


def _name_of(turn: Callable[[float], bool]) -> str:
    """The name of a function, as trio names tasks."""
    inner = turn.func if isinstance(turn, partial) else turn
    return f"{inner.__module__}.{inner.__qualname__}"
