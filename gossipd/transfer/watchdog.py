"""Deadlines and least rates of all connections of one side, enforced by one thread.

What lives here: checking every connection a few times a second, and cutting late, stalled and slow ones. What does not:
the transfers, which only set a few attributes for it, and call ``rouse`` when they begin.

While nothing moves the thread dozes until the first deadline: a host at rest would wake ten times a second for its idle
connections.

A connection is cut when its deadline has passed, when a transfer moves no byte for ``stall_s``, and when a transfer
moves less than ``rate_min`` asks for within a window of ``grace_s``. Each window counts for itself, so that a quick
beginning does not allow minutes of dripping. A waiting relay is not cut; the asker's deadline ends it.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Protocol

from msgspec import Struct

from gossipd.runtime.named_thread import NamedThread
from gossipd.transfer.channel import Channel, Cut
from gossipd.transfer.settings import BulkSettings

# The lateness of a cut; each look costs little CPU even with 50 connections.
TICK_S = 0.2
SERVER_TICK_S = 1.0  # silence is the client's to notice; handshakes have deadlines, which are met all the same
DOZE_S = 15.0  # an idle connection of the client closes so late: before the server's side does
_QUIET_LOOKS = 5  # without a transfer: the pauses between the chunks of a model are shorter


class _Watch(Struct):
    transfer: int = 0
    moved: int = 0
    moved_at: float = math.inf
    window_moved: int = 0
    window_at: float = 0.0
    is_silent: bool = False


class WatchdogListener(Protocol):
    """Told by the watchdog's thread."""

    def transfer_fell_silent(self, channel: Channel) -> None:
        """Nothing was heard for ``silence_s``; once each time."""

    def connections_looked_at(self, now: float) -> None:
        """After every look."""


class Watchdog:
    """One thread, asleep while there are no connections."""

    def __init__(
        self, settings: BulkSettings, *, name: str, listener: WatchdogListener | None = None, tick_s: float = TICK_S
    ) -> None:  # fmt: skip
        """``tick_s``: how often it looks while something moves, and how late it cuts what is not added with a deadline
        that is nearer."""
        self._bulk_settings = settings
        self._tick_s = tick_s
        self._listener = listener
        self._changed = threading.Condition()
        self._watches: dict[Channel, _Watch] = {}
        self._closed = False
        self._dozes = self._roused = False
        self._quiet_looks = 0
        self._thread = NamedThread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, channel: Channel) -> None:
        with self._changed:
            self._watches[channel] = _Watch()
            self._changed.notify()  # its deadline may be the first
        self.rouse()

    def rouse(self) -> None:
        """A transfer has begun: look again several times a second. Any thread; cheap unless the watchdog dozes."""
        self._roused = True  # before the look at ``_dozes``; the watchdog does it the other way round
        if self._dozes:
            with self._changed:
                self._changed.notify()

    def remove(self, channel: Channel) -> None:
        with self._changed:
            self._watches.pop(channel, None)

    def channels(self) -> list[Channel]:
        with self._changed:
            return list(self._watches)

    def is_silent_since(self, channel: Channel, since: float) -> bool:
        """Whether the transfer on ``channel`` was last seen to move before ``since``; False if not looked at yet."""
        with self._changed:
            watch = self._watches.get(channel)
            return watch is not None and watch.transfer == channel.transfer and watch.moved_at < since

    def close(self, deadline: float) -> None:
        """End the thread, waiting at most until the monotonic ``deadline``."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._closed:  # while it looked, when nothing could be notified
                    self._wait()
                if self._closed:
                    return
            self._roused = False
            now = time.monotonic()
            self.look(now)
            self._quiet_looks = 0 if self.is_busy() else self._quiet_looks + 1
            if self._listener is not None:
                self._listener.connections_looked_at(now)

    def _wait(self) -> None:
        if not self._watches:
            self._changed.wait()
            return
        first_s = min((one.deadline or math.inf) for one in self._watches)
        self._dozes = self._quiet_looks >= _QUIET_LOOKS
        if not (self._dozes and self._roused):
            wait_s = max(TICK_S, first_s - time.monotonic())
            self._changed.wait(min(DOZE_S if self._dozes else self._tick_s, wait_s))
        self._dozes = False

    def is_busy(self) -> bool:
        """Whether a transfer moves."""
        return any(one.is_moving for one in self.channels())

    def look(self, now: float) -> None:
        """Check every connection once; for the thread and for tests."""
        with self._changed:
            watches = list(self._watches.items())
        for channel, watch in watches:
            self._look(channel, watch, now)

    def _look(self, channel: Channel, watch: _Watch, now: float) -> None:
        deadline = channel.deadline
        if deadline is not None and now >= deadline:
            channel.cut(Cut.TIMEOUT)
            return
        if not channel.is_moving:
            return
        moved = channel.bytes_moved()
        if watch.transfer != channel.transfer:
            watch.transfer = channel.transfer
            watch.moved = watch.window_moved = moved
            watch.moved_at = watch.window_at = now
            watch.is_silent = False
            return
        if moved != watch.moved:
            watch.moved, watch.moved_at, watch.is_silent = moved, now, False
        self._judge(channel, watch, now)

    def _judge(self, channel: Channel, watch: _Watch, now: float) -> None:
        silent_s = now - watch.moved_at
        if channel.is_waiting:
            watch.window_moved, watch.window_at = watch.moved, now
        if silent_s >= self._bulk_settings.stall_s and not channel.is_waiting:
            channel.cut(Cut.STALLED)
        elif silent_s >= self._bulk_settings.silence_s and not watch.is_silent:
            watch.is_silent = True
            if self._listener is not None:
                self._listener.transfer_fell_silent(channel)
        window_s = now - watch.window_at
        if window_s >= self._bulk_settings.grace_s:
            if watch.moved - watch.window_moved < window_s * self._bulk_settings.rate_min:
                channel.cut(Cut.SLOW)
            watch.window_moved, watch.window_at = watch.moved, now
