"""Who is told what, when: urgent news in small batches, the rest late, everything in the end."""

from __future__ import annotations

from random import Random

import pytest

from gossipd.core.events import SendDelta
from gossipd.swarm.announcements import Announcements, told_soon
from gossipd.swarm.settings import PlannerSettings
from membership.member import NodeId
from tests.gossipd.swarm.planning import DEPLOYMENT, SETTINGS, node

A, B = node(1), node(2)


def news_for(*peers: bytes) -> Announcements:
    news = Announcements(DEPLOYMENT, SETTINGS)
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


def test_urgent_news_wait_for_company_and_the_rest_for_longer() -> None:
    news = news_for(A, B)
    news.stored(1, [A])
    assert told(news.flush(101.0, 0.02, 4)) == {A: [1], B: [1]}
    news.stored(2, [A])
    assert news.flush(101.01, 0.02, 4) == []
    news.stored(3, [A])
    assert told(news.flush(101.02, 0.02, 4)) == {A: [2, 3]}
    lazy_s = 101.0 + SETTINGS.news_lazy_s
    assert news.flush(lazy_s - 0.5, 0.02, 4) == []
    assert told(news.flush(lazy_s, 0.02, 4)) == {B: [2, 3]}
    assert news.next_deadline(0.02) is None


def test_news_that_are_not_urgent_wait_for_company_where_something_was_told_lately_but_not_for_ever() -> None:
    news, lazy_s = news_for(A, B), SETTINGS.news_lazy_s
    news.stored(1, [])
    assert told(news.flush(101.0, 0.02, 4)) == {A: [1], B: [1]}
    news.stored(2, [A])
    assert told(news.flush(101.0 + lazy_s - 0.1, 0.02, 4)) == {A: [2]}
    news.stored(3, [])
    assert told(news.flush(101.0 + lazy_s, 0.02, 4)) == {B: [2, 3]}
    assert news.next_deadline(0.02) == 101.0 + 2 * lazy_s
    assert told(news.flush(101.0 + 2 * lazy_s, 0.02, 4)) == {A: [3]}
    assert news.next_deadline(0.02) is None


def test_the_same_news_for_several_are_one_command() -> None:
    news = news_for(A, B)
    news.stored(1, [A, B])
    (message,) = news.flush(101.0, 0.02, 3)
    assert sorted(message.peers) == [A, B]
    assert message.free_slots == 3


def test_the_next_deadline_is_when_a_message_is_due() -> None:
    news = news_for(A)
    news.stored(1, [A, B])
    news.flush(101.0, 0.02, 4)
    news.stored(2, [A, B])
    assert news.next_deadline(0.02) == 101.02
    assert news.flush(101.02, 0.02, 4)


def test_a_lost_chunk_is_urgent_unless_it_was_never_told() -> None:
    news = news_for(A)
    news.lost(7)
    (message,) = news.flush(101.0, 0.02, 4)
    assert message.dropped == (7,)
    news.stored(8, [])
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
        news.stored(chunk, [A, B])
    messages = news.flush(101.0, 0.02, 4)
    assert [len(message.added) for message in messages] == [256, 256, 88]


def test_there_is_a_limit_to_subscribers() -> None:
    news = Announcements(DEPLOYMENT, PlannerSettings(subscribers_max=1))
    assert news.subscribe(A)
    assert not news.subscribe(B)
    assert news.subscribe(A)
    news.unsubscribe(A)
    assert news.subscribe(B)


def test_a_chunk_that_was_lost_and_came_back_is_told_as_held() -> None:
    news = news_for(A)
    news.lost(7)
    news.stored(7, [])
    (message,) = news.flush(101.0, 0.02, 4)
    assert (message.added, message.dropped) == ((7,), ())


@pytest.mark.parametrize("seed", range(20))
def test_whoever_hears_every_message_knows_in_the_end_what_is_held(seed: int) -> None:
    rng = Random(seed)
    news = Announcements(DEPLOYMENT, SETTINGS)
    peers = [node(number) for number in range(1, 6)]
    held: set[int] = set()
    known: dict[bytes, set[int]] = {}

    def hear(now: float) -> None:
        for message in news.flush(now, 0.02, 4):
            for peer in message.peers:
                known[peer] = known[peer] - set(message.dropped) | set(message.added)

    now = 100.0
    for _ in range(400):
        peer, chunk = rng.choice(peers), rng.randrange(12)
        match rng.randrange(8):
            case 0:
                assert news.subscribe(peer)
                known[peer] = set(held)
            case 1:
                news.unsubscribe(peer)
                known.pop(peer, None)
            case 2 | 3 if chunk in held:
                held.remove(chunk)
                news.lost(chunk)
            case _ if chunk not in held:
                held.add(chunk)
                news.stored(chunk, rng.sample(peers, 2))
        now += rng.random() / 10
        hear(now)
    hear(now + SETTINGS.news_lazy_s)
    hear(now + 2 * SETTINGS.news_lazy_s)  # to whom something was told lately
    assert all(view == held for view in known.values()), seed
    assert news.next_deadline(0.02) is None


def test_a_mate_hears_soon_of_a_chunk_from_so_many_holders_as_are_wanted_on_average_and_the_same_in_every_run() -> None:
    mates = {NodeId(bytes([number]) * 16) for number in range(40)}
    assert told_soon(mates, 2, 2, Random(1)) is mates, "the first holders tell everybody"
    times = 200
    for holders in (3, 10, 40):
        told = sum(len(told_soon(mates, holders, 2, Random(seed))) for seed in range(times))
        assert told / times / 40 * holders == pytest.approx(2.0, rel=0.1)
    assert told_soon(mates, 10, 2, Random(7)) == told_soon(frozenset(sorted(mates)), 10, 2, Random(7))
