"""How far an order number from the network may go."""

from __future__ import annotations

import pytest

from membership.bounds import fits


@pytest.mark.parametrize(
    ("value", "known", "clock_bound", "counts"),
    [
        (116, 100, None, True), (117, 100, None, False), (500, 100, 500, True), (501, 100, 500, False),
        (90, 100, None, True), (-1, 100, None, False), (751, 750, 1000, False), (750, 0, 1000, True),
    ],
)  # fmt: skip
def test_an_order_number_counts_near_the_known_one_or_by_the_clock(
    value: int, known: int, clock_bound: int | None, counts: bool
) -> None:
    assert fits(value, known=known, step=16, maximum=1000, clock_bound=clock_bound) is counts
