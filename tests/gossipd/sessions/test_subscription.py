"""What is asked for at peers, how a gap is noticed and mended, and when a question is repeated; by values."""

from __future__ import annotations

import math

from gossipd.core.ids import DeploymentId
from gossipd.sessions.subscription import SubscriptionTable
from membership.member import NodeId

PEER, OTHER_PEER = NodeId(b"p" * 16), NodeId(b"q" * 16)
ONE, TWO = DeploymentId(b"1" * 32), DeploymentId(b"2" * 32)


def asked() -> SubscriptionTable:
    table = SubscriptionTable(resubscribe_s=5)
    table.ask(PEER, ONE, 0.0)
    return table


def current() -> SubscriptionTable:
    table = asked()
    assert table.hear_holdings(PEER, ONE, 3, 0)
    return table


def test_deltas_in_order_leave_it_current() -> None:
    table = current()
    assert [table.hear_delta(PEER, 3, number, 1.0) for number in (1, 2, 3)] == [(ONE, False)] * 3
    assert table.counters["gaps"] == 0
    assert table.next_deadline() == math.inf


def test_a_gap_is_asked_about_once() -> None:
    table = current()
    assert table.hear_delta(PEER, 3, 1, 1.0) == (ONE, False)
    assert table.hear_delta(PEER, 3, 3, 6.0) == (ONE, True)
    assert (PEER, ONE) in table._asked
    assert table.hear_delta(PEER, 3, 4, 6.0) == (ONE, False), "the answer is on its way"
    assert table.hear_holdings(PEER, ONE, 3, 9)
    assert table.hear_delta(PEER, 3, 10, 6.1) == (ONE, False)
    assert (table.counters["gaps"], (PEER, ONE) in table._asked) == (1, False)


def test_a_gap_right_after_a_question_is_left_to_the_clock() -> None:
    table = current()
    assert table.hear_delta(PEER, 3, 7, 1.0) == (ONE, False)
    assert table.next_deadline() == 5.0
    assert table.due(5.0) == [(PEER, ONE)]


def test_a_peer_that_loses_much_is_asked_once_per_pause() -> None:
    table = current()
    count = 0
    for step in range(100):
        now = 5.0 + step / 10
        count += table.hear_delta(PEER, 3, 1000 + 2 * step, now)[1] + len(table.due(now))
        table.hear_holdings(PEER, ONE, 3, 0)
    assert count <= 3


def test_a_repeated_delta_is_a_gap_too() -> None:
    table = current()
    table.hear_delta(PEER, 3, 1, 6.0)
    assert table.hear_delta(PEER, 3, 1, 6.0) == (ONE, True)


def test_an_unanswered_question_is_repeated_without_end() -> None:
    table = asked()
    assert (table.next_deadline(), table.due(4.9)) == (5.0, [])
    assert table.due(5.0) == [(PEER, ONE)]
    assert (table.next_deadline(), table.due(5.1)) == (10.0, [])
    assert table.due(10.0) == [(PEER, ONE)]
    assert table.counters["repeated"] == 2


def test_a_question_is_due_at_the_deadline_that_was_named() -> None:
    table = SubscriptionTable(resubscribe_s=5)
    for number in range(100):
        asked_s = number / 7
        table.ask(PEER, ONE, asked_s)
        assert table.due(asked_s + 5) == [(PEER, ONE)], "or a caller that waits for it turns without end"


def test_an_answered_question_is_never_repeated() -> None:
    table = current()
    assert table.due(1000.0) == []
    assert (table.next_deadline(), table.counters["repeated"]) == (math.inf, 0)


def test_a_question_of_the_planner_starts_the_clock_again() -> None:
    table = current()
    table.ask(PEER, ONE, 7.0)
    assert (PEER, ONE) in table._asked
    assert table.hear_delta(PEER, 3, 50, 8.0) == (ONE, False), "until Holdings every delta counts by itself"
    assert (table.due(11.9), table.due(12.0)) == ([], [(PEER, ONE)])


def test_a_link_that_comes_up_asks_for_everything_there() -> None:
    table = current()
    table.ask(PEER, TWO, 0.0)
    table.ask(OTHER_PEER, ONE, 0.0)
    assert set(table.link_up(PEER, 7.0)) == {ONE, TWO}
    assert (PEER, ONE) in table._asked
    assert table.due(7.0) == [(OTHER_PEER, ONE)]


def test_what_was_not_asked_for_is_not_heard() -> None:
    table = current()
    assert not table.hear_holdings(OTHER_PEER, ONE, 3, 0)
    assert not table.hear_holdings(PEER, TWO, 4, 0)
    assert table.hear_delta(OTHER_PEER, 3, 1, 1.0) == (None, False)
    assert table.hear_delta(PEER, 99, 1, 1.0) == (None, False)
    assert table.end(PEER, ONE)
    assert not table.end(PEER, ONE)
    assert table.hear_delta(PEER, 3, 1, 1.0) == (None, False)
    assert table.counters["unasked"] == 5


def test_a_restarted_peer_may_reuse_a_stream() -> None:
    table = current()
    table.ask(PEER, TWO, 0.0)
    table.hear_holdings(PEER, TWO, 3, 0)  # stream 3 meant ONE in the peer's former life
    assert table.hear_delta(PEER, 3, 1, 1.0) == (TWO, False)
    table.end(PEER, ONE)
    assert table.hear_delta(PEER, 3, 2, 1.0) == (TWO, False)


def test_a_peer_that_is_gone_is_asked_no_more() -> None:
    table = asked()
    table.end_peer(PEER)
    assert table.of(PEER) == ()
    assert (table.due(100.0), table.next_deadline()) == ([], math.inf)


def test_a_closed_deployment_is_asked_for_no_more() -> None:
    table = current()
    table.ask(OTHER_PEER, ONE, 0.0)
    table.ask(PEER, TWO, 0.0)
    assert table.end_deployment(ONE) == [PEER, OTHER_PEER]
    assert (table.of(PEER), table.of(OTHER_PEER)) == ((TWO,), ())
    assert table.due(100.0) == [(PEER, TWO)]
