"""``GET /v1/events``: what comes after a reader's last event, at once, after a wait, or as a stream.

What lives here: the long poll and server-sent events. What does not: the ring (``events``), other routes (``routes``).

A reader holds one of the socket's places for followers while it waits, so the wait is bounded, and a stream ends after
an hour. One that has gone gives its place back (``request_guard``).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

import trio

from gossipd.api.answers import json_answer, to_json
from gossipd.api.events import EventRing, EventRow, parse_position
from gossipd.api.http_exchange import StatusRequestError
from gossipd.api.http_messages import HttpRequest, Response, StreamingResponse

ROWS_MAX = 1000  # in one answer
WAIT_MAX_S = 60.0
LOOK_S = 0.2  # while a reader waits; a daemon without readers looks at nothing
QUIET_S = 15.0  # then a stream has a comment, by which a reader knows that the daemon lives
STREAM_MAX_S = 3600.0


class EventPages:
    """One per socket."""

    def __init__(self, ring: EventRing) -> None:
        self._ring = ring

    async def events(self, request: HttpRequest) -> Response:
        """See the table of routes."""
        position = _position(request.query.get("since"))
        if request.wants_stream:
            return StreamingResponse(self._stream(position), media_type="text/event-stream; charset=utf-8")
        rows = await self._after(position, _wait_s(request.query.get("wait_s")))
        return json_answer({"boot": self._ring.boot, "last": self._ring.last, "events": rows})

    async def _after(self, position: tuple[int | None, int], wait_s: float) -> list[EventRow]:
        with trio.move_on_after(wait_s):
            while not (rows := self._ring.since(*position, ROWS_MAX)):
                await trio.sleep(LOOK_S)
            return rows
        return self._ring.since(*position, ROWS_MAX)

    async def _stream(self, position: tuple[int | None, int]) -> AsyncGenerator[bytes, None]:
        ends_s = trio.current_time() + STREAM_MAX_S
        while trio.current_time() < ends_s:
            rows = await self._after(position, QUIET_S)
            for row in rows:
                body = to_json(row)
                name = row.body.__struct_config__.tag
                yield f"id: {row.boot}:{row.id}\nevent: {name}\ndata: ".encode() + body + b"\n\n"
                position = row.boot, row.id
            if not rows:
                yield b": nothing new\n\n"


def _position(text: str | None) -> tuple[int | None, int]:
    if text is None:
        return None, 0
    try:
        return parse_position(text)
    except ValueError as error:
        raise StatusRequestError(f"since {error}") from None


def _wait_s(text: str | None) -> float:
    if text is None:
        return 0.0
    if not (text.isascii() and text.isdecimal() and len(text) <= 3 and int(text) <= WAIT_MAX_S):
        raise StatusRequestError(f"wait_s must be a whole number of seconds, at most {WAIT_MAX_S:g}")
    return float(text)
