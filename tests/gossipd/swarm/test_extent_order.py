"""Which chunks stand where in the reading order, with and without classes of chunks."""

from __future__ import annotations

import pytest

from gossipd.swarm.extent_order import ExtentOrder
from gossipd.swarm.rendezvous import BUCKETS, bucket_of
from tests.gossipd.swarm.planning import shape

SALT = b"salt"


def classes(order: ExtentOrder) -> ExtentOrder:
    """Chunks 0 to 4 are not wanted, then there are two classes."""
    order.set_classes(bytes([0] * 5 + [1] * 9 + [2] * 8))
    return order


@pytest.mark.parametrize(("extent", "has_classes"), [(1, False), (4, False), (1, True), (4, True)])
def test_every_wanted_chunk_stands_at_the_position_of_its_extent(extent: int, *, has_classes: bool) -> None:
    order = ExtentOrder(shape(22, extent=extent), SALT)
    if has_classes:
        classes(order)
    seen = [(chunk, position) for position in range(len(order)) for chunk in order.chunks(position)]
    assert sorted(chunk for chunk, _ in seen) == list(range(5 if has_classes else 0, 22))
    assert all(order.position(chunk) == position for chunk, position in seen)
    assert (order.position(4) is None) is has_classes


@pytest.mark.parametrize("has_classes", [False, True])
def test_absent_are_the_extents_that_lack_a_chunk(*, has_classes: bool) -> None:
    order = ExtentOrder(shape(22, extent=4), SALT)
    if has_classes:
        classes(order)
    present = bytearray(b"\1" * 22)
    assert not list(order.absent(present))
    present[21] = present[6] = 0
    assert sorted(order.absent(present)) == sorted(
        {at for chunk in (21, 6) if (at := order.position(chunk)) is not None}
    )


def test_a_bucket_is_that_of_the_turn_or_of_the_first_chunk_and_of_the_class() -> None:
    order = ExtentOrder(shape(600), SALT)
    assert order.bucket(BUCKETS + 3) == 3
    order.by_chunk = True
    assert order.bucket(7) == bucket_of(order.chunks(7).start)
    order.set_classes(bytes([1] * 300 + [2] * 300))
    at = order.position(450)
    assert at is not None
    assert order.bucket(at) == BUCKETS + bucket_of(450)


def test_without_ranges_the_order_is_the_models_own() -> None:
    order = ExtentOrder(shape(40, extent=4), SALT)
    assert [order.chunks(at).start for at in range(len(order))] != list(range(0, 40, 4))
    order.read_from_start()
    assert [order.chunks(at).start for at in range(len(order))] == list(range(0, 40, 4))
