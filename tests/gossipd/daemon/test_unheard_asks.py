"""Which members that have not spoken are asked next."""

from __future__ import annotations

from gossipd.daemon.unheard_asks import ASKED_AT_ONCE, PATIENCE_S, UnheardAsks
from membership.member import NodeId

NODES = [NodeId(number.to_bytes(16)) for number in range(3 * ASKED_AT_ONCE)]


def nobody(_: NodeId) -> bool:
    return False


def test_a_new_member_has_time_to_speak_by_itself() -> None:
    asks = UnheardAsks()
    assert asks.next(NODES[:2], nobody, 0.0) == []
    assert asks.next(NODES[:3], nobody, PATIENCE_S - 1) == []
    assert asks.next(NODES[:3], nobody, PATIENCE_S) == NODES[:2]
    assert asks.next(NODES[1:3], nobody, 2 * PATIENCE_S) == NODES[1:3]
    assert asks.next(NODES[:3], nobody, 2 * PATIENCE_S) == NODES[1:3], "the first one has spoken, and is new again"


def test_a_few_are_asked_at_a_time_and_the_same_until_they_answer() -> None:
    asks = UnheardAsks()
    asks.next(NODES, nobody, 0.0)
    for _ in range(2):
        assert asks.next(NODES, nobody, PATIENCE_S) == NODES[:ASKED_AT_ONCE]
    assert asks.next(NODES[3:], nobody, PATIENCE_S) == NODES[3 : ASKED_AT_ONCE + 3]


def test_who_was_asked_in_vain_makes_room_for_others() -> None:
    asks, silent = UnheardAsks(), set(NODES[:ASKED_AT_ONCE])
    asks.next(NODES, nobody, 0.0)
    assert asks.next(NODES, silent.__contains__, PATIENCE_S) == NODES[ASKED_AT_ONCE : 2 * ASKED_AT_ONCE]
    assert asks.next(NODES, lambda _: True, PATIENCE_S) == []
