"""What a job gives to the client's calls, judged before the daemon is asked.

What lives here: numbers, ``about``, and texts that are none. What does not: which names, terms and paths mean
something, which the daemon judges.

A number that is none would otherwise be a wait without end (``nan`` is never reached), or an error from deep below. A
name that is not set would be another model's, and an empty path the working directory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from operator import index
from pathlib import Path
from typing import Any

from gossipd.core.errors import UsageError
from gossipd.core.versions import VERSION_MAX

ABOUT_BYTES_MAX = 16 * 1024  # as manifests hold; not theirs, which would be imported with what reads them
SECONDS_MAX = 10**9  # 30 years: as the commands take


def seconds(value: Any, argument: str = "timeout") -> float | None:
    """A time to wait; None is for ever, and less than none is none: what is left until a deadline may be so. Raises
    UsageError."""
    if value is None:
        return None
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not number <= SECONDS_MAX:  # nan is not
        told = f"{argument} is {_shown(value)}; it must be a number of seconds, at most {SECONDS_MAX}"
        raise UsageError(f"{told}, or None, which is for ever")
    return max(0.0, number)


def text(value: Any, argument: str) -> str:
    """A text that is not empty. Raises UsageError."""
    try:
        if isinstance(value, str) and value and value.encode():
            return value
    except UnicodeEncodeError:
        pass
    raise UsageError(f"{argument} is {_shown(value)}; it must be a text that is not empty")


def absolute_path(value: Any, argument: str) -> Path:
    """An absolute path, of one that is not empty. Raises UsageError."""
    try:
        named = os.fsdecode(value)
    except TypeError:
        named = ""
    if not named:
        raise UsageError(f"{argument} is {_shown(value)}; it must be a path that is not empty")
    return Path(named).absolute()


def patterns(value: Any, argument: str = "exclude") -> dict[str, str]:
    """One pattern or several, as the daemon takes them; nothing, where there are none. Raises UsageError."""
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, Sequence | set | frozenset) or isinstance(listed, bytes):
        raise UsageError(f"{argument} is {_shown(value)}; it must be a pattern of paths, or several")
    told = [text(one, argument) for one in listed]
    for one in told:
        if "\n" in one:
            raise UsageError(f"{argument} is {_shown(one)}; a pattern is one line, and ? stands for a line's end")
    return {argument: "\n".join(told)} if told else {}


def whole(value: Any, argument: str) -> int:
    """A whole number that is not negative, also of numpy's types. Raises UsageError."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = index(value)
    except TypeError:
        number = -1
    if not 0 <= number <= VERSION_MAX:
        raise UsageError(f"{argument} is {_shown(value)}; it must be a whole number from 0 to {VERSION_MAX}")
    return number


def whole_or_none(value: Any, argument: str) -> int | None:
    """As ``whole``, where None is to be left out."""
    return None if value is None else whole(value, argument)


def given(about: Mapping[str, Any] | None, **numbers: int | None) -> dict[str, object]:
    """What was given of what a version may have. Raises UsageError."""
    fields: dict[str, object] = {key: whole(value, key) for key, value in numbers.items() if value is not None}
    return fields | ({"about": _told(about)} if about else {})


def _told(about: Mapping[str, Any]) -> str:
    """``about`` as it is sent."""
    try:
        text = json.dumps(about, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"about is no JSON object: {error}") from None
    if size > ABOUT_BYTES_MAX:
        raise UsageError(f"about has {size} bytes as JSON, at most {ABOUT_BYTES_MAX}")
    return text


def _shown(value: object) -> str:
    """A few characters of it; the digits of a number may be too many to be made."""
    try:
        return repr(value)[:40]
    except ValueError:
        return "a number of thousands of digits"
