"""The two local sockets of one host: the real guard, server and routes on a real socket, before a daemon of tables."""

from __future__ import annotations

import json
import socket
from collections import Counter
from typing import Any

import trio
from trio.testing import MockClock

from gossipd.api.request_guard import RequestGuard
from gossipd.api.router import Router
from gossipd.api.routes import read_app, status_app
from tests.attacks.pure.gossip import any_stage
from tests.attacks.stage import Stage
from tests.gossipd.api.fake_daemon import FakeDaemon

_GOOD = b"GET /livez HTTP/1.1\r\nHost: d\r\n\r\n"


def code_of(answer: bytes) -> str:
    """The code in an answer; its status where there is none."""
    head, _, body = answer.partition(b"\r\n\r\n")
    try:
        return str(json.loads(body.splitlines()[0])["error"]["code"])
    except (ValueError, KeyError, IndexError, TypeError):
        return head.split()[1].decode() if head.count(b" ") else "no answer"


class StatusSurface:
    """See Surface."""

    payload_bytes = 0

    def __init__(self) -> None:
        self._daemon = FakeDaemon()
        self._guard = RequestGuard(self._app())
        self._codes: Counter[str] = Counter()

    def _app(self) -> Router:
        return status_app(self._daemon, self._daemon, self._daemon, self._daemon.ring)

    @property
    def stage(self) -> Stage:
        """See Surface."""
        return any_stage()

    def deliver(self, made: bytes) -> None:
        """See Surface."""
        self._codes[code_of(self._answered(made))] += 1

    def _answered(self, request: bytes) -> bytes:
        """By a clock that jumps: one who says nothing more is cut off at once, and no slow machine is cut off."""
        return trio.run(self._ask, request, clock=MockClock(autojump_threshold=0))

    async def _ask(self, request: bytes) -> bytes:
        ours, theirs = socket.socketpair()
        client, server = (trio.SocketStream(trio.socket.from_stdlib_socket(one)) for one in (theirs, ours))
        answer = b""
        async with trio.open_nursery() as nursery, client:
            nursery.start_soon(self._guard._connection, server)
            try:
                await client.send_all(request)
                while part := await client.receive_some():
                    answer += part
            except trio.BrokenResourceError:
                return answer or b"x 400 \r\n\r\n" + b'{"error":{"code":"E_STATUS_REQUEST"}}'
        return answer

    def seen(self) -> Counter[str]:
        """See Surface."""
        return self._codes + Counter({"status": self._guard.refused})

    def state(self) -> dict[str, Any]:
        """See Surface."""
        return {"orders": list(self._daemon.orders), "clients": self._guard.clients}

    def state_after_restart(self) -> dict[str, Any]:
        """See Surface. Nothing is kept."""
        return {}

    def works(self) -> str:
        """See Surface."""
        return "" if b" 200 " in self._answered(_GOOD) else "a good request has no answer"

    def close(self) -> None:
        """See Surface."""


class ReadSurface(StatusSurface):
    """The socket for users who may ask and not order."""

    def _app(self) -> Router:
        return read_app(self._daemon, self._daemon, self._daemon.ring)
