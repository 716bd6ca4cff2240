"""Which method answers a path, and what is answered where there is none or where it refuses.

What lives here: patterns of paths, and the choice. What does not: the table of paths (``routes``), and HTTP
(``http_exchange``).

A pattern names parts of a path: ``{verb}`` is all between two slashes, ``{name:path}`` may have slashes in it, and
``{version:int}`` is digits. The first route that fits path and method answers. Rejected: starlette, whose routing is
this, and which brings anyio and asyncio: 3.3 MB that every daemon would hold from its first question on.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus

from msgspec.structs import replace

from gossipd.api.answers import refusal
from gossipd.api.http_messages import HttpRequest, Response
from gossipd.api.request_guard import error_body
from gossipd.core.errors import GossipdError

Endpoint = Callable[[HttpRequest], Awaitable[Response]]
_NAMED = re.compile(r"\{(\w+)(?::(\w+))?\}")
_KINDS = {None: "[^/]+", "path": ".+", "int": "[0-9]+"}


class Route:
    """Paths of one pattern, and the method that answers them. HEAD is answered where GET is."""

    def __init__(self, path: str, endpoint: Endpoint, *, method: str = "GET") -> None:
        self.path = path
        self.endpoint = endpoint
        self.methods = frozenset({"GET", "HEAD"} if method == "GET" else {method})
        self._pattern = re.compile(_NAMED.sub(lambda found: f"(?P<{found[1]}>{_KINDS[found[2]]})", path))

    def match(self, path: str) -> dict[str, str] | None:
        """What the pattern names, None for another path."""
        found = self._pattern.fullmatch(path)
        return None if found is None else found.groupdict()


class Router:
    """Answers requests by a table of routes."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)

    async def __call__(self, request: HttpRequest) -> Response:
        """The answer. What is not a refusal, a bug, is passed on."""
        status = HTTPStatus.NOT_FOUND
        for route in self.routes:
            if (named := route.match(request.path)) is None:
                continue
            if request.method in route.methods:
                try:
                    return await route.endpoint(replace(request, path_params=named))
                except GossipdError as error:
                    return refusal(error)
            status = HTTPStatus.METHOD_NOT_ALLOWED
        sentence = f"{request.method} {request.path[:100]}: {status.phrase}"
        return Response(error_body("E_STATUS_REQUEST", sentence), status_code=status)
