"""The alarm of a wrong clock: it names the difference and the cure, once, and ends."""

from __future__ import annotations

from typing import Any

from gossipd.api.schema import AlarmRow
from gossipd.daemon.clock_watch import ClockWatch
from gossipd.deployment.cluster_clock import ClusterClock
from gossipd.deployment.events import ClockJudged
from membership.member import NodeId

WALL_S = 1_800_000_000.0


class Moved:
    """Clocks that a test sets."""

    def __init__(self) -> None:
        self.wall, self.now = WALL_S, 0.0

    def wall_s(self) -> float:
        return self.wall

    def monotonic_s(self) -> float:
        return self.now


class Alarms:
    """Rows as the status shows them."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], AlarmRow] = {}

    def ring(self, code: str, sentence: str) -> None:
        self.rows[code, sentence] = AlarmRow(code=code, sentence=sentence, since="")

    def cured(self, code: str) -> None:
        self.rows = {key: row for key, row in self.rows.items() if row.code != code}


class Driver:
    """Collects."""

    def __init__(self) -> None:
        self.posted: list[object] = []

    def post(self, event: object) -> None:
        self.posted.append(event)


def test_a_wrong_clock_rings_once_and_ends_when_it_is_set() -> None:
    clock, clocks, alarms, driver = ClusterClock(), Moved(), Alarms(), Driver()
    given: Any = (clock, clocks, alarms, driver)
    watch = ClockWatch(*given)
    for number in range(3):
        clock.heard(NodeId(bytes([number]) * 16), WALL_S, 0.0)
    watch.look()
    assert (alarms.rows, driver.posted) == ({}, [])
    clocks.wall, clocks.now = WALL_S - 7_200.0 + 1.0, 1.0
    for _ in range(3):
        watch.look()
    [(code, sentence)] = alarms.rows
    assert code == "E_CLOCK"
    assert sentence.startswith("this host's clock is 120 minutes behind those of most other hosts: set it")
    assert "NTP" in sentence
    assert driver.posted == [ClockJudged()]
    clocks.wall, clocks.now = WALL_S + 2.0, 2.0
    watch.look()
    assert alarms.rows == {}
    assert driver.posted == [ClockJudged(), ClockJudged()]
