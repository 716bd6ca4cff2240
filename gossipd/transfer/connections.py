"""Connections out: kept open, pooled per peer, bounded per peer and in all.

What lives here: lending, taking back and closing links. What does not: dialing (passed in) and what is said on them.

The link used last is lent first, so that surplus ones grow idle and are closed. At the bound in all, the link of any
peer that has been idle longest makes room; at the bound per peer, the borrower waits for one to come back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from gossipd.transfer.channel import Channel
from gossipd.transfer.settings import BulkSettings
from membership.member import NodeId

Endpoint: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class BulkPeer:
    """A node at an address; when the address changes, so do the links."""

    node: NodeId
    endpoint: Endpoint


@dataclass(eq=False, slots=True)
class BulkConnection:
    """One connection to one peer. ``prefix`` goes out ahead of its first request; ``may_be_stale``: the peer
    may have closed it since it answered last, or know the prefix no more, and nobody is to blame; ``is_asked``: the
    request of whoever has it now is on its way already."""

    peer: BulkPeer
    channel: Channel
    prefix: bytes = b""
    may_be_stale: bool = False
    is_asked: bool = False
    idle_since: float = 0.0


@dataclass(slots=True)
class _IdlePool:
    open_count: int = 0
    waiting: int = 0
    idle: list[BulkConnection] = field(default_factory=list)


class ConnectionPool:
    """Lends links; thread-safe."""

    def __init__(self, settings: BulkSettings, close_channel: Callable[[Channel], None]) -> None:
        self._settings = settings
        self._close_channel = close_channel
        self._changed = threading.Condition()
        self._shelves: dict[BulkPeer, _IdlePool] = {}
        self._open_count = 0
        self._closed = False

    @property
    def open_count(self) -> int:
        """Lent, idle and being dialed."""
        return self._open_count

    def borrow(self, peer: BulkPeer, deadline: float, gave_up: Callable[[], bool]) -> BulkConnection | None:
        """An idle link; or None: the caller may dial one now, and must ``lend`` or ``forget`` it.

        Raises TimeoutError at the monotonic ``deadline``, or when ``gave_up`` says so.
        """
        stale: list[BulkConnection] = []
        try:
            with self._changed:
                while True:
                    shelf = self._shelves.setdefault(peer, _IdlePool())
                    while shelf.idle:
                        link = shelf.idle.pop()
                        if link.channel.is_quiet():
                            return link
                        self._uncount(peer)
                        shelf = self._shelves.setdefault(peer, _IdlePool())
                        stale.append(link)
                    if self._has_room(shelf, stale):
                        shelf.open_count += 1
                        self._open_count += 1
                        return None
                    left = deadline - time.monotonic()
                    if left <= 0 or gave_up():
                        self._tidy(peer)
                        raise TimeoutError
                    shelf.waiting += 1
                    self._changed.wait(left)
                    shelf.waiting -= 1
        finally:
            for link in stale:
                self._close_channel(link.channel)

    def give_back(self, link: BulkConnection) -> None:
        """The link may be lent again."""
        link.may_be_stale = True
        link.idle_since = time.monotonic()
        with self._changed:
            if not self._closed:
                self._shelves[link.peer].idle.append(link)
                self._changed.notify_all()
                return
        self.drop(link)

    def drop(self, link: BulkConnection) -> None:
        """The link is of no more use: close it."""
        self._close_channel(link.channel)
        self.forget(link.peer)

    def forget(self, peer: BulkPeer) -> None:
        """A dial that ``borrow`` allowed came to nothing."""
        with self._changed:
            self._uncount(peer)
            self._changed.notify_all()

    def drop_idle(self, peer: BulkPeer | None = None, *, idle_before: float | None = None) -> None:
        """Close idle links: of one peer or of all, all of them or those not used since ``idle_before``."""
        dropped: list[BulkConnection] = []
        with self._changed:
            for owner in [peer] if peer is not None else list(self._shelves):
                shelf = self._shelves.get(owner)
                if shelf is None:
                    continue
                old = [link for link in shelf.idle if idle_before is None or link.idle_since < idle_before]
                shelf.idle = [link for link in shelf.idle if link not in old]
                for link in old:
                    self._uncount(link.peer)
                dropped += old
            if dropped:
                self._changed.notify_all()
        for link in dropped:
            self._close_channel(link.channel)

    def close(self) -> None:
        """Close idle links now, and every other one when it comes back."""
        with self._changed:
            self._closed = True
        self.drop_idle()

    def is_awaited(self, peer: BulkPeer) -> bool:
        """Whether a borrower waits for one to come back."""
        with self._changed:
            shelf = self._shelves.get(peer)
            return shelf is not None and shelf.waiting > 0

    def wake(self) -> None:
        """Make every waiting borrower ask its ``gave_up`` again."""
        with self._changed:
            self._changed.notify_all()

    def _has_room(self, shelf: _IdlePool, stale: list[BulkConnection]) -> bool:
        if shelf.open_count >= self._settings.connections_per_peer:
            return False
        if self._open_count < self._settings.connections_out_max:
            return True
        idle = [link for other in self._shelves.values() for link in other.idle]
        if not idle:
            return False
        oldest = min(idle, key=lambda link: link.idle_since)
        self._shelves[oldest.peer].idle.remove(oldest)
        self._uncount(oldest.peer)
        stale.append(oldest)
        return True

    def _uncount(self, peer: BulkPeer) -> None:
        self._shelves[peer].open_count -= 1
        self._open_count -= 1
        self._tidy(peer)

    def _tidy(self, peer: BulkPeer) -> None:
        if not self._shelves[peer].open_count:
            del self._shelves[peer]
