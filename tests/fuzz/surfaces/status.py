"""The status socket: requests through the guard, the routes and their arguments, to a daemon made up of tables.

Most inputs are read by the guard's own reader and, when it lets them past, given to the application as the server
would; one in 64 goes over a socket through the whole of guard and server. A change before sealing is one in a
method, path, query, header or JSON body of a request that is then written as HTTP.
"""

from __future__ import annotations

import json
import socket
from contextlib import aclosing
from random import Random
from typing import Any, cast
from urllib.parse import quote

import trio

from gossipd.api.http_exchange import HttpExchange, StatusRequestError
from gossipd.api.request_guard import RequestGuard
from gossipd.api.routes import health_app, status_app
from tests.fuzz.mutations import mutate_bytes, mutate_value, pick
from tests.fuzz.surface import Case
from tests.gossipd.api.fake_daemon import FakeDaemon

_WHOLE_EVERY = 64
_PIECE_BYTES = 997  # a request comes in pieces, now and then in the middle of a line
_PAGES = (
    "/v1/status", "/v1/status?name=org%2Ftoy&version=3", "/v1/members", "/v1/models?name=org/toy", "/v1/peers",
    "/v1/status?host=node-2", "/v1/status?hosts_max=0",
    "/v1/deployments/org/toy/3", "/v1/deployments/nothing/1", "/metrics", "/healthz", "/livez", "/readyz",
)  # fmt: skip
_ORDERS: tuple[tuple[str, dict[str, object]], ...] = (
    ("/v1/cancel", {"name": "org/toy", "version": 3}), ("/v1/rm", {"name": "org/toy", "version": "3", "dry_run": True}),
    ("/v1/rollback", {"name": "org/toy"}), ("/v1/forget", {"node": "node-1"}), ("/v1/forget", {"node": "node-3"}),
    ("/v1/verify", {"name": "org/toy", "version": 3}), ("/v1/cancel", {"name": "nothing", "version": 1}),
)  # fmt: skip
_METHODS = ("GET", "GET", "POST", "POST", "HEAD", "PUT", "OPTIONS", "CONNECT", "TRACE", "get", "")
_HEADERS = (
    "Host: x", "Connection: keep-alive", "Upgrade: websocket", "Upgrade: h2c", "Transfer-Encoding: chunked",
    "Content-Length: 99999999999999999999", "Content-Length: -1", "Content-Length: 0", "Expect: 100-continue",
    "Content-Type: application/json; charset=\xff", "Cookie: " + "a" * 900, "Host: y", ": empty", "X:\x00", "Accept: *",
)  # fmt: skip


class _Said:
    """A stream whose other end has already said everything."""

    def __init__(self, said: bytes) -> None:
        self._said = said
        self._at = 0

    async def receive_some(self, bytes_max: int) -> bytes:
        """See trio.SocketStream."""
        piece = self._said[self._at : self._at + min(bytes_max, _PIECE_BYTES)]
        self._at += len(piece)
        return piece


class StatusSurface:
    """See the module."""

    name = "status"
    share = 1.0

    def __init__(self, rng: Random) -> None:
        self._daemon = _Daemon()
        guarded = status_app(self._daemon, self._daemon, self._daemon, self._daemon.ring)
        self._apps: list[Any] = [guarded, health_app(self._daemon)]
        self._guard = RequestGuard(self._apps[0], deadline_s=30.0)
        self._requests = [_request("GET", path, [], b"") for path in _PAGES]
        self._requests += [_request("POST", path, [], json.dumps(fields).encode()) for path, fields in _ORDERS]
        self._count = 0

    def case(self, rng: Random) -> Case:
        """See Surface."""
        if rng.random() < 0.35:
            return Case("http", mutate_bytes(pick(rng, self._requests), rng, self._requests), False)
        headers: list[str] = []
        if rng.random() < 0.6:
            path, fields = pick(rng, _ORDERS)
            method = "POST" if rng.random() < 0.95 else pick(rng, _METHODS)
            changed = mutate_value(fields, rng) if rng.random() < 0.9 else fields
            if rng.random() < 0.2 and isinstance(changed, dict):
                path, body = f"{path}?{_query(changed)}", b""
            else:
                body = json.dumps(_plain(changed), ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
                if rng.random() < 0.1:
                    body = mutate_bytes(body, rng)
        else:
            method = "GET" if rng.random() < 0.9 else pick(rng, _METHODS)
            path, body = pick(rng, _PAGES), b""
            parts = mutate_value(path.split("/"), rng)
            if isinstance(parts, list):
                joined = "/".join(str(part) for part in parts)
                path = quote(joined, safe="/?=&@:+-._~" + ("%" if rng.random() < 0.2 else ""))
        while rng.random() < 0.15:
            headers.append(pick(rng, _HEADERS))
        return Case("http", _request(method, path, headers, body), True)

    def seal(self, case: Case) -> bytes:
        """See Surface."""
        return case.body

    async def deliver(self, arrived: bytes) -> None:
        """See Surface."""
        self._count += 1
        if self._count % _WHOLE_EVERY == 0:
            await self._whole(arrived)
            return
        try:
            exchange = await HttpExchange.read(cast(Any, _Said(arrived)), 30.0)
        except StatusRequestError:
            return
        if exchange is not None:
            await _serve(self._apps[self._count % 8 == 0], exchange)

    def rest(self) -> None:
        """See Surface."""
        self._daemon.orders.clear()

    def close(self) -> None:
        """See Surface."""

    async def _whole(self, arrived: bytes) -> None:
        ours, theirs = socket.socketpair()
        client = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
        server = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._guard._connection, server)
            async with client:
                try:
                    await client.send_all(arrived)
                    await client.send_eof()
                except trio.BrokenResourceError:
                    pass  # refused before it had read everything
                try:
                    while await client.receive_some():
                        pass
                except trio.BrokenResourceError:
                    pass
        assert self._guard.clients == 0


class _Daemon(FakeDaemon):
    """Its page is made once: making it is not what is looked at here."""

    def __init__(self) -> None:
        super().__init__()
        self._page = super().snapshot()

    def snapshot(self) -> Any:
        """See StatusPort."""
        return self._page


def _request(method: str, path: str, headers: list[str], body: bytes) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("utf-8", "surrogatepass") + b"\r\n\r\n" + body


def _query(fields: dict[Any, Any]) -> str:
    return "&".join(f"{quote(str(key))}={quote(str(value)[:500])}".replace("%", "+") for key, value in fields.items())


def _plain(value: Any) -> Any:
    """JSON has no bytes."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


async def _serve(app: Any, exchange: HttpExchange) -> None:
    """Have the application answer, to nobody."""
    answer = await app(exchange.request)
    assert answer.status_code != 500
    async with aclosing(answer.parts()) as parts:
        async for _ in parts:
            pass
