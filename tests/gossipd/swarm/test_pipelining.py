"""What is about to end can be followed once, and not when it has ended."""

from __future__ import annotations

from gossipd.swarm.pipelining import Pipelining
from tests.gossipd.swarm.planning import node

A, B = node(1), node(2)


def test_each_ending_is_followed_once_in_the_order_in_which_they_were_told() -> None:
    pipelining = Pipelining()
    pipelining.add(A, 3)
    pipelining.add(A, 5)
    pipelining.add(B, 7)
    assert [pipelining.take(A), pipelining.take(A), pipelining.take(A)] == [3, 5, None]
    assert A not in pipelining
    assert B in pipelining


def test_what_has_ended_is_followed_by_nothing() -> None:
    pipelining = Pipelining()
    pipelining.add(A, 3)
    pipelining.drop(A, 4)
    assert A in pipelining
    pipelining.drop(A, 3)
    pipelining.drop(A, 3)
    assert A not in pipelining
    assert pipelining.take(A) is None
