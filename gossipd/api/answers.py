"""What a local socket sends back: a JSON object, lines of JSON, or a refusal with its status.

What lives here: the form of answers, and the HTTP status of each error. What does not: their fields (``schema``), and
refusals of what is no request (``request_guard``).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence

import msgspec

from gossipd.api.http_exchange import StatusRequestError
from gossipd.api.http_messages import PiecewiseResponse, Response, StreamingResponse
from gossipd.api.request_guard import error_body
from gossipd.api.schema import SCHEMA_VERSION, Row
from gossipd.core.errors import ExitCode, GossipdError, RemoteError

_STATUS_OF_EXIT: Mapping[int, int] = {
    ExitCode.USAGE: 400,
    ExitCode.NOT_FOUND: 404,
    ExitCode.TRUST: 403,
    ExitCode.DISK: 507,
    ExitCode.TIMEOUT: 504,
}


def json_answer(answer: msgspec.Struct | Mapping[str, object], status: int = 200) -> Response:
    fields = msgspec.structs.asdict(answer) if isinstance(answer, msgspec.Struct) else dict(answer)
    body = msgspec.json.encode({"schema_version": SCHEMA_VERSION, **fields})
    return Response(body + b"\n", status_code=status)


def listed_answer(fields: Mapping[str, object], name: str, rows: Sequence[bytes]) -> Response:
    """The same of an object with a list of this name at its end, whose items are JSON already."""
    head = msgspec.json.encode({"schema_version": SCHEMA_VERSION, **fields, name: []})
    pieces = [head.removesuffix(b"]}")]
    for number, row in enumerate(rows):
        pieces += [b",", row] if number else [row]
    return PiecewiseResponse([*pieces, b"]}\n"])


async def streamed_answer(steps: AsyncGenerator[Row, None]) -> Response:
    """One line of JSON for each step. The first is taken before the head is sent, so that a refusal has a status."""
    first = await anext(steps, None)

    async def lines() -> AsyncGenerator[bytes, None]:
        try:
            if first is not None:
                yield msgspec.json.encode(first) + b"\n"
            async for step in steps:
                yield msgspec.json.encode(step) + b"\n"
        except GossipdError as error:
            yield error_body(error.code, str(error), int(error.code_of_exit))
        finally:
            await steps.aclose()

    return StreamingResponse(lines(), media_type="application/x-ndjson")


def refusal(error: GossipdError) -> Response:
    """The answer that says what was refused, and why."""
    status = _STATUS_OF_EXIT.get(error.code_of_exit, 409)
    if isinstance(error, StatusRequestError):
        status = 400
    elif isinstance(error, RemoteError) and status == 409:
        status = 502
    body = error_body(error.code, str(error), int(error.code_of_exit))
    return Response(body, status_code=status)
