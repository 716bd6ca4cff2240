"""Sizes and durations as people write them.

Sizes: ``512``, ``64KiB``, ``16 MiB``, ``1.5G``; ``K``, ``M``, ``G``, ``T`` alone and with ``iB`` are powers of 1024,
with ``B`` (``kB``, ``GB``) powers of 1000, as storage vendors count.

Durations: ``90``, ``90s``, ``30m``, ``12h``, ``7d``. Points in time: ``2026-11-22T11:04:36Z``, always UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

_SIZE = re.compile(r"(\d{1,15})(\.\d{1,6})?\s?(?:([kmgt])(ib|b)?|b)?", re.ASCII | re.IGNORECASE)
_DURATION = re.compile(r"(\d{1,9})(\.\d{1,6})?\s?(ms|s|m|h|d)?", re.ASCII)
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_bytes(text: str) -> int:
    """Raises ValueError, with a sentence that names the forms."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size such as 512, 64KiB, 16MiB or 500GB")
    whole, fraction, prefix, suffix = match.groups()
    base = 1000 if (suffix or "").lower() == "b" else 1024
    power = "kmgt".index(prefix.lower()) + 1 if prefix else 0
    value = float(whole + fraction) * base**power if fraction else int(whole) * base**power
    if value != int(value):
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(value)


def printable(text: str) -> str:
    """What no terminal takes for an order, and every encoding holds: names in a sentence are anybody's words."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def show_bytes(count: float) -> str:
    """``1.5 GiB``, ``4 MiB``, ``150 MiB``: powers of 1024; with a decimal only below 100 and where it is not zero."""
    unit = 0
    while count >= 1024 and unit < len(_BINARY) - 1:
        count /= 1024
        unit += 1
    whole = unit == 0 or count >= 100 or count == int(count)
    return f"{count:.0f} {_BINARY[unit]}" if whole else f"{count:.1f} {_BINARY[unit]}"


def show_count(count: int, noun: str) -> str:
    """``1 file``, ``2 files``, ``0 files``; for nouns whose plural has an s."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def parse_seconds(text: str) -> float:
    """Raises ValueError, with a sentence that names the forms."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 90s, 30m, 12h or 7d")
    whole, fraction, unit = match.groups()
    return float(whole + (fraction or "")) * _SECONDS[unit or "s"]


def show_time(seconds: float) -> str:
    """A point in time, from seconds since 1970; the bare number outside the calendar's range."""
    try:
        return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(int(seconds))


def timestamp(wall_s: float) -> str | None:
    """RFC 3339 in UTC to the second; None for zero, which means never."""
    return show_time(wall_s) if wall_s > 0 else None


def precise_timestamp(wall_s: float) -> str:
    """RFC 3339 in UTC to the millisecond, of a time within the calendar's range."""
    thousandths = int(wall_s * 1000)
    return f"{show_time(thousandths // 1000)[:-1]}.{thousandths % 1000:03}Z"


def percent_words(part: int, whole: int) -> str:
    """``100 %`` only when it is exact; one decimal, rounded down."""
    if whole <= 0 or part >= whole:
        return "100 %"
    return "0 %" if part <= 0 else f"{part * 1000 // whole / 10:.1f} %"


def part_words(want: str) -> str:
    """A want, its terms a line each, in a few words."""
    terms = want.split("\n") if want else ["a part"]
    return ", ".join(terms[:2]) + (f" and {len(terms) - 2} more" if len(terms) > 2 else "")
