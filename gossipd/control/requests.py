"""Requests under way: each waits for one reply, a failure of its link, or its deadline.

What lives here: the table, and the errors that a request ends with. What does not: sending.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from gossipd.core.errors import ExitCode, RemoteError
from gossipd.wire.control import Message, Refused
from membership.member import NodeId

_NUMBERS = 2**31  # five bytes on the wire at most


class PeerUnreachableError(RemoteError):
    """A request could not be delivered. Fault: the peer or the network. State: unchanged. Retry: later."""

    code = "E_PEER_UNREACHABLE"
    exit_code = ExitCode.DAEMON_UNREACHABLE


class PeerSilentError(RemoteError):
    """A request was not answered in time; it may have been carried out. Fault: the peer. Retry: yes."""

    code = "E_PEER_SILENT"
    exit_code = ExitCode.TIMEOUT


class RequestRefusedError(RemoteError):
    """The peer understood and will not. ``code`` is the peer's. State: unchanged. Retry: not as it is."""

    code = "E_REFUSED"


class PendingRequest:
    """One request; made by ``RequestTable.opened``."""

    def __init__(self, number: int, node: NodeId, wanted: type[Message]) -> None:
        self.number, self.node, self.wanted = number, node, wanted
        self._done = trio.Event()
        self._reply: Message | None = None
        self._failure = ""

    def answer(self, message: Message) -> None:
        """The reply has come; only the first one counts."""
        if not self._done.is_set():
            self._reply = message
            self._done.set()

    def fail(self, why: str) -> None:
        """No reply will come."""
        if not self._done.is_set():
            self._failure = why
            self._done.set()

    async def wait(self, timeout_s: float) -> Message:
        """The reply; raises as ``ControlPlane.request`` says."""
        with trio.move_on_after(timeout_s):
            await self._done.wait()
        if not self._done.is_set():
            raise PeerSilentError(f"node {self.node.hex()[:12]} did not answer within {timeout_s:g} s")
        if self._reply is None:
            raise PeerUnreachableError(f"node {self.node.hex()[:12]} cannot be asked: {self._failure}")
        if isinstance(self._reply, Refused):
            sentence = self._reply.sentence or f"node {self.node.hex()[:12]} refused"
            raise RequestRefusedError(sentence, code=self._reply.code or None)
        return self._reply


class RequestTable:
    """All requests of this node that wait for a reply."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._pending: dict[int, PendingRequest] = {}
        self._last = 0

    @contextmanager
    def opened(self, node: NodeId, wanted: type[Message]) -> Iterator[PendingRequest]:
        """A new request to ``node`` that a ``wanted`` answers, forgotten when the block is left. Raises
        PeerUnreachableError when too many wait already."""
        if len(self._pending) >= self._limit:
            raise PeerUnreachableError(f"{self._limit} requests already wait for replies")
        self._last = self._last % _NUMBERS + 1
        while self._last in self._pending:
            self._last = self._last % _NUMBERS + 1
        pending = self._pending[self._last] = PendingRequest(self._last, node, wanted)
        try:
            yield pending
        finally:
            del self._pending[pending.number]

    def heard(self, node: NodeId, number: int, message: Message) -> bool:
        """A reply came from ``node``; False when it answers nothing we asked it."""
        pending = self._pending.get(number)
        if pending is None or pending.node != node or not isinstance(message, (pending.wanted, Refused)):
            return False
        pending.answer(message)
        return True

    def fail(self, node: NodeId, why: str) -> None:
        """The link to ``node`` failed."""
        for pending in self._pending.values():
            if pending.node == node:
                pending.fail(why)

    def fail_all(self) -> None:
        """The plane stops."""
        for pending in self._pending.values():
            pending.fail("the daemon is stopping")
