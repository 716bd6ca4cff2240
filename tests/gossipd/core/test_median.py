"""The median is that of ``statistics``."""

from __future__ import annotations

import statistics

from hypothesis import given
from hypothesis import strategies as st

from gossipd.core.median import median


@given(st.lists(st.integers(0, 10**9) | st.floats(0, 1e12), min_size=1))
def test_it_is_that_of_the_standard_library(values: list[float]) -> None:
    assert median(values) == statistics.median(values)


def test_any_iterable_will_do() -> None:
    assert median({1: 3.0, 2: 1.0}.values()) == 2.0
