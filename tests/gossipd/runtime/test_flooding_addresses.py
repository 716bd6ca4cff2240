"""Addresses whose connections never say who they are are dropped for a while, and no others."""

from __future__ import annotations

import math

from gossipd.runtime.flooding_addresses import (
    ADDRESS_FAILURES_MAX,
    COUNTED_MAX,
    DROP_S,
    DROPPED_MAX,
    PORT_FAILURES_MAX,
    WINDOW_S,
    FloodingAddresses,
)

FLOOD = PORT_FAILURES_MAX + 1


def failing(*addresses: str, times: int = FLOOD) -> FloodingAddresses:
    flooding = FloodingAddresses()
    for _ in range(times):
        for address in addresses:
            flooding.failed(address, 0.0)
    return flooding


def test_an_address_is_dropped_after_too_many_failures_and_let_in_again_later() -> None:
    flooding = failing("a")
    assert flooding.dropped(1.0) == ("a",)
    assert flooding.next_deadline() == DROP_S
    assert flooding.dropped(DROP_S) == ()
    assert flooding.next_deadline() == math.inf
    assert flooding.count == 1


def test_one_failure_fewer_is_no_flood() -> None:
    assert failing("a", times=PORT_FAILURES_MAX).dropped(0.0) == ()


def test_slow_failures_are_never_a_flood() -> None:
    flooding = FloodingAddresses()
    for number in range(10 * FLOOD):
        flooding.failed("a", number * 2 * WINDOW_S / FLOOD)
    assert flooding.count == 0


def test_in_a_flood_from_many_addresses_each_is_dropped_and_one_that_failed_a_few_times_is_not() -> None:
    flood = tuple(f"flood {number}" for number in range(64))
    flooding = failing("honest", *flood, times=ADDRESS_FAILURES_MAX)
    for address in flood:
        flooding.failed(address, 0.0)
    assert flooding.dropped(0.0) == flood


def test_an_address_that_shows_a_key_starts_from_nothing() -> None:
    flooding = failing("a", times=PORT_FAILURES_MAX)
    flooding.authenticated("a")
    for _ in range(ADDRESS_FAILURES_MAX):
        flooding.failed("a", 0.0)
    assert flooding.dropped(0.0) == ()


def test_connections_that_end_after_the_drop_began_are_not_counted_for_the_next_one() -> None:
    flooding = failing("a", times=3 * FLOOD)
    assert not flooding.is_counting
    assert flooding.count == 1


def test_tables_are_bounded_and_those_that_do_not_fit_are_not_dropped() -> None:
    dropped = tuple(f"dropped {number}" for number in range(DROPPED_MAX))
    flooding = failing(*dropped)
    more = [f"more {number}" for number in range(COUNTED_MAX + 1)]
    for address in more:
        for _ in range(FLOOD):
            flooding.failed(address, 0.0)
    assert flooding.dropped(0.0) == dropped
    assert flooding.dropped(DROP_S) == ()
    for address in (more[-1], more[0]):
        flooding.failed(address, 0.0)
    assert flooding.dropped(0.0) == (more[0],), "the last one found no room in the table, and is one failure old"
