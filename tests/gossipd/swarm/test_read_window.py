"""How much is in flight from storage, by the readers that there are and by what reads took."""

from __future__ import annotations

import pytest

from gossipd.swarm.read_window import ReadWindow
from tests.gossipd.swarm.planning import SETTINGS, shape


def window(readers: int, chunks: int = 2_000, *, extent: int = 1) -> ReadWindow:
    found = ReadWindow(shape(chunks, extent=extent), SETTINGS)
    found.readers = found.owners = readers
    return found


@pytest.mark.parametrize("readers", [1, 2, 5, 12])
def test_all_readers_together_have_about_the_window(readers: int) -> None:
    found = window(readers)
    assert found.extents <= readers * found.reads_max() <= 2 * found.extents


def test_a_read_that_is_quicker_than_the_link_widens_the_window_up_to_a_bound() -> None:
    found = window(4)
    for _ in range(100):
        found.read_ended(0.1, 0.1)
    assert found.extents == max(found.least, 16)


def test_a_read_that_takes_long_narrows_the_window_to_its_least() -> None:
    found = window(20)
    for _ in range(100):
        found.read_ended(0.1, 0.1)
    widest = found.extents
    for _ in range(100):
        found.read_ended(1.0, 0.1)
    assert found.least == found.extents < widest


def test_few_readers_look_further_into_the_order_than_many() -> None:
    assert window(2).positions_max() == 3 * window(2).extents
    assert window(50).positions_max() == window(50).extents
