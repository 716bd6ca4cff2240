"""Numbers without holes: what a reader gets is all that came after its last, or begins with a gap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipd.api.events import ConfigEvent, EventRing, GapEvent, parse_position, schema

TYPES = {"member", "deployment", "host-state", "seed", "source", "store", "config", "security", "alarm", "gap"}


def filled(count: int, *, rows_max: int = 10, boot: int = 7) -> EventRing:
    ring = EventRing(boot, rows_max=rows_max)
    for number in range(count):
        ring.append(ConfigEvent(what=str(number + 1)), at="now")
    return ring


def test_a_reader_gets_what_follows_its_last_event_and_nothing_twice() -> None:
    ring = filled(5)
    assert [row.id for row in ring.since(7, 3, 100)] == [4, 5]
    assert ring.since(7, 5, 100) == []
    assert [row.id for row in ring.since(None, 0, 2)] == [1, 2]


def test_what_has_left_the_ring_is_told_as_a_gap() -> None:
    gap, *rest = filled(25).since(7, 3, 100)
    assert isinstance(gap.body, GapEvent)
    assert (gap.id, gap.body.after) == (15, "7:3")
    assert [row.id for row in rest] == list(range(16, 26))


@pytest.mark.parametrize(("boot", "number"), [(6, 3), (6, 99), (7, 99)])
def test_another_boot_and_a_number_that_never_was_are_gaps(boot: int, number: int) -> None:
    gap, *rest = filled(5).since(boot, number, 100)
    assert isinstance(gap.body, GapEvent)
    assert [row.id for row in rest] == [1, 2, 3, 4, 5]
    [alone] = filled(0).since(boot, number, 100)
    assert isinstance(alone.body, GapEvent)
    assert alone.id == 0, "the reader goes on from here"


@given(st.lists(st.integers(0, 30), max_size=12), st.integers(1, 8))
def test_a_reader_at_any_pace_misses_nothing_without_a_gap(bursts: list[int], rows_max: int) -> None:
    ring = EventRing(7, rows_max=rows_max)
    seen, told, position = 0, 0, (7, 0)
    for burst in bursts:
        for _ in range(burst):
            told += 1
            ring.append(ConfigEvent(what=str(told)), at="now")
        for row in ring.since(*position, 5):
            if isinstance(row.body, GapEvent):
                assert row.id > seen
            else:
                assert row.id == seen + 1
                assert isinstance(row.body, ConfigEvent)
                assert row.body.what == str(row.id)
            seen, position = row.id, (row.boot, row.id)


def test_the_table_of_types_is_closed_and_described() -> None:
    text = str(schema())
    for name in TYPES:
        assert f"'enum': ['{name}']" in text
    assert text.count("'enum': [") == len(TYPES)


@pytest.mark.parametrize("text", ["", "7", "7:", ":7", "a:1", "1:-1", "1:" + "9" * 30])
def test_a_position_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="BOOT:ID"):
        parse_position(text)
