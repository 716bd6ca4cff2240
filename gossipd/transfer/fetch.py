"""One fetch as other threads see it: they can stop it, and another fetch can follow it.

What lives here: the state shared by the fetch's thread with threads that stop it or wait for its connection. What does
not: the protocol (``client``), and the wait itself (``pipelined_fetch``).
"""

from __future__ import annotations

import math
import threading
import time

from gossipd.core.ids import ChunkIndex, DeploymentId
from gossipd.transfer.channel import Channel, Cut
from gossipd.transfer.connections import BulkConnection, BulkPeer
from gossipd.transfer.dialer import cut_error
from gossipd.transfer.pipelined_fetch import Successor
from gossipd.wire.transfer import BulkVerb, Request
from membership.member import NodeId


class Fetch:
    """One fetch in progress. ``stop`` ends it, whatever it is blocked on."""

    def __init__(self, peer: BulkPeer, request: Request, timeout_s: float, *, answer_s: float = math.inf) -> None:
        self.peer = peer
        self.request = request
        self._end_s = time.monotonic() + timeout_s
        self.deadline = min(self._end_s, time.monotonic() + answer_s)
        """Of the answer's first byte, then of its last."""
        self.cut_by: Cut | None = None
        self._lock = threading.Lock()
        self.channel: Channel | None = None  # on which it blocks
        self._awaited: Successor | None = None  # our place behind another fetch
        self._is_receiving = False
        self._next: Successor | None = None

    def attach(self, channel: Channel | None) -> None:
        """The fetch now blocks on this channel, or on none. Raises a TransferError if it was stopped before."""
        with self._lock:
            self.channel = channel
            if self.cut_by is not None and channel is not None:
                raise cut_error(self.cut_by, "before it began")

    def stop(self, reason: Cut) -> None:
        """From any thread; the first reason stays."""
        with self._lock:
            if self.cut_by is None:
                self.cut_by = reason
                if self.channel is not None:
                    self.channel.cut(reason)
                if self._awaited is not None:
                    self._awaited.wake()

    def await_turn(self, first: Fetch) -> BulkConnection | None:
        """Wait for the connection of ``first``; None: get another. Raises TransferError when stopped."""
        place = Successor(self.request.to_wire())
        with self._lock:
            self._awaited = place
        connection = place.wait(self.deadline, self.is_stopped) if first.admit(place) else None
        if connection is None and self.cut_by is not None:
            raise cut_error(self.cut_by, "while waiting for its turn")
        return connection

    def admit(self, place: Successor) -> bool:
        """Let another fetch follow; False when one already does, or this one is not receiving. From any thread, which
        sends the request itself if the connection is duplex.
        """
        with self._lock:
            is_free = self._next is None or (self._next.is_over and not self._next.is_asked)
            if not self._is_receiving or not is_free:
                return False
            # Within the lock the chunk does not end; the mark comes first, as our own thread reads it without the lock.
            place.is_asked = self.channel is not None and self.channel.is_duplex
            self._next = place
            if place.is_asked and self.channel is not None:
                place.is_asked = self.channel.try_send(place.request)
            return True

    def answered(self) -> float:
        """The peer has begun its answer; returns the deadline of its end."""
        self.deadline = self._end_s
        return self.deadline

    def receives(self) -> None:
        """Our chunk has begun to arrive: from now on another fetch may follow."""
        with self._lock:
            self._is_receiving = True

    def ask_for_next(self, channel: Channel) -> None:
        """Called between two pieces: send the request of the following fetch, if there is one."""
        place = self._next
        if place is not None and not place.is_asked and not place.is_over:
            place.is_asked = True
            channel.send(place.request)

    def take_next(self) -> Successor | None:
        """Our bytes are complete. Returns the following fetch."""
        with self._lock:
            self._is_receiving = False
            place, self._next = self._next, None
            return place

    def is_stopped(self) -> bool:
        return self.cut_by is not None

    def is_of(self, node: NodeId, deployment: DeploymentId, chunk: ChunkIndex) -> bool:
        """Whether this fetch is of the chunk, from the node."""
        own = self.request
        return (self.peer.node, own.verb, own.deployment, own.chunk) == (node, BulkVerb.CHUNK, deployment, chunk)
