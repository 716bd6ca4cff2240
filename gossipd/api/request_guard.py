"""A local socket's HTTP server: one whole, small, well-formed request on each connection, with deadlines.

What lives here: the accept loop, its limits, and the answers to malformed requests. What does not: the routes
(``routes``), one request and its answer (``http_exchange``), and the form of HTTP (h11).

A request is read, head and body, under one deadline, before the routes see any of it; each 64 KiB of an answer
have a deadline too, so a client that stops reading holds no task. A client that only closes its sending half still gets
its answer. Garbage gets one JSON line in plain words before the connection is closed (``nc -U`` shows it). Rejected: a
general server, which imports HTTP/2 and websockets that no client here may use.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar

import trio

from gossipd.api.calling_process import NO_PROCESS, CallingProcess
from gossipd.api.http_exchange import HttpExchange, StatusRequestError
from gossipd.api.http_messages import HttpRequest, Response
from gossipd.runtime.logs import get_logger

CLIENTS_MAX = 16  # a person with a few scripts and a scraper; each holds one descriptor
WAITS_MAX = 64  # eight jobs with a rank for each of eight GPUs; each waits for minutes and costs a task
WAIT_PATHS = (
    "/v1/wait",
    "/v1/publish",
    "/v1/adopt",
    "/v1/shards",
    "/v1/assemble",
    "/v1/adopt-shards",
)  # their answers may take long; they leave the places above free
DEADLINE_S = 2.0  # for the whole request, and for each 64 KiB of the answer
App = Callable[[HttpRequest], Awaitable[Response]]
"""What answers: the routes of a socket."""
_PEER = struct.Struct("3i")  # struct ucred: process, user, group

CALLER: ContextVar[int] = ContextVar("CALLER", default=-1)
"""The user at the other end of the connection whose request is being answered, as the kernel knows it; -1 is unknown.
"""
CALLING_PROCESS: ContextVar[CallingProcess] = ContextVar("CALLING_PROCESS", default=NO_PROCESS)
"""Its process."""
log = get_logger("status")


def error_body(code: str, message: str, exit_code: int = 1) -> bytes:
    """The JSON form of every refusal: one line."""
    error = {"code": code, "message": message, "exit_code": exit_code}
    return json.dumps({"schema_version": 1, "error": error}).encode() + b"\n"


class RequestGuard:
    """Serves one application on any number of listening sockets, with limits."""

    def __init__(self, app: App, *, clients_max: int = CLIENTS_MAX, deadline_s: float = DEADLINE_S) -> None:
        self._app = app
        self._clients_max = clients_max
        self._deadline_s = deadline_s
        self.clients = 0  # served now
        self.waits = 0  # served now, of those whose answers may take long
        self.refused = 0  # refused requests and connections, for metrics

    async def serve(self, listener: trio.SocketListener) -> None:
        """Accept for ever. Without descriptors it waits and goes on, as trio.serve_listeners does."""
        async with trio.open_nursery() as nursery, listener:
            await trio.serve_listeners(self._connection, [listener], handler_nursery=nursery)

    async def _connection(self, stream: trio.SocketStream) -> None:
        async with stream:
            # A client may disconnect at any time; then its answer is dropped.
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self._admit(stream)

    async def _admit(self, stream: trio.SocketStream) -> None:
        if self.clients >= self._clients_max:
            self.refused += 1
            await self._refuse(stream, f"the socket already has {self._clients_max} clients; try again", 503)
            return
        self.clients += 1
        try:
            exchange = await self._read(stream)
            if exchange is None:
                return
            if exchange.request.path not in WAIT_PATHS:
                await self._answer(exchange)
                return
        finally:
            self.clients -= 1
        if self.waits >= WAITS_MAX:
            self.refused += 1
            await self._refuse(stream, f"{WAITS_MAX} clients wait at the socket already; try again", 503)
            return
        self.waits += 1
        try:
            await self._answer(exchange)
        finally:
            self.waits -= 1

    async def _read(self, stream: trio.SocketStream) -> HttpExchange | None:
        """A whole request, None when there is none and nothing is left to do."""
        with trio.move_on_after(self._deadline_s) as deadline:
            try:
                return await HttpExchange.read(stream, self._deadline_s)
            except StatusRequestError as error:
                self.refused += 1
                await self._refuse(stream, str(error), 400)
                return None
        if deadline.cancelled_caught:
            self.refused += 1
            await self._refuse(stream, f"no complete request within {self._deadline_s:g} s", 408)
        return None

    async def _answer(self, exchange: HttpExchange) -> None:
        pid, user = _caller_of(exchange.socket)
        CALLER.set(user)  # the context of this connection's task
        CALLING_PROCESS.set(CallingProcess(pid, exchange.socket) if user >= 0 else NO_PROCESS)
        with _BugsLogged():
            await exchange.answer(await self._app(exchange.request))
            return
        if not exchange.has_begun:
            sentence = "the daemon failed to answer; its log says why"
            await exchange.answer(Response(error_body("E_INTERNAL", sentence), status_code=500))

    async def _refuse(self, stream: trio.SocketStream, sentence: str, status: int) -> None:
        body = error_body("E_STATUS_REQUEST", sentence)
        head = (
            f"HTTP/1.1 {status} Refused\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        with trio.move_on_after(self._deadline_s):
            await stream.send_all(head.encode() + body)


class _BugsLogged:
    """A bug in a route ends here, with its traceback in the log: it must not be silent, nor end the daemon."""

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if isinstance(error, Exception):
            log.error("a route failed", cause=error)
        return isinstance(error, Exception)


def _caller_of(connection: trio.socket.SocketType) -> tuple[int, int]:
    """Process and user."""
    if connection.family != socket.AF_UNIX:
        return 0, -1
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    process, user, _ = _PEER.unpack(credentials)
    return process, user
