"""Limiters follow the timetable, and what is changed is told once."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

from gossipd.config.model_sections import LimitsSection
from gossipd.daemon.scheduled_limits import LimitsSchedule, limits_in_force
from gossipd.runtime.rate_limit import RateLimit

ENTRY = "mon-fri 08:00-18:00 upload=2000 source=0"
SECTION = LimitsSection(download_bytes_per_s=5000, source_bytes_per_s=700, schedule=(ENTRY,))


def at(hour: int) -> float:
    return datetime(2026, 11, 25, hour, tzinfo=UTC).timestamp()


class Audit:
    def __init__(self) -> None:
        self.told: list[dict[str, object]] = []

    def record(self, event: str, *, subject: str | None = None, **fields: object) -> None:
        self.told.append({"event": event} | fields)


def test_what_an_entry_does_not_name_is_as_outside_of_it() -> None:
    assert limits_in_force(SECTION, at(9)).bytes_per_s == {"upload": 2000, "download": 5000, "source": 0}
    assert limits_in_force(SECTION, at(20)).bytes_per_s == {"upload": 0, "download": 5000, "source": 700}


def test_limiters_are_set_when_another_entry_is_in_force() -> None:
    live, audit = SimpleNamespace(config=SimpleNamespace(limits=SECTION)), Audit()
    limiters = {name: RateLimit() for name in ("upload", "download", "source")}
    watch = LimitsSchedule(cast(Any, live), limiters, cast(Any, audit))
    watch.look(at(20))
    audit.told.clear()
    watch.look(at(9))
    watch.look(at(10))
    assert [limiters[name].rate for name in limiters] == [2000.0, 5000.0, None]
    assert (watch.row().entry, watch.row().until) == (ENTRY, "2026-11-25T18:00:00Z")
    watch.look(at(18))
    assert [limiters[name].rate for name in limiters] == [None, 5000.0, 700.0]
    assert (watch.row().entry, watch.row().source_bytes_per_s) == ("", 700)
    changes = [{"event": "limits changed", "entry": ENTRY, "upload": 2000, "download": 5000, "source": 0}]
    changes += [{"event": "limits changed", "entry": "", "upload": 0, "download": 5000, "source": 700}]
    assert audit.told == changes


def test_a_reload_with_another_schedule_is_followed_at_once() -> None:
    live, audit = SimpleNamespace(config=SimpleNamespace(limits=SECTION)), Audit()
    limiter = RateLimit()
    watch = LimitsSchedule(cast(Any, live), {"upload": limiter}, cast(Any, audit))
    live.config.limits = LimitsSection(upload_bytes_per_s=9, schedule=("wed 08:00-18:00 upload=8",))
    watch.look(at(9))
    assert limiter.rate == 8.0
    live.config.limits = LimitsSection(upload_bytes_per_s=9)
    watch.look(at(9))
    assert (limiter.rate, watch.row().until) == (9.0, None)
