"""A timetable for limits: which entry is in force at a moment, until when, and which entries cannot stand together.

What lives here: reading an entry, overlaps, and the one decision, from the schedule and the wall clock. What does not:
the limits outside the timetable (``config.model_sections``) and applying them (``daemon.scheduled_limits``).

An entry is ``DAYS HOURS LIMIT=RATE ...``, such as ``mon-fri 08:00-18:00 upload=200MiB download=1GiB``. Hours are those
of a clock on the wall in the schedule's one time zone: an hour that the clock skips is never in force, an hour that it
repeats is in force twice. Hours that pass midnight belong to the day on which they begin. One zone for all entries,
because otherwise it would depend on the season whether two of them overlap.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise

from msgspec import Struct

from gossipd.core.units import parse_bytes

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
LIMITS = ("upload", "download", "source")
ENTRIES_MAX = 32
BYTES_PER_S_MAX = 1024**4
_DAY_MINUTES, _WEEK_MINUTES = 1440, 7 * 1440
_LOOK_AHEAD_DAYS = 8  # an entry comes every week; a day more for a change of the clock
_HOURS = re.compile(r"(\d\d):(\d\d)-(\d\d):(\d\d)", re.ASCII)


class LimitEntryError(ValueError):
    """An entry that cannot be read, or two that cannot stand together. Fault: the operator."""


class LimitEntry(Struct, frozen=True):
    """``text`` as it was written. ``spans``: minutes of the week, from Monday 00:00, each from begin to before its end.
    ``bytes_per_s``: by limit; 0 is no limit, and a limit that is not named is left as it is outside the timetable."""

    text: str
    spans: tuple[tuple[int, int], ...]
    bytes_per_s: tuple[tuple[str, int], ...]


class InForce(Struct, frozen=True):
    """``entry`` is None between entries; ``until_s`` is the wall clock's next change, None where there is none."""

    entry: LimitEntry | None
    until_s: float | None


def parse_entry(text: str) -> LimitEntry:
    """Raises LimitEntryError with a sentence that names the form."""
    words = text.split()
    if len(words) < 3:
        raise LimitEntryError(f"{text[:80]!r} must be DAYS HOURS LIMIT=RATE, such as mon-fri 08:00-18:00 upload=200MiB")
    limits = dict(_limit(word) for word in words[2:])
    if len(limits) != len(words) - 2:
        raise LimitEntryError(f"{text[:80]!r} names a limit twice")
    begin, length = _hours(words[1])
    spans: list[tuple[int, int]] = []
    for day in _days(words[0]):
        start = day * _DAY_MINUTES + begin
        end = start + length
        spans.append((start, min(end, _WEEK_MINUTES)))
        if end > _WEEK_MINUTES:
            spans.append((0, end - _WEEK_MINUTES))
    return LimitEntry(text, tuple(spans), tuple(limits.items()))


def check_overlaps(entries: Sequence[LimitEntry]) -> None:
    """Raises LimitEntryError that names the first two entries which are in force at one time."""
    if len(entries) > ENTRIES_MAX:
        raise LimitEntryError(f"has {len(entries)} entries, at most {ENTRIES_MAX}")
    spans = sorted((begin, end, place) for place, entry in enumerate(entries) for begin, end in entry.spans)
    for (_, end, first), (begin, _, second) in pairwise(spans):
        if begin < end:
            one, other = sorted((first, second))
            day, minute = divmod(begin, _DAY_MINUTES)
            when = f"{DAYS[day]} {minute // 60:02}:{minute % 60:02}"
            raise LimitEntryError(f"has two entries at {when}: {entries[one].text!r} and {entries[other].text!r}")


def in_force(entries: Sequence[LimitEntry], zone: tzinfo, wall_s: float) -> InForce:
    """``entries`` without overlaps; ``wall_s``: seconds since 1970."""
    entry = _entry_at(entries, zone, wall_s)
    for moment in _moments(entries, zone, wall_s):
        if _entry_at(entries, zone, moment) is not entry:
            return InForce(entry, moment)
    return InForce(entry, None)


def _entry_at(entries: Sequence[LimitEntry], zone: tzinfo, wall_s: float) -> LimitEntry | None:
    local = datetime.fromtimestamp(wall_s, zone)
    minute = local.weekday() * _DAY_MINUTES + local.hour * 60 + local.minute
    return next((one for one in entries if any(begin <= minute < end for begin, end in one.spans)), None)


def _moments(entries: Sequence[LimitEntry], zone: tzinfo, wall_s: float) -> list[float]:
    """Whenever another entry may come into force after ``wall_s``, in order: borders of entries, as both readings of
    their local time, and changes of the clock itself."""
    monday = datetime.fromtimestamp(wall_s, zone).replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0)
    monday -= timedelta(days=monday.weekday())
    borders = {minute for entry in entries for span in entry.spans for minute in span}
    found = set(_clock_changes(zone, wall_s))
    for week in (0, 1):
        for minute in borders:
            local = monday + timedelta(minutes=minute + week * _WEEK_MINUTES)
            found |= {local.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1)}
    return sorted(moment for moment in found if moment > wall_s)


def _clock_changes(zone: tzinfo, wall_s: float) -> list[float]:
    """When the zone's offset changes in the next days, to the second; a zone changes at most once a day."""
    found, day = [], 86400
    start = int(wall_s)
    for at in range(start, start + _LOOK_AHEAD_DAYS * day, day):
        before, after = at, at + day
        if _offset(zone, before) == _offset(zone, after):
            continue
        while after - before > 1:
            middle = (before + after) // 2
            before, after = (middle, after) if _offset(zone, middle) == _offset(zone, at) else (before, middle)
        found.append(float(after))
    return found


def _offset(zone: tzinfo, wall_s: int) -> timedelta | None:
    return datetime.fromtimestamp(wall_s, UTC).astimezone(zone).utcoffset()


def _days(text: str) -> list[int]:
    found: list[int] = []
    for part in text.lower().split(","):
        first, dash, last = part.partition("-")
        if first not in DAYS or (dash and last not in DAYS):
            raise LimitEntryError(f"{text[:40]!r} must be days such as mon-fri, sat,sun or mon")
        begin, end = DAYS.index(first), DAYS.index(last or first)
        found += [day % 7 for day in range(begin, (end if end >= begin else end + 7) + 1)]
    if len(set(found)) != len(found):
        raise LimitEntryError(f"{text[:40]!r} names a day twice")
    return found


def _hours(text: str) -> tuple[int, int]:
    """The first minute of a day, and for how many minutes."""
    match = _HOURS.fullmatch(text)
    if match is not None:
        hours, minutes, end_hours, end_minutes = map(int, match.groups())
        begin, end = hours * 60 + minutes, end_hours * 60 + end_minutes
        if begin < _DAY_MINUTES and end <= _DAY_MINUTES and max(minutes, end_minutes) < 60 and begin != end:
            return begin, (end - begin) % _DAY_MINUTES or _DAY_MINUTES
    raise LimitEntryError(f"{text[:40]!r} must be hours such as 08:00-18:00, 22:00-06:00 or 00:00-24:00")


def _limit(text: str) -> tuple[str, int]:
    name, equals, rate = text.partition("=")
    if not equals or name not in LIMITS:
        raise LimitEntryError(f"{text[:40]!r} must be upload=, download= or source= and bytes a second, 0 for no limit")
    try:
        count = parse_bytes(rate)
    except ValueError as error:
        raise LimitEntryError(str(error)) from None
    if count > BYTES_PER_S_MAX:
        raise LimitEntryError(f"{text[:40]!r} must be at most 1TiB")
    return name, count
