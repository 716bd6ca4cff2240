"""One HTTP request on a connection, and its answer by an ASGI application.

What lives here: what is a request that is answered at all, and the way between h11 and ASGI. What does not: how many
clients there may be, the refusals (``request_guard``), and the routes (``routes``).

A connection carries one request; bytes after it are dropped. The application has the whole request from the start. A
client that has gone is found by a write that fails: then the application is cancelled.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

import h11
import trio
from starlette.types import ASGIApp

from gossipd.core.errors import RemoteError

REQUEST_BYTES_MAX = 4096  # our own client's longest request is under 600 bytes
_WRITE_BYTES = 65_536
_READ_BYTES = 4096


class StatusRequestError(RemoteError):
    """No request that this daemon answers. Fault: the client. State: unchanged. Retry: after correcting it."""

    code = "E_STATUS_REQUEST"


class HttpExchange:
    """A request that has been read. ``deadline_s``: for each 64 KiB of its answer."""

    def __init__(
        self, stream: trio.SocketStream, parser: h11.Connection, request: h11.Request, body: bytes, deadline_s: float
    ) -> None:
        self._stream = stream
        self._parser = parser
        self._request = request
        self._body: bytes | None = body
        self._deadline_s = deadline_s
        self._head: bytes = b""
        self._answering = trio.CancelScope()

    @classmethod
    async def read(cls, stream: trio.SocketStream, deadline_s: float) -> HttpExchange | None:
        """One whole request; None when the client sent nothing. Raises StatusRequestError."""
        parser = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_BYTES_MAX)
        request, body, received = None, b"", 0
        while True:
            part = await stream.receive_some(_READ_BYTES)
            if not part and not received:
                return None
            received += len(part)
            if received > REQUEST_BYTES_MAX:
                raise StatusRequestError(f"the request has more than {REQUEST_BYTES_MAX} bytes")
            try:
                parser.receive_data(part)
                while (event := parser.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                    if isinstance(event, h11.Request):
                        _judge(event)
                        request = event
                    elif isinstance(event, h11.Data):
                        body += event.data
                    elif isinstance(event, h11.EndOfMessage):
                        assert request is not None
                        return cls(stream, parser, request, body, deadline_s)
                    else:
                        raise StatusRequestError("the request is incomplete")
            except h11.RemoteProtocolError as error:
                raise StatusRequestError(f"not an HTTP/1.1 request: {error}") from None

    @property
    def socket(self) -> trio.socket.SocketType:
        """The connection's."""
        return self._stream.socket

    @property
    def path(self) -> str:
        """Without the query."""
        return self._request.target.partition(b"?")[0].decode("ascii")

    async def answer(self, app: ASGIApp) -> None:
        """Serve one request: returns when the whole answer is sent or the client has gone. Passes on what the
        application raises."""
        with self._answering:
            await app(self._scope(), self._receive, self._send)

    def _scope(self) -> dict[str, Any]:
        """The request as ASGI describes it. With 2.4 an application that streams need not look for a client that has
        gone."""
        path, _, query = self._request.target.partition(b"?")
        return {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": self._request.http_version.decode(), "method": self._request.method.decode().upper(),
            "scheme": "http", "path": self.path, "raw_path": path, "query_string": query, "root_path": "",
            "headers": [(bytes(name), bytes(value)) for name, value in self._request.headers],
            "client": None, "server": None,
        }  # fmt: skip

    async def _receive(self) -> dict[str, Any]:
        if self._body is None:
            await trio.sleep_forever()  # a client that has gone is found by a write
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = [*message["headers"], (b"date", formatdate(usegmt=True).encode()), (b"connection", b"close")]
            status = HTTPStatus(message["status"])
            response = h11.Response(status_code=status, headers=headers, reason=status.phrase)
            self._head = self._parser.send(response) or b""
            return
        said, self._head = bytearray(self._head), b""
        if self._request.method != b"HEAD":
            said += self._parser.send(h11.Data(data=message.get("body", b""))) or b""
        if not message.get("more_body", False):
            said += self._parser.send(h11.EndOfMessage()) or b""
        await self._write(said)

    async def _write(self, said: bytearray) -> None:
        for start in range(0, len(said), _WRITE_BYTES):
            with trio.move_on_after(self._deadline_s), suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self._stream.send_all(said[start : start + _WRITE_BYTES])
                continue
            self._answering.cancel()
            return


def _judge(request: h11.Request) -> None:
    """Refuse, with a sentence, what the application would refuse without one, and what is no plain request."""
    path = request.target.partition(b"?")[0]
    if not path.startswith(b"/") or b"%" in path:
        raise StatusRequestError("the path must begin with / and have no %-escapes")
    if request.http_version not in (b"1.0", b"1.1"):
        raise StatusRequestError(f"HTTP/{request.http_version.decode()} is not supported, only HTTP/1.1")
    if any(name == b"upgrade" for name, _ in request.headers):
        raise StatusRequestError("the connection cannot be upgraded")
