"""A request as the routes see it, and what they answer: a body at once or in pieces, or a stream of parts.

What lives here: the values. What does not: reading and writing them (``http_exchange``), and which method answers
(``router``).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence

from msgspec import Struct, field

JSON = "application/json"
PART_BYTES = 65_536  # what one step of the loop copies and sends of an answer


class HttpRequest(Struct, frozen=True, kw_only=True):
    """A request that was read whole.

    ``path`` is without the query. ``query``: its fields as texts; of one that is given twice the last. ``headers``:
    by names in lower case; of one that is given twice the first. ``path_params``: what the route's pattern names.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    path_params: Mapping[str, str] = field(default_factory=dict)

    @property
    def wants_stream(self) -> bool:
        """Whether server-sent events are asked for."""
        return "text/event-stream" in self.headers.get("accept", "")


class Response:
    """An answer whose body is known."""

    def __init__(self, body: bytes, *, status_code: int = 200, media_type: str = JSON) -> None:
        self.body = body
        self.status_code = status_code
        self.media_type = media_type

    def headers(self) -> list[tuple[str, str]]:
        """What the head says of the body."""
        return [("content-length", str(len(self.body))), ("content-type", self.media_type)]

    async def parts(self) -> AsyncGenerator[bytes, None]:
        """The body."""
        yield self.body


class PiecewiseResponse(Response):
    """An answer whose body is known in pieces: of many megabytes one copy in one step would hold up the loop."""

    def __init__(self, pieces: Sequence[bytes], *, media_type: str = JSON) -> None:
        super().__init__(b"", media_type=media_type)
        self._pieces = pieces

    def headers(self) -> list[tuple[str, str]]:
        return [("content-length", str(sum(map(len, self._pieces)))), ("content-type", self.media_type)]

    async def parts(self) -> AsyncGenerator[bytes, None]:
        """The pieces, of which short ones are put together."""
        part = bytearray()
        for piece in self._pieces:
            part += piece
            if len(part) >= PART_BYTES:
                yield bytes(part)
                part.clear()
        yield bytes(part)


class StreamingResponse(Response):
    """An answer whose parts come one by one; each is sent at once. ``parts`` is closed when the client has gone."""

    def __init__(self, parts: AsyncGenerator[bytes, None], *, media_type: str) -> None:
        super().__init__(b"", media_type=media_type)
        self._parts = parts

    def headers(self) -> list[tuple[str, str]]:
        return [("content-type", self.media_type)]

    def parts(self) -> AsyncGenerator[bytes, None]:
        return self._parts
