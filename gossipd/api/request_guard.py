"""A local socket's HTTP server: one whole, small, well-formed request on each connection, with deadlines.

What lives here: the accept loop, its limits, and the answers to malformed requests. What does not: the routes
(``routes``), one request and its answer (``http_exchange``), who gets a place (``socket_places``), and the form of HTTP
(h11).

A request is read, head and body, under one deadline, before the routes see any of it; each 64 KiB of an answer
have a deadline too, so a client that stops reading holds no task. It needs a place of its kind once it has been read,
so a refusal is an answer, and what takes long keeps nobody from asking. One that finds none waits for it as long as it
may take to be read: ranks of a job wake together, and each is answered within milliseconds. A client that only closes
its sending half still gets its answer. Garbage gets one JSON line in plain words before the connection is closed (``nc
-U`` shows it). Rejected: a general server, which imports HTTP/2 and websockets that no client here may use.
"""

from __future__ import annotations

import json
import math
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar

import trio

from gossipd.api.calling_process import NO_PROCESS, CallingProcess
from gossipd.api.http_exchange import HttpExchange, StatusRequestError
from gossipd.api.http_messages import HttpRequest, Response
from gossipd.api.socket_places import Places
from gossipd.runtime.logs import get_logger
from gossipd.runtime.system_refusals import EXHAUSTED, note_refusal

CONNECTIONS_MAX = 512  # each holds one descriptor, and until it is answered its request, of 64 KiB at most
SHORT_MAX = 16  # a person with a few scripts and a scraper; each is answered within milliseconds
LONG_MAX = 256  # of waits, and of followers; each waits for minutes and costs two tasks
LONG_OF_ONE_MAX = 64  # eight jobs with a rank for each of eight GPUs
WAIT_PATH = "/v1/wait"
WAIT_PATHS = (
    WAIT_PATH,
    "/v1/publish",
    "/v1/adopt",
    "/v1/shards",
    "/v1/assemble",
    "/v1/adopt-shards",
)  # their answers may take long; they leave the places of short requests free
EVENTS_PATH = "/v1/events"
DEADLINE_S = 2.0  # for the whole request, and for each 64 KiB of the answer
EXHAUSTED_PAUSE_S, TELL_EVERY_S = 0.1, 60.0
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

    def __init__(self, app: App, *, clients_max: int = CONNECTIONS_MAX, deadline_s: float = DEADLINE_S) -> None:
        self._app = app
        self._deadline_s = deadline_s
        self._connections = Places("connections", clients_max, _most_of_one(clients_max))
        self._short = Places("short requests", SHORT_MAX, _most_of_one(SHORT_MAX))
        self._waits = Places("waits and publications", LONG_MAX, LONG_OF_ONE_MAX)
        self._followers = Places("followers of events", LONG_MAX, LONG_OF_ONE_MAX)
        self._told_s = -math.inf  # when a connection could not be accepted
        self.refused = 0  # refused requests and connections, for metrics

    @property
    def clients(self) -> int:
        """Connected now."""
        return self._connections.taken

    @property
    def waits(self) -> int:
        """Served now, of those whose answers may take long."""
        return self._waits.taken

    @property
    def followers(self) -> int:
        """Served now, of those who wait for events."""
        return self._followers.taken

    async def serve(self, listener: trio.SocketListener) -> None:
        """Accept for ever. Without descriptors or memory it waits and goes on. Rejected: trio.serve_listeners, which
        does so with a traceback in the log ten times a second."""
        async with trio.open_nursery() as nursery, listener:
            while True:
                try:
                    stream = await listener.accept()
                except OSError as error:
                    if error.errno not in EXHAUSTED:
                        raise
                    note_refusal(error)
                    self._tell_exhausted(error, trio.current_time())
                    await trio.sleep(EXHAUSTED_PAUSE_S)
                else:
                    nursery.start_soon(self._connection, stream)

    def _tell_exhausted(self, error: OSError, now: float) -> None:
        if now - self._told_s >= TELL_EVERY_S:
            self._told_s = now
            log.warning("no connection is accepted for now", reason=error.strerror)

    async def _connection(self, stream: trio.SocketStream) -> None:
        async with stream:
            _, user = _caller_of(stream.socket)
            # A client may disconnect at any time; then its answer is dropped.
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError), self._connections.asked(user) as place:
                if place.is_had:
                    await self._admit(stream, user)
                else:
                    await self._turn_away(stream, self._connections.refusal(user))

    async def _admit(self, stream: trio.SocketStream, user: int) -> None:
        exchange = await self._read(stream)
        if exchange is None:
            return
        places, had = self._places_for(exchange.request), trio.Event()
        with places.asked(user, had.set) as place:
            with trio.move_on_after(self._deadline_s):
                await had.wait()
            if not place.is_had:
                await self._turn_away(stream, places.refusal(user))
            elif places is self._followers or exchange.request.path == WAIT_PATH:
                await self._answer_while_there(exchange)
            else:
                await self._answer(exchange)

    def _places_for(self, request: HttpRequest) -> Places:
        if request.path in WAIT_PATHS:
            return self._waits
        if request.path == EVENTS_PATH and (request.wants_stream or request.query.get("wait_s", "").strip("0")):
            return self._followers
        return self._short

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

    async def _answer_while_there(self, exchange: HttpExchange) -> None:
        """A question alone: what a publication has begun goes on without its client."""
        async with trio.open_nursery() as nursery:

            async def end_when_gone() -> None:
                await exchange.client_gone()
                nursery.cancel_scope.cancel()

            nursery.start_soon(end_when_gone)
            await self._answer(exchange)
            nursery.cancel_scope.cancel()

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

    async def _turn_away(self, stream: trio.SocketStream, sentence: str) -> None:
        self.refused += 1
        await self._refuse(stream, sentence, 503)

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


def _most_of_one(places: int) -> int:
    """A user may have three quarters: of short requests 12."""
    return max(1, places * 3 // 4)


def _caller_of(connection: trio.socket.SocketType) -> tuple[int, int]:
    """Process and user."""
    if connection.family != socket.AF_UNIX:
        return 0, -1
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    process, user, _ = _PEER.unpack(credentials)
    return process, user
