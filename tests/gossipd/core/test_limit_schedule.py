"""The timetable of limits: entries, overlaps, and what is in force when, also when clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

import pytest

from gossipd.core.limit_schedule import LimitEntryError, check_overlaps, in_force, parse_entry

BERLIN = ZoneInfo("Europe/Berlin")
DAY = "mon-fri 08:00-18:00 upload=200MiB download=1GiB"
NIGHT = "fri 22:00-06:00 source=0"


def at(text: str, zone: tzinfo = UTC) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


def told(texts: list[str], zone: tzinfo, wall_s: float) -> tuple[str | None, str | None]:
    """The entry, and until when, as UTC."""
    now = in_force([parse_entry(text) for text in texts], zone, wall_s)
    until = None if now.until_s is None else datetime.fromtimestamp(now.until_s, UTC).strftime("%a %d %H:%M:%S")
    return None if now.entry is None else now.entry.text, until


def test_an_entry_names_days_hours_and_limits() -> None:
    entry = parse_entry(DAY)
    assert entry.spans == tuple((day * 1440 + 480, day * 1440 + 1080) for day in range(5))
    assert dict(entry.bytes_per_s) == {"upload": 200 * 1024**2, "download": 1024**3}
    assert parse_entry("sun 22:00-06:00 upload=1").spans == ((6 * 1440 + 1320, 10080), (0, 360))
    assert parse_entry("sat-mon 00:00-24:00 upload=1").spans == ((7200, 8640), (8640, 10080), (0, 1440))


@pytest.mark.parametrize(
    "text",
    [
        "mon 08:00-18:00", "noday 08:00-18:00 upload=1", "mon-noday 08:00-18:00 upload=1", "mon 8-18 upload=1",
        "mon 08:00-08:00 upload=1", "mon 24:00-06:00 upload=1", "mon 08:60-18:00 upload=1",
        "mon 08:00-24:01 upload=1", "mon,mon 08:00-18:00 upload=1", "mon-tue,tue 08:00-18:00 upload=1",
        "mon 08:00-18:00 upload", "mon 08:00-18:00 slots=1", "mon 08:00-18:00 upload=fast",
        "mon 08:00-18:00 upload=1 upload=2", "mon 08:00-18:00 upload=2TiB", "mon 08:00-18:00 upload=-1", "",
    ],
)  # fmt: skip
def test_what_is_no_entry_is_refused(text: str) -> None:
    with pytest.raises(LimitEntryError):
        parse_entry(text)


def test_entries_that_overlap_are_named() -> None:
    check_overlaps([parse_entry(DAY), parse_entry(NIGHT), parse_entry("sat 06:00-24:00 upload=1")])
    with pytest.raises(LimitEntryError, match=r"sat 05:59: 'fri 22:00-06:00 source=0' and 'sat 05:59-07:00 upload=1'"):
        check_overlaps([parse_entry(NIGHT), parse_entry("sat 05:59-07:00 upload=1")])
    with pytest.raises(LimitEntryError, match="mon 00:00"):  # round the end of the week
        check_overlaps([parse_entry("mon 00:00-01:00 upload=1"), parse_entry("sun 23:00-00:30 upload=1")])
    with pytest.raises(LimitEntryError, match="tue 12:00"):
        check_overlaps([parse_entry(DAY), parse_entry("tue 12:00-13:00 upload=1")])
    with pytest.raises(LimitEntryError, match="at most 32"):
        check_overlaps([parse_entry("mon 00:00-00:01 upload=1")] * 33)


@pytest.mark.parametrize(
    ("when", "entry", "until"),
    [
        ("2026-11-25 07:59:59", None, "Wed 25 08:00:00"),
        ("2026-11-25 08:00:00", DAY, "Wed 25 18:00:00"),
        ("2026-11-25 17:59:59", DAY, "Wed 25 18:00:00"),
        ("2026-11-25 18:00:00", None, "Thu 26 08:00:00"),
        ("2026-11-27 23:00:00", NIGHT, "Sat 28 06:00:00"),
        ("2026-11-28 06:00:00", None, "Mon 30 08:00:00"),
    ],
)
def test_the_entry_in_force_and_until_when(when: str, entry: str | None, until: str) -> None:
    assert told([DAY, NIGHT], UTC, at(when)) == (entry, until)


def test_what_never_changes_has_no_end() -> None:
    assert told([], UTC, at("2026-11-25 12:00")) == (None, None)
    assert told(["mon-sun 00:00-24:00 upload=1"], BERLIN, at("2026-10-24 12:00")) == (
        "mon-sun 00:00-24:00 upload=1", None
    )  # fmt: skip


def test_two_entries_that_meet_follow_each_other() -> None:
    texts = ["mon-sun 00:00-12:00 upload=1", "mon-sun 12:00-24:00 upload=2"]
    assert told(texts, UTC, at("2026-11-25 11:00")) == (texts[0], "Wed 25 12:00:00")
    assert told(texts, UTC, at("2026-11-25 12:00")) == (texts[1], "Thu 26 00:00:00")


def test_hours_are_those_of_the_zone_in_summer_and_winter() -> None:
    assert told([DAY], BERLIN, at("2026-07-01 07:00")) == (DAY, "Wed 01 16:00:00")
    assert told([DAY], BERLIN, at("2026-11-25 07:30")) == (DAY, "Wed 25 17:00:00")
    assert told([DAY], BERLIN, at("2026-11-25 06:59")) == (None, "Wed 25 07:00:00")


def test_an_entry_in_a_skipped_hour_begins_when_the_clock_has_jumped() -> None:
    """29 March 2026: 02:00 is followed by 03:00 at 01:00 UTC."""
    inside, across = "sun 02:15-02:45 upload=1", "sun 02:30-04:00 upload=1"
    assert told([inside], BERLIN, at("2026-03-29 00:30")) == (None, "Sun 05 00:15:00")
    assert told([across], BERLIN, at("2026-03-29 00:30")) == (None, "Sun 29 01:00:00")
    assert told([across], BERLIN, at("2026-03-29 01:00")) == (across, "Sun 29 02:00:00")


def test_an_entry_in_a_repeated_hour_is_in_force_twice() -> None:
    """25 October 2026: 03:00 is followed by 02:00 at 01:00 UTC."""
    inside = "sun 02:15-02:45 upload=1"
    at_times = ("00:00", "00:15", "00:45", "01:00", "01:15", "01:45")
    assert [told([inside], BERLIN, at(f"2026-10-25 {when}"))[0] is not None for when in at_times] == [
        False, True, False, False, True, False
    ]  # fmt: skip
    assert told([inside], BERLIN, at("2026-10-25 00:20")) == (inside, "Sun 25 00:45:00")
    assert told([inside], BERLIN, at("2026-10-25 00:45")) == (None, "Sun 25 01:15:00")


@pytest.mark.parametrize("day", ["2026-03-28", "2026-10-24", "2026-11-24"])
def test_the_told_end_is_the_first_minute_with_another_entry(day: str) -> None:
    """Against a walk through every minute of three days, in which clocks change or do not."""
    entries = [
        parse_entry(text)
        for text in ("sun 01:30-02:30 upload=1", "sun 02:30-03:30 upload=2", "mon-fri 22:00-06:00 upload=3")
    ]
    start = at(day)
    walked = [in_force(entries, BERLIN, start + 60 * minute) for minute in range(3 * 1440)]
    for minute in range(0, 2 * 1440, 7):
        changed = (later for later in range(minute, 3 * 1440) if walked[later].entry is not walked[minute].entry)
        first = next(changed, None)
        if first is not None:
            assert walked[minute].until_s == start + 60 * first
