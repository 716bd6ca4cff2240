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
    assert set(asks.next(NODES[1:3], nobody, 2 * PATIENCE_S)) == set(NODES[1:3])
    assert NODES[0] not in asks.next(NODES[:3], nobody, 2 * PATIENCE_S), "it has spoken, and is new again"


def test_all_have_their_turn_though_the_first_neither_answer_nor_seem_silent() -> None:
    asks = UnheardAsks()
    asks.next(NODES, nobody, 0.0)
    turns = [asks.next(NODES, nobody, PATIENCE_S + second) for second in range(4)]
    assert [node for turn in turns[:3] for node in turn] == NODES
    assert turns[3] == turns[0]


def test_who_was_asked_in_vain_makes_room_for_others_and_is_asked_seldom() -> None:
    asks, silent = UnheardAsks(), set(NODES[:ASKED_AT_ONCE])
    asks.next(NODES, nobody, 0.0)
    assert asks.next(NODES, silent.__contains__, PATIENCE_S) == [*NODES[ASKED_AT_ONCE : 2 * ASKED_AT_ONCE], NODES[0]]
    assert [asks.next(NODES, lambda _: True, PATIENCE_S) for _ in range(2)] == [[NODES[1]], [NODES[2]]]
