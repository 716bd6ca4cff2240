"""A guard before the HTTP server of a local socket: it passes only whole, small, well-formed requests.

What lives here: the accept loop, its limits, and the answers to malformed requests. What does not: the routes
(``routes``), and HTTP itself (h11 and anycorn).

The guard is outside the server because anycorn shields its writes from cancellation, so a client that stops reading
would hold a task, and the daemon's shutdown, for ever; and because it answers garbage with an empty page. Each
connection carries one request. The guard reads it with h11, head and body, under one deadline, and passes exactly those
bytes to the server, whose writes have deadlines too. A client that only closes its sending half still gets its answer.
Garbage gets one JSON line in plain words before the connection is closed (``nc -U`` shows it).
"""

from __future__ import annotations

import json
import logging
import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import anycorn.config
import anyio._backends._trio  # the first request would import it, and hold up the loop
import anyio.abc
import h11
import trio
from anycorn.tcp_server import TCPServer
from anycorn.typing import AppWrapper, ConnectionState
from anycorn.utils import wrap_app
from anycorn.worker_context import WorkerContext
from starlette.types import ASGIApp

from gossipd.core.errors import RemoteError

REQUEST_BYTES_MAX = 4096  # our own client's longest request is under 600 bytes
CLIENTS_MAX = 16  # a person with a few scripts and a scraper; each holds one descriptor
WAITS_MAX = 64  # eight jobs with a rank for each of eight GPUs; each waits for minutes and costs a task
WAIT_PATHS = (
    b"/v1/wait",
    b"/v1/publish",
    b"/v1/adopt",
    b"/v1/shards",
    b"/v1/assemble",
)  # their answers may take long; they leave the places above free
DEADLINE_S = 2.0  # for the whole request, and for each 64 KiB of the answer
_WRITE_BYTES = 65_536
_READ_BYTES = 4096
_PEER = struct.Struct("3i")  # struct ucred: process, user, group

CALLER: ContextVar[int] = ContextVar("CALLER", default=-1)
"""The user at the other end of the connection whose request is being answered, as the kernel knows it; -1 is unknown.
"""


class StatusRequestError(RemoteError):
    """No request that this daemon answers. Fault: the client. State: unchanged. Retry: after correcting it."""

    code = "E_STATUS_REQUEST"


def error_body(code: str, message: str, exit_code: int = 1) -> bytes:
    """The JSON form of every refusal: one line."""
    error = {"code": code, "message": message, "exit_code": exit_code}
    return json.dumps({"schema_version": 1, "error": error}).encode() + b"\n"


class RequestGuard:
    """Serves one ASGI application on any number of listening sockets, with limits."""

    def __init__(self, app: ASGIApp, *, clients_max: int = CLIENTS_MAX, deadline_s: float = DEADLINE_S) -> None:
        self._app: AppWrapper = wrap_app(app, REQUEST_BYTES_MAX, "asgi")  # type: ignore[arg-type]
        self._clients_max = clients_max
        self._deadline_s = deadline_s
        self.clients = 0  # served now
        self.waits = 0  # served now, of those whose answers may take long
        self._config = anycorn.config.Config()
        self._config.errorlog = logging.getLogger("gossipd.status")  # a bug in a route must not be silent
        self._config.include_server_header = False
        self._config.h11_max_incomplete_size = 2 * REQUEST_BYTES_MAX
        self._config.keep_alive_max_requests = 1
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
            request = await self._read(stream)
            if request is None:
                return
            if not _may_take_long(request):
                await self._answer(stream, request)
                return
        finally:
            self.clients -= 1
        if self.waits >= WAITS_MAX:
            self.refused += 1
            await self._refuse(stream, f"{WAITS_MAX} clients wait at the socket already; try again", 503)
            return
        self.waits += 1
        try:
            await self._answer(stream, request)
        finally:
            self.waits -= 1

    async def _read(self, stream: trio.SocketStream) -> bytes | None:
        """A whole request, None when there is none and nothing is left to do."""
        with trio.move_on_after(self._deadline_s) as deadline:
            try:
                request = await _read_request(stream)
            except StatusRequestError as error:
                self.refused += 1
                await self._refuse(stream, str(error), 400)
                return None
        if deadline.cancelled_caught:
            self.refused += 1
            await self._refuse(stream, f"no complete request within {self._deadline_s:g} s", 408)
            return None
        return request

    async def _answer(self, stream: trio.SocketStream, request: bytes) -> None:
        CALLER.set(_user_of(stream.socket))  # the context of this connection's task
        guarded = _GuardedStream(stream, request, self._deadline_s)
        await TCPServer(self._app, self._config, WorkerContext(None), ConnectionState({}), guarded).run()  # type: ignore[arg-type]

    async def _refuse(self, stream: trio.SocketStream, sentence: str, status: int) -> None:
        body = error_body("E_STATUS_REQUEST", sentence)
        head = (
            f"HTTP/1.1 {status} Refused\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        with trio.move_on_after(self._deadline_s):
            await stream.send_all(head.encode() + body)


def _user_of(connection: trio.socket.SocketType) -> int:
    if connection.family != socket.AF_UNIX:
        return -1
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    user: int = _PEER.unpack(credentials)[1]
    return user


def _may_take_long(request: bytes) -> bool:
    target = request.split(b" ", 2)[1]
    return target.partition(b"?")[0] in WAIT_PATHS


async def _read_request(stream: trio.SocketStream) -> bytes | None:
    """One whole request; None when the client sent nothing. Raises StatusRequestError."""
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_BYTES_MAX)
    received = bytearray()
    while True:
        part = await stream.receive_some(_READ_BYTES)
        if not part and not received:
            return None
        received += part
        if len(received) > REQUEST_BYTES_MAX:
            raise StatusRequestError(f"the request has more than {REQUEST_BYTES_MAX} bytes")
        try:
            parser.receive_data(part)
            while (event := parser.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.Request):
                    _judge(event)
                if isinstance(event, h11.EndOfMessage):
                    # Bytes after the request are dropped: each connection carries one.
                    return bytes(received[: len(received) - len(parser.trailing_data[0])])
                if isinstance(event, h11.ConnectionClosed):
                    raise StatusRequestError("the request is incomplete")
        except h11.RemoteProtocolError as error:
            raise StatusRequestError(f"not an HTTP/1.1 request: {error}") from None


def _judge(request: h11.Request) -> None:
    """Refuse, with a sentence, requests that the server would refuse without one. Otherwise the server might also
    switch to HTTP/2 or a websocket and wait for bytes that never come."""
    path = request.target.partition(b"?")[0]
    if not path.startswith(b"/") or b"%" in path:
        raise StatusRequestError("the path must begin with / and have no %-escapes")
    if request.http_version not in (b"1.0", b"1.1"):
        raise StatusRequestError(f"HTTP/{request.http_version.decode()} is not supported, only HTTP/1.1")
    if any(name == b"upgrade" for name, _ in request.headers):
        raise StatusRequestError("the connection cannot be upgraded")


class _GuardedStream(anyio.abc.ByteStream):
    """The server's view of a connection: the request, then silence; writes with a deadline."""

    def __init__(self, stream: trio.SocketStream, request: bytes, deadline_s: float) -> None:
        self._stream = stream
        self._request: bytes | None = request
        self._deadline_s = deadline_s
        self._closed = trio.Event()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if self._request is not None:
            request, self._request = self._request, None
            return request
        await self._closed.wait()
        raise anyio.EndOfStream

    async def send(self, item: bytes) -> None:
        for start in range(0, len(item), _WRITE_BYTES):
            with trio.move_on_after(self._deadline_s) as deadline:
                try:
                    await self._stream.send_all(item[start : start + _WRITE_BYTES])
                except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError) as error:
                    self._closed.set()
                    raise anyio.BrokenResourceError from error
            if deadline.cancelled_caught:
                self._closed.set()
                raise anyio.BrokenResourceError

    async def send_eof(self) -> None:
        """Nothing: closing ends the stream too, and no client needs a half-open connection."""

    async def aclose(self) -> None:
        self._closed.set()
        await self._stream.aclose()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        return {anyio.abc.SocketAttribute.raw_socket: lambda: self._stream.socket}
