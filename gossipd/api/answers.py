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
    body = to_json({"schema_version": SCHEMA_VERSION, **fields})
    return Response(body + b"\n", status_code=status)


def listed_answer(fields: Mapping[str, object], name: str, rows: Sequence[bytes]) -> Response:
    """The same of an object with a list of this name at its end, whose items are JSON already."""
    head = to_json({"schema_version": SCHEMA_VERSION, **fields, name: []})
    pieces = [head.removesuffix(b"]}")]
    for number, row in enumerate(rows):
        pieces += [b",", row] if number else [row]
    return PiecewiseResponse([*pieces, b"]}\n"])


def to_json(value: object) -> bytes:
    """As JSON. What no encoding holds, as a byte of a file's name that is no UTF-8, is escaped: one such name must not
    hide all else from an operator."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_escaped(msgspec.to_builtins(value)))


def _escaped(value: object) -> object:
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case dict():
            return {_escaped(key): _escaped(one) for key, one in value.items()}
        case list() | tuple():
            return [_escaped(one) for one in value]
    return value


async def streamed_answer(steps: AsyncGenerator[Row, None]) -> Response:
    """One line of JSON for each step. The first is taken before the head is sent, so that a refusal has a status."""
    first = await anext(steps, None)

    async def lines() -> AsyncGenerator[bytes, None]:
        try:
            if first is not None:
                yield to_json(first) + b"\n"
            async for step in steps:
                yield to_json(step) + b"\n"
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
