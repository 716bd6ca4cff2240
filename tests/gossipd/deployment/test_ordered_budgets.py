"""The latest order counts, however it comes; it is kept, told where it was given, and bounded."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import structs
from msgspec.structs import replace

from gossipd.deployment.ordered_budgets import ORDERS_MAX, OrderedBudgets, OrderedBudgetsError
from gossipd.deployment.progress_record import (
    BUDGET_BYTES_MAX,
    FIELDS_BYTES_MAX,
    NUMBERS_BYTES,
    WANT_TOLD_BYTES_MAX,
    Budget,
    HostState,
    Progress,
    ProgressFormatError,
)
from gossipd.deployment.progress_table import ClusterProgress
from membership.member import NodeId

KEY = b"k" * 8
NODE = NodeId(b"n" * 16)
SIGNED = Budget(1, 7, b"s" * 32, b"g" * 64)


def test_the_later_order_counts_in_whatever_order_they_come() -> None:
    for orders in ((1, 2), (2, 1), (2, 2)):
        ordered = OrderedBudgets()
        for ordered_ms in orders:
            ordered.take(KEY, Budget(ordered_ms, 100 * ordered_ms), is_own=False)
        assert ordered.limit_bytes(KEY) == 200
    assert OrderedBudgets().limit_bytes(KEY) == 0


def test_only_the_host_where_it_was_ordered_tells_it_until_a_later_one_comes() -> None:
    ordered = OrderedBudgets()
    ordered.take(KEY, Budget(5, 100), is_own=True)
    assert ordered.told(KEY) == Budget(5, 100)
    ordered.take(KEY, Budget(4, 300), is_own=False)
    assert ordered.told(KEY) == Budget(5, 100)
    ordered.take(KEY, Budget(6, 0), is_own=False)
    assert ordered.told(KEY) is None
    assert ordered.limit_bytes(KEY) == 0, "taken away"


def test_an_order_that_was_refused_is_as_if_it_had_not_been_given() -> None:
    ordered = OrderedBudgets()
    for budget in (None, Budget(5, 100)):
        if budget is not None:
            ordered.take(KEY, budget, is_own=True)
        before = ordered.snapshot(KEY)
        ordered.take(KEY, Budget(9, 300), is_own=True)
        ordered.restore(KEY, before)
        assert ordered.told(KEY) == budget


def test_orders_are_the_same_after_a_restart_and_bounded() -> None:
    ordered = OrderedBudgets()
    for number in range(ORDERS_MAX + 3):
        one = SIGNED if number % 4 == 0 else Budget(1, 7)
        ordered.take(number.to_bytes(8, "big"), replace(one, ordered_ms=1 + number), is_own=number % 2 == 0)
    assert len(ordered.latest) == ORDERS_MAX
    again = OrderedBudgets.from_bytes(ordered.to_bytes())
    assert (again.latest, again.own) == (ordered.latest, ordered.own)


@pytest.mark.parametrize(
    "rows",
    [
        [(b"short", 1, 1, True)], [(KEY, 0, 1, True)], [(KEY, 1, BUDGET_BYTES_MAX + 1, True)], [(KEY, 1, -1, True)],
        [(KEY, 1 << 63, 1, True)], [3], {}, [(KEY, 1, 1, True, b"s" * 32)], [(KEY, 1, 1, True, b"s", b"g" * 64)],
    ],
)  # fmt: skip
def test_a_damaged_file_is_not_taken_for_no_budget(rows: object) -> None:
    with pytest.raises(OrderedBudgetsError):
        OrderedBudgets.from_bytes(msgspec.msgpack.encode(rows))


def test_a_budget_travels_in_the_record_beside_all_else() -> None:
    told = Progress(
        state=HostState.COMPLETE, subject=b"s" * 8, current=3, want="w" * WANT_TOLD_BYTES_MAX, chunks_wanted=1,
        bytes_wanted=1, budget=replace(SIGNED, ordered_ms=1_800_000_000_000, bytes_max=BUDGET_BYTES_MAX),
    )  # fmt: skip
    body = told.to_body()
    assert Progress.from_body(body) == told
    assert len(body) - NUMBERS_BYTES - 2 <= FIELDS_BYTES_MAX
    assert Progress.from_body(Progress(state=HostState.INIT).to_body()).budget is None
    unsigned = structs.replace(told, budget=Budget(1_800_000_000_000, BUDGET_BYTES_MAX))
    assert Progress.from_body(unsigned.to_body()) == unsigned
    for cut in (bytes([6, 13]) + b"x" * 13, bytes([6, 15]) + b"x" * 15, bytes([7, 95]) + b"x" * 95):
        with pytest.raises(ProgressFormatError):
            Progress.from_body(Progress(state=HostState.INIT).to_body() + cut)


def test_a_budget_that_is_later_than_its_record_or_not_signed_is_not_believed() -> None:
    table = ClusterProgress()
    for at, (ordered_ms, is_signed) in enumerate(((50, True), (51, True), (50, False))):
        told = Progress(state=HostState.INIT, budget=Budget(ordered_ms, 7))
        table.record(NODE, bytes([at]) * 8, 50, told, now=0.0, is_signed=is_signed)
    assert table.budgets(b"\0" * 8) == {NODE: Budget(50, 7)}
    assert table.budgets(b"\1" * 8) == table.budgets(b"\2" * 8) == {}
