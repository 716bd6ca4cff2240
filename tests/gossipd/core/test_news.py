"""Who is told what, when: urgent news in small batches, the rest late, everything in the end."""

from __future__ import annotations

from gossipd.core.events import SendDelta
from gossipd.core.news import News
from gossipd.core.planner_settings import PlannerSettings
from tests.gossipd.core.planning import DEPLOYMENT, SETTINGS, node

A, B = node(1), node(2)


def news_for(*peers: bytes) -> News:
    news = News(DEPLOYMENT, SETTINGS)
    for peer in peers:
        assert news.subscribe(peer)  # type: ignore[arg-type]
    news.flush(100.0, 0.02, 4)
    return news


def told(messages: list[SendDelta]) -> dict[bytes, list[int]]:
    heard: dict[bytes, list[int]] = {}
    for message in messages:
        for peer in message.peers:
            heard.setdefault(peer, []).extend(message.added)
    return heard


def test_urgent_news_wait_for_company_and_the_rest_for_a_second() -> None:
    news = news_for(A, B)
    news.stored(1, lambda peer: peer == A)
    assert told(news.flush(101.0, 0.02, 4)) == {A: [1], B: [1]}
    news.stored(2, lambda peer: peer == A)
    assert news.flush(101.01, 0.02, 4) == []
    news.stored(3, lambda peer: peer == A)
    assert told(news.flush(101.02, 0.02, 4)) == {A: [2, 3]}
    assert news.flush(101.5, 0.02, 4) == []
    assert told(news.flush(102.0, 0.02, 4)) == {B: [2, 3]}
    assert news.next_deadline(0.02) is None


def test_the_same_news_for_several_are_one_command() -> None:
    news = news_for(A, B)
    news.stored(1, lambda peer: True)
    (message,) = news.flush(101.0, 0.02, 3)
    assert sorted(message.peers) == [A, B]
    assert message.free_slots == 3


def test_the_next_deadline_is_when_a_message_is_due() -> None:
    news = news_for(A)
    news.stored(1, lambda peer: True)
    news.flush(101.0, 0.02, 4)
    news.stored(2, lambda peer: True)
    assert news.next_deadline(0.02) == 101.02
    assert news.flush(101.02, 0.02, 4)


def test_a_lost_chunk_is_urgent_unless_it_was_never_told() -> None:
    news = news_for(A)
    news.lost(7)
    (message,) = news.flush(101.0, 0.02, 4)
    assert message.dropped == (7,)
    news.stored(8, lambda peer: False)
    news.lost(8)
    assert all(not message.added and not message.dropped for message in news.flush(103.0, 0.02, 4))


def test_what_is_being_read_rides_along_and_is_urgent_for_readers() -> None:
    news = news_for(A, B)
    news.read((4, 5), (A,))
    (message,) = news.flush(101.0, 0.02, 4)
    assert (message.peers, message.reading) == ((A,), (4, 5))
    news.read((), (A,))
    assert told(news.flush(101.5, 0.02, 4)) == {}


def test_long_news_are_split() -> None:
    news = news_for(A)
    for chunk in range(600):
        news.stored(chunk, lambda peer: True)
    messages = news.flush(101.0, 0.02, 4)
    assert [len(message.added) for message in messages] == [256, 256, 88]


def test_there_is_a_limit_to_subscribers() -> None:
    news = News(DEPLOYMENT, PlannerSettings(subscribers_max=1))
    assert news.subscribe(A)
    assert not news.subscribe(B)
    assert news.subscribe(A)
    news.unsubscribe(A)
    assert news.subscribe(B)
