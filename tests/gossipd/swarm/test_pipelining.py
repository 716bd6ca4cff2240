"""What is about to end can be followed once, and not when it has ended."""

from __future__ import annotations

from gossipd.swarm.pipelining import Pipelining
from tests.gossipd.swarm.planning import node

A, B = node(1), node(2)


def test_each_ending_is_followed_once_in_the_order_in_which_they_were_told() -> None:
    endings = Pipelining()
    endings.add(A, 3)
    endings.add(A, 5)
    endings.add(B, 7)
    assert [endings.take(A), endings.take(A), endings.take(A)] == [3, 5, None]
    assert A not in endings
    assert B in endings


def test_what_has_ended_is_followed_by_nothing() -> None:
    endings = Pipelining()
    endings.add(A, 3)
    endings.drop(A, 4)
    assert A in endings
    endings.drop(A, 3)
    endings.drop(A, 3)
    assert A not in endings
    assert endings.take(A) is None
