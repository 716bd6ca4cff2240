"""Connections turned away are an alarm, which ends when none were for a minute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from gossipd.daemon.limits_watch import CROWDED_S, LimitsWatch
from gossipd.daemon.reports import Alarms


class Ignored:
    def record(self, event: str, *, code: str, reason: str) -> None:
        """Nobody asks."""


@dataclass
class Port:
    turned_away: int = 0


def test_the_alarm_names_the_port_and_ends_a_minute_after_the_last_connection() -> None:
    alarms, port = Alarms(cast(Any, Ignored())), Port()
    watch = LimitsWatch(alarms, {"net.port": Port(), "net.bulk_port": port})
    watch.look(0.0)
    assert not alarms.rows
    port.turned_away = 1
    watch.look(10.0)
    port.turned_away = 2
    watch.look(20.0)
    (row,) = alarms.rows.values()
    assert row.code == "E_DOOR_FULL"
    assert "net.bulk_port" in row.sentence
    watch.look(20.0 + CROWDED_S - 1)
    assert alarms.rows
    watch.look(20.0 + CROWDED_S)
    assert not alarms.rows
