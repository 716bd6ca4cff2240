"""One HTTP request on a connection, and its answer.

What lives here: what is a request that is answered at all, and the way between h11 and our own messages. What does not:
how many clients there may be, the refusals (``request_guard``), and the routes (``routes``).

A connection carries one request; bytes after it are dropped. The routes have the whole request from the start. A client
that has gone is found by a write that fails: then a streamed answer is closed. Before that it is found by its socket
(``client_gone``), which both ends must have closed: one that closes only its sending half waits for its answer.
"""

from __future__ import annotations

import select
from contextlib import aclosing, suppress
from email.utils import formatdate
from http import HTTPStatus
from urllib.parse import parse_qsl

import h11
import trio

from gossipd.api.http_messages import PART_BYTES, HttpRequest, Response
from gossipd.core.errors import RemoteError

REQUEST_BYTES_MAX = 4096  # our own client's longest request without lineage is under 600 bytes
ABOUT_REQUEST_BYTES_MAX = 65_536  # 16 KiB of lineage, of which JSON in JSON may make three times as much
ABOUT_PATHS = (b"/v1/publish", b"/v1/assemble")
_READ_BYTES = 4096
_GONE_LOOK_S = 1.0  # of a client that has closed its sending half, or has said more than its request


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
        self._is_head = request.method == b"HEAD"
        self.request = _read(request, body)
        self._deadline_s = deadline_s
        self.has_begun = False  # an answer may be under way
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
            is_long = request is not None and request.target in ABOUT_PATHS
            bytes_max = ABOUT_REQUEST_BYTES_MAX if is_long else REQUEST_BYTES_MAX
            if received > bytes_max:
                raise StatusRequestError(f"the request has more than {bytes_max} bytes")
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

    async def client_gone(self) -> None:
        """Returns when the client has closed its connection entirely. Costs nothing while it says nothing more."""
        await trio.lowlevel.wait_readable(self.socket)
        while not _is_hung_up(self.socket):
            await trio.sleep(_GONE_LOOK_S)

    async def answer(self, response: Response) -> None:
        """Send it; returns when all of it is sent or the client has gone. Passes on what making its parts raises."""
        self.has_begun = True
        said = bytearray(self._head(response))
        with self._answering:
            async with aclosing(response.parts()) as parts:
                async for part in parts:
                    if not self._is_head:
                        said += self._parser.send(h11.Data(data=part)) or b""
                    await self._write(said)
                    said = bytearray()
            await self._write(bytearray(self._parser.send(h11.EndOfMessage()) or b""))

    def _head(self, response: Response) -> bytes:
        headers = [*response.headers(), ("date", formatdate(usegmt=True)), ("connection", "close")]
        status = HTTPStatus(response.status_code)
        return self._parser.send(h11.Response(status_code=status, headers=headers, reason=status.phrase)) or b""

    async def _write(self, said: bytearray) -> None:
        for start in range(0, len(said), PART_BYTES):
            with trio.move_on_after(self._deadline_s), suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self._stream.send_all(said[start : start + PART_BYTES])
                continue
            self._answering.cancel()
            return


def _is_hung_up(connection: trio.socket.SocketType) -> bool:
    look = select.poll()
    look.register(connection.fileno(), 0)  # the kernel tells of the end without being asked
    return any(flags & select.POLLHUP for _, flags in look.poll(0))


def _read(request: h11.Request, body: bytes) -> HttpRequest:
    path, _, query = request.target.partition(b"?")
    return HttpRequest(
        method=request.method.decode().upper(), path=path.decode("ascii"),
        query=dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True)),
        headers={name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(request.headers)},
        body=body,
    )  # fmt: skip


def _judge(request: h11.Request) -> None:
    """Refuse, with a sentence, what no route would answer with one, and what is no plain request."""
    path = request.target.partition(b"?")[0]
    if not path.startswith(b"/") or b"%" in path:
        raise StatusRequestError("the path must begin with / and have no %-escapes")
    if request.http_version not in (b"1.0", b"1.1"):
        raise StatusRequestError(f"HTTP/{request.http_version.decode()} is not supported, only HTTP/1.1")
    if any(name == b"upgrade" for name, _ in request.headers):
        raise StatusRequestError("the connection cannot be upgraded")
