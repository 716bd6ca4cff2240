"""Connections turned away are an alarm, which ends when none were for a minute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from gossipd.daemon.alarms import Alarms
from gossipd.daemon.limits_watch import CROWDED_S, REFUSED_S, LimitsWatch
from gossipd.runtime.system_refusals import SystemRefusals


class Recorded:
    trouble: str | None = None

    def __init__(self) -> None:
        self.records: list[tuple[str, str, str]] = []

    def record(self, event: str, *, subject: str = "", reason: str, code: str = "") -> None:
        self.records.append((event, subject, reason))


@dataclass
class Port:
    turned_away: int = 0
    dropped_addresses: tuple[str, ...] = ()


def test_the_alarm_names_the_port_and_ends_a_minute_after_the_last_connection() -> None:
    alarms, port = Alarms(cast(Any, Recorded())), Port()
    watch = LimitsWatch(alarms, {"net.port": Port(), "net.bulk_port": port})
    watch.look(0.0)
    assert not alarms.rows
    port.turned_away = 1
    watch.look(10.0)
    port.turned_away = 2
    watch.look(20.0)
    (row,) = alarms.rows.values()
    assert row.code == "E_PORT_FULL"
    assert "net.bulk_port" in row.sentence
    watch.look(20.0 + CROWDED_S - 1)
    assert alarms.rows
    watch.look(20.0 + CROWDED_S)
    assert not alarms.rows


def test_an_audit_log_that_cannot_be_written_is_an_alarm_until_it_can() -> None:
    audit = Recorded()
    alarms = Alarms(cast(Any, audit))
    watch = LimitsWatch(alarms, {})
    audit.trouble = "audit.jsonl is no file"
    watch.look(0.0)
    watch.look(1.0)
    assert [(row.code, row.sentence) for row in alarms.rows.values()] == [("E_AUDIT", "audit.jsonl is no file")]
    audit.trouble = None
    watch.look(2.0)
    assert not alarms.rows


def test_each_address_that_the_kernel_drops_is_recorded_when_it_begins() -> None:
    audit = Recorded()
    port = Port()
    watch = LimitsWatch(Alarms(cast(Any, audit)), {"net.bulk_port": port})
    for turned_away, dropped in ((1, ()), (2, ("b", "a")), (3, ("a", "c"))):
        port.turned_away, port.dropped_addresses = turned_away, dropped
        watch.look(0.0)
    refused = [("stranger refused", one, "flood of net.bulk_port") for one in ("a", "b", "c")]
    assert [one for one in audit.records if one[1]] == refused


@pytest.mark.parametrize(("field", "code"), [("threads", "E_THREADS"), ("descriptors", "E_HANDLES")])
def test_refusals_are_an_alarm_until_ten_seconds_pass_without(field: str, code: str) -> None:
    refusals = SystemRefusals(threads=3, descriptors=3)  # of before
    alarms = Alarms(cast(Any, Recorded()))
    watch = LimitsWatch(alarms, {}, refusals)
    watch.look(0.0)
    assert not alarms.rows
    for now in (1.0, 2.0, 9.0):
        setattr(refusals, field, getattr(refusals, field) + 1)
        watch.look(now)
    watch.look(9.0 + REFUSED_S - 0.1)
    assert [row.code for row in alarms.rows.values()] == [code]
    assert alarms.begun == 1
    watch.look(9.0 + REFUSED_S)
    assert not alarms.rows
    setattr(refusals, field, getattr(refusals, field) + 1)
    watch.look(30.0)
    assert alarms.begun == 2
