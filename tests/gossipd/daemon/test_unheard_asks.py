"""Which members that have not spoken are asked next."""

from __future__ import annotations

from gossipd.daemon.unheard_asks import ASKED_AT_ONCE, asked_next
from membership.member import NodeId

NODES = [NodeId(number.to_bytes(16)) for number in range(3 * ASKED_AT_ONCE)]


def test_a_few_are_asked_at_a_time_and_the_same_until_they_answer() -> None:
    assert asked_next(NODES, lambda _: False) == NODES[:ASKED_AT_ONCE] == asked_next(NODES[::-1], lambda _: False)
    assert asked_next(NODES[3:], lambda _: False) == NODES[3 : ASKED_AT_ONCE + 3]


def test_who_was_asked_in_vain_makes_room_for_others() -> None:
    silent = set(NODES[:ASKED_AT_ONCE])
    assert asked_next(NODES, silent.__contains__) == NODES[ASKED_AT_ONCE : 2 * ASKED_AT_ONCE]
    assert asked_next(NODES, lambda _: True) == []
