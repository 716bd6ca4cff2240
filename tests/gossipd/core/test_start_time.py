"""When a deployment began, by values: honest hosts, one that lies, a tenth that lies."""

from __future__ import annotations

import pytest

from gossipd.core.start_time import APART_MAX_S, began_s


@pytest.mark.parametrize(
    ("told", "began"),
    [
        ([], 0),
        ([0, 0], 0),
        ([0, 1005], 1005),
        ([1005, 1000, 0, 1004], 1000),
        ([1, 1000, 1001], 1000),
        ([1000 - APART_MAX_S, 1000, 1002], 1000 - APART_MAX_S),
        ([1] * 100 + [5000 + number for number in range(900)], 5000),
        ([1000, 900_000, 900_001], 900_000),
    ],
)
def test_a_deployment_began_when_its_first_honest_hosts_did(told: list[int], began: int) -> None:
    assert began_s(told) == began


def test_a_host_that_joins_later_moves_nothing() -> None:
    assert began_s([1000, 1001, 1002, 99_000]) == 1000
