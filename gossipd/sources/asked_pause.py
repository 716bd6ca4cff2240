"""For how long a server asks to be left alone, from the headers of its refusal.

What lives here: the headers by which servers say it. What does not: obeying (``host_pace``, ``publish.hub_listing``).

``Retry-After`` comes first, with seconds or a date. Azure has milliseconds of its own. Hubs and API gateways tell only
when their window begins again: ``RateLimit: "api";r=0;t=55``, ``RateLimit-Reset: 55``, or a time of day in
``X-RateLimit-Reset``. They tell it with every answer, so it asks for nothing while requests are left (``r=4``,
``RateLimit-Remaining``): then the refusal has another reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_NUMBER = re.compile(r"\s*([0-9]{1,15})(?:\.[0-9]{1,9})?\s*", re.ASCII)
_WINDOW = re.compile(r"(?:^|[;,\s])(?:t|reset)\s*=\s*([0-9]{1,9})(?![0-9])", re.ASCII)
_LEFT = re.compile(r"(?:^|[;,\s])(?:r|remaining)\s*=\s*([0-9]{1,15})", re.ASCII)
_TIMES_FROM = 1_000_000_000  # a greater number is a time since 1970
_MILLISECONDS = ("retry-after-ms", "x-ms-retry-after-ms")
_WINDOWS = ("RateLimit", "X-RateLimit", "X-Rate-Limit")

Header = Callable[[str], str | None]
"""The value of the header with this name, in any case; None without it."""


def asked_pause_s(header: Header, now: datetime) -> float | None:
    """Seconds from now; None where the server asks for nothing that can be read."""
    if (told := header("Retry-After")) and (pause_s := _pause_s(told, now)) is not None:
        return pause_s
    for name in _MILLISECONDS:
        if found := _NUMBER.fullmatch(header(name) or ""):
            return float(found[0]) / 1000
    if (pause_s := _until_next_window_s(header("RateLimit") or "")) is not None:
        return pause_s
    for name in _WINDOWS:
        left = _NUMBER.fullmatch(header(f"{name}-Remaining") or "")
        if left is None or not float(left[1]):
            pause_s = _pause_s(header(f"{name}-Reset") or "", now)
            if pause_s is not None:
                return pause_s
    return None


def _until_next_window_s(text: str) -> float | None:
    """Of the first window in which no request is left; an older form has one window, with commas."""
    for window in text.split(",") if ";" in text else [text]:
        left, ends = _LEFT.search(window), _WINDOW.search(window)
        if ends is not None and (left is None or not int(left[1])):
            return float(ends[1])
    return None


def http_date(text: str | None) -> datetime | None:
    """The time in a header; None where it is none."""
    try:
        return parsedate_to_datetime(text) if text else None
    except (ValueError, OverflowError):  # no date, or a number beyond every calendar
        return None


def _pause_s(text: str, now: datetime) -> float | None:
    if found := _NUMBER.fullmatch(text):
        number = float(found[0])
        return max(0.0, number - now.timestamp()) if number > _TIMES_FROM else number
    at = http_date(text)
    return None if at is None or at.tzinfo is None else max(0.0, (at - now.astimezone(UTC)).total_seconds())
