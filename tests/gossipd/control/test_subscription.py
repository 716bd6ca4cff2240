"""What is followed, and how a gap is noticed and mended; by values."""

from __future__ import annotations

from gossipd.control.subscribers import EARLY_MAX, STREAMS_MAX, Subscribers
from gossipd.control.subscription import SubscriptionTable
from gossipd.core.ids import DeploymentId
from membership.member import NodeId

PEER, OTHER_PEER = NodeId(b"p" * 16), NodeId(b"q" * 16)
ONE, TWO = DeploymentId(b"1" * 32), DeploymentId(b"2" * 32)


def followed() -> SubscriptionTable:
    following = SubscriptionTable(resubscribe_s=5)
    following.begin(PEER, ONE, 0.0)
    assert following.heard_holdings(PEER, ONE, 3, 0)
    return following


def test_news_in_order_is_current() -> None:
    following = followed()
    assert [following.heard_delta(PEER, 3, number, 1.0) for number in (1, 2, 3)] == [(ONE, False)] * 3
    assert following.due(100.0) == []


def test_a_gap_asks_once_and_news_heard_meanwhile_still_counts() -> None:
    following = followed()
    assert following.heard_delta(PEER, 3, 2, 6.0) == (ONE, True)
    assert following.heard_delta(PEER, 3, 3, 6.1) == (ONE, False)
    assert following.heard_holdings(PEER, ONE, 3, 0)
    assert following.heard_delta(PEER, 3, 1, 6.2) == (ONE, False)
    assert following.counters["gaps"] == 1


def test_a_lossy_peer_costs_at_most_one_question_per_pause() -> None:
    following = followed()
    asked = 0
    for step in range(100):
        now = 5.0 + step / 10
        asked += following.heard_delta(PEER, 3, 1000 + 2 * step, now)[1] + len(following.due(now))
        following.heard_holdings(PEER, ONE, 3, 0)
    assert asked <= 3


def test_a_repeated_delta_is_a_gap_too() -> None:
    following = followed()
    following.heard_delta(PEER, 3, 1, 6.0)
    assert following.heard_delta(PEER, 3, 1, 6.0) == (ONE, True)


def test_an_unanswered_question_is_due_again_after_the_pause() -> None:
    following = SubscriptionTable(resubscribe_s=5)
    following.begin(PEER, ONE, 0.0)
    assert following.due(4.9) == []
    assert following.due(5.0) == [(PEER, ONE)]
    assert following.due(5.1) == []
    assert following.due(10.0) == [(PEER, ONE)]


def test_a_link_that_comes_up_asks_for_everything_followed_there() -> None:
    following = followed()
    following.begin(PEER, TWO, 0.0)
    following.begin(OTHER_PEER, ONE, 0.0)
    assert set(following.link_up(PEER, 7.0)) == {ONE, TWO}


def test_what_nobody_asked_for_is_not_heard() -> None:
    following = followed()
    assert not following.heard_holdings(OTHER_PEER, ONE, 3, 0)
    assert not following.heard_holdings(PEER, TWO, 4, 0)
    assert following.heard_delta(OTHER_PEER, 3, 1, 1.0) == (None, False)
    assert following.heard_delta(PEER, 99, 1, 1.0) == (None, False)
    assert following.end(PEER, ONE)
    assert not following.end(PEER, ONE)
    assert following.heard_delta(PEER, 3, 1, 1.0) == (None, False)
    assert following.counters["unasked"] == 5


def test_a_restarted_peer_may_use_a_stream_for_another_deployment() -> None:
    following = followed()
    following.begin(PEER, TWO, 0.0)
    following.heard_holdings(PEER, TWO, 3, 0)  # stream 3 meant ONE in the peer's former life
    assert following.heard_delta(PEER, 3, 1, 1.0) == (TWO, False)
    following.end(PEER, ONE)
    assert following.heard_delta(PEER, 3, 2, 1.0) == (TWO, False)


def test_a_forgotten_peer_is_followed_no_more() -> None:
    following = followed()
    following.forget(PEER)
    assert following.of(PEER) == ()
    assert following.due(100.0) == []


def test_streams_are_distinct_while_in_use_and_wrap() -> None:
    followers = Subscribers(first_stream=STREAMS_MAX - 1)
    assert [followers.stream(ONE), followers.stream(TWO), followers.stream(ONE)] == [
        STREAMS_MAX - 1,
        0,
        STREAMS_MAX - 1,
    ]


def test_early_followers_are_bounded_and_handed_out_once() -> None:
    followers = Subscribers(first_stream=0)
    for number in range(EARLY_MAX + 10):
        followers.add_early(NodeId(number.to_bytes(16, "big")), ONE)
    found = followers.take_early(ONE)
    assert len(found) == EARLY_MAX
    assert found[0] == NodeId((10).to_bytes(16, "big"))
    assert followers.take_early(ONE) == []


def test_followers_are_forgotten_with_their_deployment_or_themselves() -> None:
    followers = Subscribers(first_stream=0)
    followers.add(PEER, ONE)
    followers.add(OTHER_PEER, ONE)
    followers.add(PEER, TWO)
    assert followers.close(ONE) == [PEER, OTHER_PEER]
    assert followers.of(PEER) == {TWO}
    assert followers.remove(PEER, TWO)
    assert not followers.remove(PEER, TWO)
    followers.add_early(PEER, TWO)
    followers.forget(PEER)
    assert followers.take_early(TWO) == []
