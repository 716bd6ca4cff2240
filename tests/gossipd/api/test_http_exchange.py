"""One request on a connection: what the application is given, and what of its answer arrives."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator

import pytest
import trio

from gossipd.api.answers import json_answer, listed_answer
from gossipd.api.http_exchange import ABOUT_REQUEST_BYTES_MAX, HttpExchange, StatusRequestError
from gossipd.api.http_messages import PART_BYTES, HttpRequest, PiecewiseResponse, Response, StreamingResponse
from gossipd.api.request_guard import App


async def pair() -> tuple[trio.SocketStream, trio.SocketStream]:
    ours, theirs = socket.socketpair()
    return (
        trio.SocketStream(trio.socket.from_stdlib_socket(theirs)),
        trio.SocketStream(trio.socket.from_stdlib_socket(ours)),
    )


async def said(request: bytes, app: App) -> tuple[list[bytes], bytes]:
    """The lines of the head and the body of the answer."""
    client, server = await pair()
    async with client:
        await client.send_all(request)
        async with server:
            exchange = await HttpExchange.read(server, 5.0)
            assert exchange is not None
            await exchange.answer(await app(exchange.request))
        answer = b"".join([part async for part in client])
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.lower().split(b"\r\n"), body


async def test_an_application_is_given_the_whole_request() -> None:
    async def app(request: HttpRequest) -> Response:
        words = f"{request.method} {request.path} {dict(request.query)} {request.headers['x']} {request.body.decode()}"
        return Response(words.encode())

    first_lines = b"POST /p?a=1&b=&a=%26+c HTTP/1.1\r\nHost: d\r\nX: y\r\nX: z\r\n"
    head, body = await said(first_lines + b"Content-Length: 2\r\n\r\nhi and more", app)
    assert body == b"POST /p {'a': '& c', 'b': ''} y hi"
    assert b"connection: close" in head


async def test_only_a_publication_may_have_a_long_body() -> None:
    async def app(request: HttpRequest) -> Response:
        return Response(b"%d" % len(request.body))

    async def sent(path: str, count: int) -> bytes:
        head = f"POST {path} HTTP/1.1\r\nHost: d\r\nContent-Length: {count}\r\n\r\n".encode()
        return (await said(head + b"x" * count, app))[1]

    most = ABOUT_REQUEST_BYTES_MAX - 200
    assert await sent("/v1/publish", most) == await sent("/v1/assemble", most) == b"%d" % most
    for path, count in (("/v1/publish", ABOUT_REQUEST_BYTES_MAX), ("/v1/deploy", 4096), ("/v1/publish?a=b", 4096)):
        with pytest.raises(StatusRequestError, match="the request has more than"):
            await sent(path, count)


async def test_a_head_request_is_answered_without_a_body() -> None:
    async def app(request: HttpRequest) -> Response:
        return Response(b"twelve bytes")

    head, body = await said(b"HEAD / HTTP/1.1\r\nHost: d\r\n\r\n", app)
    assert (head[0], body) == (b"http/1.1 200 ok", b"")
    assert b"content-length: 12" in head


@pytest.mark.parametrize("sizes", [[], [0, 5], [1] * 1000, [PART_BYTES - 1, 1, 1], [40_000] * 5, [3 * PART_BYTES, 7]])
async def test_pieces_arrive_as_one_body_in_parts_of_some_length(sizes: list[int]) -> None:
    pieces = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    response = PiecewiseResponse(pieces)

    async def app(request: HttpRequest) -> Response:
        return response

    head, body = await said(b"GET / HTTP/1.1\r\nHost: d\r\n\r\n", app)
    assert body == b"".join(pieces)
    assert b"content-length: %d" % sum(sizes) in head
    parts = [len(part) async for part in response.parts()]
    assert all(size >= PART_BYTES for size in parts[:-1])
    assert max(parts) <= PART_BYTES + max(sizes, default=0)
    assert (await said(b"HEAD / HTTP/1.1\r\nHost: d\r\n\r\n", app))[1] == b""


@pytest.mark.parametrize("rows", [[], [b"1"], [b"1", b'{"a":[]}', b"null"]])
async def test_a_list_of_encoded_items_is_the_answer_that_encodes_them(rows: list[bytes]) -> None:
    fields = {"node": {"name": "]}"}, "empty": []}
    found = b"".join([part async for part in listed_answer(fields, "rows", rows).parts()])
    assert found == json_answer({**fields, "rows": [json.loads(row) for row in rows]}).body


async def test_a_stream_ends_when_its_client_has_gone() -> None:
    events = []

    async def forever() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"x" * 10_000
                await trio.lowlevel.checkpoint()
        finally:
            events.append("closed")

    client, server = await pair()
    await client.send_all(b"GET / HTTP/1.1\r\nHost: d\r\n\r\n")
    exchange = await HttpExchange.read(server, 5.0)
    assert exchange is not None
    async with server, trio.open_nursery() as nursery:
        nursery.start_soon(exchange.answer, StreamingResponse(forever(), media_type="text/plain"))
        await client.receive_some(10)
        await client.aclose()
    assert events == ["closed"]
