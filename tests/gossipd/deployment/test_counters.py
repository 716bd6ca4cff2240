"""Counters by supplier, one list of their names, and rates that calm down."""

from __future__ import annotations

import pytest
from msgspec.structs import fields

from gossipd.api.schema import DeploymentRow
from gossipd.core.ids import LOCAL, SOURCE
from gossipd.deployment.counters import COUNTER_NAMES, Counters, SmoothedRate, counters_of
from gossipd.deployment.progress_record import HostState, Progress
from gossipd.deployment.progress_table import Totals
from membership.member import NodeId

PEER = NodeId(b"p" * 16)


def test_bytes_are_counted_by_where_they_came_from() -> None:
    counters = Counters()
    counters.add(SOURCE, 1, same_rack=False)
    counters.add(PEER, 10, same_rack=True)
    counters.add(PEER, 100, same_rack=False)
    counters.add(LOCAL, 1000, same_rack=False)
    found = (counters.source_bytes, counters.peer_bytes_same_rack, counters.peer_bytes_cross_rack)
    assert found == (1, 10, 100), "a copy from another version here was moved by nobody"


def test_every_record_of_counters_has_all_of_them() -> None:
    for record in (Progress, Totals):
        assert set(COUNTER_NAMES) <= {field.name for field in fields(record)}
    assert set(COUNTER_NAMES) <= set(DeploymentRow.__struct_fields__)
    assert counters_of(Progress(state=HostState.INIT, corrupt_chunks=3)) == dict.fromkeys(COUNTER_NAMES, 0) | {
        "corrupt_chunks": 3
    }


def test_a_rate_rises_to_what_is_moved_and_falls_to_nothing() -> None:
    rate = SmoothedRate()
    for _ in range(40):
        rate.add(1000)
        rate.tick(1.0)
    assert rate.bytes_per_s == pytest.approx(1000, rel=0.01)
    for _ in range(9):
        rate.tick(1.0)
    assert rate.bytes_per_s > 100, "a large chunk on a slow link takes as long"
    rate.tick(1.0)
    assert rate.bytes_per_s == 0.0


def test_a_slow_link_keeps_its_rate_between_two_chunks() -> None:
    rate = SmoothedRate()
    for _ in range(20):
        rate.add(9000)
        for _ in range(9):
            rate.tick(1.0)
            assert rate.bytes_per_s > 0
