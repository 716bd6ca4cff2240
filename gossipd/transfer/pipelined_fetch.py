"""A fetch that waits for the one before it on the same connection, its request already sent if there was time.

What lives here: handing the connection over, from one thread to another. What does not: which fetch follows which (the
planner), and the requests themselves (``client``).

The connection is owned by the fetch under way, whose thread is the only one to touch it, under TLS too: that one sends
the next request between two pieces of its own chunk, and hands the connection over with the last of them, while it
goes on to hash and write. The server answers in order, and gives the slot to the next request that comes. A successor
that gives up after its request was sent costs the connection, as its answer would be taken for another's.

Rejected: the successor sending by itself (TLS objects of Python 3.11 do not bear two threads); one thread for both
(its hashing and writing would be a pause between the two).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from gossipd.transfer.connections import BulkConnection


class Successor:
    """One waiting fetch. ``wait`` is the waiting thread's, all else that of the fetch before it, but ``wake``."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.is_asked = False
        self._changed = threading.Condition()
        self._is_over = False
        self._connection: BulkConnection | None = None

    @property
    def is_over(self) -> bool:
        """It has the connection, or waits no more."""
        return self._is_over

    def wait(self, deadline: float, gave_up: Callable[[], bool]) -> BulkConnection | None:
        """The connection, when it is free; None when it was lost, at the monotonic ``deadline``, and when ``gave_up``
        says so."""
        with self._changed:
            while not self._is_over and not gave_up() and (left_s := deadline - time.monotonic()) > 0:
                self._changed.wait(left_s)
            self._is_over = True
            return self._connection

    def wake(self) -> None:
        """Make it ask its ``gave_up`` again. From any thread."""
        with self._changed:
            self._changed.notify()

    def hand_over(self, connection: BulkConnection | None) -> bool:
        """The connection is the successor's, or was lost; False when it waits no more, and the link is ours still."""
        with self._changed:
            if self._is_over:
                return False
            self._is_over, self._connection = True, connection
            if connection is not None:
                connection.may_be_stale, connection.is_asked = True, self.is_asked
            self._changed.notify()
        return True
