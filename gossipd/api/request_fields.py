"""The arguments of a request on a local socket: which are given, which must be, and what their texts mean.

What lives here: reading them from the query and the JSON body, and refusing those that are unknown, missing or of the
wrong form. What does not: what a question or a command does with them (``question_pages``, ``operator_commands``,
``job_commands``), and what is no HTTP request at all (``request_guard``).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gossipd.api.http_exchange import StatusRequestError
from gossipd.api.http_messages import HttpRequest
from gossipd.core.errors import UsageError

_MAY_BE_EMPTY = ("want", "about")  # clients send no terms beside ``clear``, and a job may have nothing to say


def command_fields(request: HttpRequest, *names: str, optional: tuple[str, ...] = ()) -> dict[str, str]:
    """The arguments of a command, from the query and the body: all ``names``, and any of the ``optional`` ones."""
    given: dict[str, str] = dict(request.query)
    if body := request.body:
        try:
            sent = msgspec.json.decode(body, type=dict[str, object])
            given |= {key: _text(key, value) for key, value in sent.items()}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise StatusRequestError("the body is not a JSON object") from None
    return _checked(given, names, optional)


def question_fields(request: HttpRequest, *names: str, optional: tuple[str, ...] = ()) -> dict[str, str]:
    """The arguments of a question, which has no body: all ``names``, and any of the ``optional`` ones."""
    return _checked(dict(request.query), names, optional)


def _checked(given: dict[str, str], names: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, str]:
    for name, text in given.items():
        if name not in names + optional:
            raise StatusRequestError(f"field '{name[:40]}' is unknown; expected {', '.join(names + optional)}")
        if "\0" in text:  # no path and no name has it, and the system's calls raise ValueError
            raise StatusRequestError(f"field '{name}' has a zero byte")
        if not text and name in optional and name not in _MAY_BE_EMPTY:  # an empty budget would be none
            raise StatusRequestError(f"field '{name}' is empty; leave it out, or give it a value")
    for name in names:
        if not given.get(name):
            raise StatusRequestError(f"field '{name}' is missing")
    return given


def _text(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | str):
        return str(value)
    raise StatusRequestError(f"field '{key[:40]}' must be a string, a whole number or true or false")


def is_set(fields: Mapping[str, str], key: str) -> bool:
    """Raises UsageError: an order that is given for all hosts by a slip of the pen must not be one for this host."""
    if fields.get(key, "false") not in ("true", "false"):
        raise UsageError(f"{key} must be true or false")
    return fields.get(key) == "true"


def whole_number(text: str, field: str = "version") -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 16):
        raise UsageError(f"{field} {text[:20]!r} must be a non-negative integer of at most 16 digits")
    return int(text)


def round_s(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise UsageError(f"round_s {text[:20]!r} must be a number of seconds, not negative and not endless")
    return seconds
