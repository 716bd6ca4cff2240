"""A pipelined fetch: it waits for the fetch before it on the same connection, with its request sent ahead.

What lives here: passing a connection from one thread to another. What does not: which fetch follows which (the
planner), and the requests (``client``).

Only the thread of the fetch in progress receives, and after the last piece it hands the connection over, while it
hashes and writes its chunk. In clear the successor's thread sends its request at once. Under TLS the objects of Python
3.11 belong to one thread, so the one in progress sends it, between two pieces of its own chunk. The server answers in
order and gives its slot to the next request. If the successor gives up after its request was sent, the connection is
closed, because the answer would be taken for another's.

Rejected: one thread for both fetches, because its hashing and writing would be a pause between them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from gossipd.transfer.connections import BulkConnection


class Successor:
    """One waiting fetch. Its thread calls ``wait``; any thread calls ``wake``; the fetch before it calls the rest."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.is_asked = False
        self._changed = threading.Condition()
        self.is_over = False
        """The fetch has the connection, or does not wait any more."""
        self._connection: BulkConnection | None = None

    def wait(self, deadline: float, gave_up: Callable[[], bool]) -> BulkConnection | None:
        """The connection, once it is free; None if it is lost, at the monotonic ``deadline``, or on ``gave_up``."""
        with self._changed:
            while not self.is_over and not gave_up() and (left_s := deadline - time.monotonic()) > 0:
                self._changed.wait(left_s)
            self.is_over = True
            return self._connection

    def wake(self) -> None:
        """Make the waiting thread call its ``gave_up`` again. From any thread."""
        with self._changed:
            self._changed.notify()

    def hand_over(self, connection: BulkConnection | None) -> bool:
        """Pass the connection, None if it was lost. False when nobody waits: the caller keeps the connection."""
        with self._changed:
            if self.is_over:
                return False
            self.is_over, self._connection = True, connection
            if connection is not None:
                connection.may_be_stale, connection.is_asked = True, self.is_asked
            self._changed.notify()
        return True
