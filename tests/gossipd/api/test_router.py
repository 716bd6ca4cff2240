"""Which route answers: patterns, methods, refusals."""

from __future__ import annotations

import pytest
import trio

from gossipd.api.http_messages import HttpRequest, Response
from gossipd.api.router import Route, Router
from gossipd.core.errors import NotFoundError


async def shown(request: HttpRequest) -> Response:
    return Response(repr(dict(request.path_params)).encode())


async def refused(request: HttpRequest) -> Response:
    raise NotFoundError("no such thing")


ROUTER = Router(
    [
        Route("/v1/one", shown), Route("/v1/no", refused), Route("/v1/of/{name:path}/{version:int}", shown),
        Route("/v1/{verb}", shown, method="POST"),
    ]
)  # fmt: skip


def answer(method: str, path: str) -> tuple[int, bytes]:
    async def asked() -> Response:
        return await ROUTER(HttpRequest(method=method, path=path, query={}, headers={}, body=b""))

    said = trio.run(asked)
    return said.status_code, said.body


@pytest.mark.parametrize(
    ("method", "path", "named"),
    [
        ("GET", "/v1/one", b"{}"),
        ("HEAD", "/v1/one", b"{}"),
        ("GET", "/v1/of/org/toy/3", b"{'name': 'org/toy', 'version': '3'}"),
        ("POST", "/v1/one", b"{'verb': 'one'}"),
    ],
)
def test_a_pattern_names_parts_of_the_path(method: str, path: str, named: bytes) -> None:
    assert answer(method, path) == (200, named)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 405), ("PUT", "/v1/one", 405), ("GET", "/v1/one/", 404), ("GET", "/v1/of/toy", 404),
        ("GET", "/v1/of/toy/x", 404), ("GET", "/v1/of/toy/\u0663", 404), ("POST", "/v1/a/b", 404),
        ("GET", "/v1/no", 404),
    ],
)  # fmt: skip
def test_what_no_route_answers_is_refused(method: str, path: str, status: int) -> None:
    found, body = answer(method, path)
    assert found == status
    assert b'"code"' in body


def test_a_refusal_of_the_method_is_its_answer() -> None:
    assert b"E_NOT_FOUND" in answer("GET", "/v1/no")[1]
