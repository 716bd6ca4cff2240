"""Who listens to us, and under which stream; questions that came too early, and what was missed; by values."""

from __future__ import annotations

from gossipd.core.ids import DeploymentId
from gossipd.sessions.subscribers import LOST_MAX, STREAMS_MAX, SubscriberTable
from membership.member import NodeId

PEER, OTHER_PEER = NodeId(b"p" * 16), NodeId(b"q" * 16)
ONE, TWO = DeploymentId(b"1" * 32), DeploymentId(b"2" * 32)


def table(first_stream: int = 0, early_per_peer_max: int = 3) -> SubscriberTable:
    return SubscriberTable(first_stream=first_stream, early_per_peer_max=early_per_peer_max)


def numbered(count: int) -> list[DeploymentId]:
    return [DeploymentId(number.to_bytes(32, "big")) for number in range(count)]


def test_streams_are_distinct_while_in_use_and_wrap() -> None:
    subscribers = table(STREAMS_MAX - 1)
    assert [subscribers.stream(one) for one in (ONE, TWO, ONE)] == [STREAMS_MAX - 1, 0, STREAMS_MAX - 1]


def test_a_stream_in_use_is_stepped_over() -> None:
    subscribers = table(7)
    subscribers.stream(ONE)
    subscribers._next_stream = 7
    assert subscribers.stream(TWO) == 8


def test_early_questions_are_handed_out_once() -> None:
    subscribers = table()
    subscribers.add_early(PEER, ONE)
    subscribers.add_early(OTHER_PEER, ONE)
    subscribers.add_early(PEER, TWO)
    assert subscribers.take_early(ONE) == [PEER, OTHER_PEER]
    assert subscribers.take_early(ONE) == []
    assert subscribers.take_early(TWO) == [PEER]


def test_one_peer_cannot_crowd_out_early_questions_of_another() -> None:
    subscribers = table(early_per_peer_max=3)
    subscribers.add_early(OTHER_PEER, ONE)
    deployments = numbered(10)
    for deployment in deployments:
        subscribers.add_early(PEER, deployment)
    found = [deployment for deployment in deployments if subscribers.take_early(deployment)]
    assert found == deployments[-3:]
    assert subscribers.take_early(ONE) == [OTHER_PEER]


def test_an_early_question_that_is_repeated_is_young_again() -> None:
    subscribers = table(early_per_peer_max=2)
    for deployment in (ONE, TWO, ONE, DeploymentId(b"3" * 32)):
        subscribers.add_early(PEER, deployment)
    assert (subscribers.take_early(ONE), subscribers.take_early(TWO)) == ([PEER], [])


def test_an_early_question_may_be_taken_back() -> None:
    subscribers = table()
    subscribers.add_early(PEER, ONE)
    assert not subscribers.remove(PEER, ONE)
    assert subscribers.take_early(ONE) == []


def test_subscribers_go_with_their_deployment_or_by_themselves() -> None:
    subscribers = table()
    subscribers.add(PEER, ONE)
    subscribers.add(OTHER_PEER, ONE)
    subscribers.add(PEER, TWO)
    stream = subscribers.stream(ONE)
    assert subscribers.close(ONE) == (stream, [PEER, OTHER_PEER])
    assert (subscribers.of(PEER), subscribers.has(PEER, ONE), subscribers.has(PEER, TWO)) == ((TWO,), False, True)
    assert subscribers.remove(PEER, TWO)
    assert not subscribers.remove(PEER, TWO)
    assert subscribers.close(TWO) == (None, [])


def test_nothing_is_kept_of_a_peer_that_is_gone() -> None:
    subscribers = table()
    subscribers.add(PEER, ONE)
    subscribers.add_early(PEER, TWO)
    subscribers.link_down(PEER)
    subscribers.remove_peer(PEER)
    assert subscribers.take_early(TWO) == []
    subscribers.add(PEER, ONE)
    assert subscribers.link_up(PEER) == ()


def test_what_was_missed_is_told_once_when_the_link_is_back() -> None:
    subscribers = table()
    subscribers.link_down(PEER)
    subscribers.add(PEER, ONE)
    assert subscribers.link_up(PEER) == (), "it listened to nothing when the link failed"
    subscribers.add(PEER, TWO)
    subscribers.link_down(PEER)
    assert (subscribers.link_up(PEER), subscribers.link_up(PEER)) == ((ONE, TWO), ())


def test_what_a_lost_peer_listened_to_is_given_once_and_without_what_ended() -> None:
    subscribers = table()
    three = DeploymentId(b"3" * 32)
    for deployment in (ONE, three):
        subscribers.add(PEER, deployment)
    subscribers.add_early(PEER, TWO)
    subscribers.remove_peer(PEER)
    assert subscribers.of(PEER) == ()
    subscribers.remove_peer(PEER)  # dead, then forgotten
    subscribers.remove(PEER, three)
    assert set(subscribers.take_lost(PEER)) == {ONE, TWO}
    assert subscribers.take_lost(PEER) == ()


def test_lost_peers_are_kept_up_to_a_number_the_last_ones() -> None:
    subscribers = table()
    peers = [NodeId(number.to_bytes(16, "big")) for number in range(LOST_MAX + 1)]
    for peer in peers:
        subscribers.add(peer, ONE)
        subscribers.remove_peer(peer)
    assert subscribers.take_lost(peers[0]) == ()
    assert subscribers.take_lost(peers[1]) == subscribers.take_lost(peers[-1]) == (ONE,)
