"""Outgoing connections: pooled per peer, bounded per peer and in total.

What lives here: lending, taking back and closing connections. What does not: dialing (passed in) and the protocol.

The connection used last is lent first, so that surplus ones become idle and are closed. At the total bound the longest
idle connection of any peer is closed; at the bound of a peer the borrower waits for one to come back. A connection
that comes back wakes one borrower of its peer. Rejected: to wake all, because each takes the interpreter's lock only to
find nothing, with a receiving thread waiting for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct, field

from gossipd.transfer.channel import Channel
from gossipd.transfer.settings import BulkSettings
from membership.member import NodeId

Endpoint: TypeAlias = tuple[str, int]


class BulkPeer(Struct, frozen=True):
    """A node at an address; another address means other connections."""

    node: NodeId
    endpoint: Endpoint


class BulkConnection(Struct, eq=False):
    """One connection to one peer. ``prefix`` is sent before its first request. ``may_be_stale``: the peer may have
    closed it since its last reply, or before a late token came, or may not know the prefix any more, which is nobody's
    fault. ``is_asked``: the request of its present owner was already sent.
    """

    peer: BulkPeer
    channel: Channel
    prefix: bytes = b""
    may_be_stale: bool = False
    is_asked: bool = False
    idle_since: float = 0.0


class _IdlePool(Struct, eq=False):
    """Of one peer; kept while a connection is open or a borrower waits. ``changed``: for borrowers at its bound."""

    changed: threading.Condition
    open_count: int = 0
    waiting: int = 0
    idle: list[BulkConnection] = field(default_factory=list)


class ConnectionPool:
    """Lends connections; thread-safe."""

    def __init__(self, settings: BulkSettings, close_channel: Callable[[Channel], None]) -> None:
        self._bulk_settings = settings
        self._close_channel = close_channel
        self._lock = threading.RLock()  # entered without a condition, whose way in is two more calls of Python
        self._total_changed = threading.Condition(self._lock)  # for borrowers at the total bound: there are few
        self._idle_pools: dict[BulkPeer, _IdlePool] = {}
        self.open_count = 0  # lent, idle and being dialed
        self._closed = False

    def borrow(self, peer: BulkPeer, deadline: float, gave_up: Callable[[], bool]) -> BulkConnection | None:
        """An idle connection; or None: the caller may dial one now, and must ``give_back``, ``drop`` or ``forget`` it.
        Raises TimeoutError at the monotonic ``deadline``, or when ``gave_up`` says so.
        """
        stale: list[BulkConnection] = []
        try:
            with self._lock:
                while True:
                    idle_pool = self._idle_pool(peer)
                    while idle_pool.idle:
                        connection = idle_pool.idle.pop()
                        if connection.channel.is_quiet():
                            return connection
                        self._uncount(peer)
                        idle_pool = self._idle_pool(peer)
                        stale.append(connection)
                    if self._has_room(idle_pool, stale):
                        idle_pool.open_count += 1
                        self.open_count += 1
                        return None
                    left = deadline - time.monotonic()
                    if left <= 0 or gave_up():
                        self._changed(peer)  # it may have been woken for what another one waits for
                        self._tidy(peer)
                        raise TimeoutError
                    self._wait(idle_pool, left)
        finally:
            for connection in stale:
                self._close_channel(connection.channel)

    def _wait(self, idle_pool: _IdlePool, timeout_s: float) -> None:
        is_at_bound = idle_pool.open_count >= self._bulk_settings.connections_per_peer
        idle_pool.waiting += 1
        (idle_pool.changed if is_at_bound else self._total_changed).wait(timeout_s)
        idle_pool.waiting -= 1

    def _changed(self, peer: BulkPeer) -> None:
        """Wake one borrower of the peer, and all that wait at the total bound."""
        if (idle_pool := self._idle_pools.get(peer)) is not None:
            idle_pool.changed.notify()
        self._total_changed.notify_all()

    def give_back(self, connection: BulkConnection) -> None:
        connection.may_be_stale = True
        connection.idle_since = time.monotonic()
        with self._lock:
            if not self._closed:
                self._idle_pools[connection.peer].idle.append(connection)
                self._changed(connection.peer)
                return
        self.drop(connection)

    def drop(self, connection: BulkConnection) -> None:
        """Close a connection that is of no more use."""
        self._close_channel(connection.channel)
        self.forget(connection.peer)

    def forget(self, peer: BulkPeer) -> None:
        """A dial that ``borrow`` allowed has failed."""
        with self._lock:
            self._uncount(peer)

    def drop_idle(self, peer: BulkPeer | None = None, *, idle_before: float | None = None) -> None:
        """Close idle connections of one peer or of all; with ``idle_before`` only those not used since."""
        dropped: list[BulkConnection] = []
        with self._lock:
            for owner in [peer] if peer is not None else list(self._idle_pools):
                idle_pool = self._idle_pools.get(owner)
                if idle_pool is None:
                    continue
                old = [one for one in idle_pool.idle if idle_before is None or one.idle_since < idle_before]
                idle_pool.idle = [one for one in idle_pool.idle if one not in old]
                for _ in old:
                    self._uncount(owner)
                dropped += old
        for connection in dropped:
            self._close_channel(connection.channel)

    def close(self) -> None:
        """Close idle connections now, and every other one when it comes back."""
        with self._lock:
            self._closed = True
        self.drop_idle()

    def is_awaited(self, peer: BulkPeer) -> bool:
        """Whether a borrower waits for a connection of this peer."""
        with self._lock:
            idle_pool = self._idle_pools.get(peer)
            return idle_pool is not None and idle_pool.waiting > 0

    def wake(self) -> None:
        """Make every waiting borrower call its ``gave_up`` again."""
        with self._lock:
            for idle_pool in self._idle_pools.values():
                idle_pool.changed.notify_all()
            self._total_changed.notify_all()

    def _idle_pool(self, peer: BulkPeer) -> _IdlePool:
        if (idle_pool := self._idle_pools.get(peer)) is None:
            idle_pool = self._idle_pools[peer] = _IdlePool(threading.Condition(self._lock))
        return idle_pool

    def _has_room(self, idle_pool: _IdlePool, stale: list[BulkConnection]) -> bool:
        if idle_pool.open_count >= self._bulk_settings.connections_per_peer:
            return False
        if self.open_count < self._bulk_settings.connections_out_max:
            return True
        idle = [connection for other in self._idle_pools.values() for connection in other.idle]
        if not idle:
            return False
        oldest = min(idle, key=lambda connection: connection.idle_since)
        self._idle_pools[oldest.peer].idle.remove(oldest)
        self._uncount(oldest.peer)
        stale.append(oldest)
        return True

    def _uncount(self, peer: BulkPeer) -> None:
        self._idle_pools[peer].open_count -= 1
        self.open_count -= 1
        self._changed(peer)
        self._tidy(peer)

    def _tidy(self, peer: BulkPeer) -> None:
        idle_pool = self._idle_pools[peer]
        if not idle_pool.open_count and not idle_pool.waiting:
            del self._idle_pools[peer]
