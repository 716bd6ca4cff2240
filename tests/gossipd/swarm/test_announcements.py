"""Who is told what, when: urgent news in small batches, the rest late, everything in the end."""

from __future__ import annotations

from random import Random

import pytest

from gossipd.core.events import SendDelta
from gossipd.swarm.announcements import FEW_CHUNKS, FEW_WAITS, Announcements, told_soon
from gossipd.swarm.settings import PlannerSettings
from membership.member import NodeId
from tests.gossipd.swarm.planning import DEPLOYMENT, SETTINGS, node

A, B = node(1), node(2)


FEW_S = FEW_WAITS * SETTINGS.news_lazy_s


def news_for(*peers: bytes) -> Announcements:
    announcements = Announcements(DEPLOYMENT, SETTINGS)
    for peer in peers:
        assert announcements.subscribe(peer)  # type: ignore[arg-type]
    announcements.flush(100.0, 0.02, 4)
    return announcements


def told(messages: list[SendDelta]) -> dict[bytes, list[int]]:
    heard: dict[bytes, list[int]] = {}
    for message in messages:
        for peer in message.peers:
            heard.setdefault(peer, []).extend(message.added)
    return heard


def test_urgent_news_wait_for_company_and_the_rest_for_longer() -> None:
    announcements = news_for(A, B)
    announcements.stored(1, [A])
    assert told(announcements.flush(101.0, 0.02, 4)) == {A: [1], B: [1]}
    announcements.stored(2, [A])
    assert announcements.flush(101.01, 0.02, 4) == []
    announcements.stored(3, [A])
    assert told(announcements.flush(101.02, 0.02, 4)) == {A: [2, 3]}
    lazy_s = 101.0 + FEW_S
    assert announcements.flush(lazy_s - 0.5, 0.02, 4) == []
    assert told(announcements.flush(lazy_s, 0.02, 4)) == {B: [2, 3]}
    assert announcements.next_deadline(0.02) is None


def test_news_that_are_not_urgent_wait_for_company_where_something_was_told_lately_but_not_for_ever() -> None:
    announcements, lazy_s = news_for(A, B), FEW_S
    announcements.stored(1, [])
    assert told(announcements.flush(101.0, 0.02, 4)) == {A: [1], B: [1]}
    announcements.stored(2, [A])
    assert told(announcements.flush(101.0 + lazy_s - 0.1, 0.02, 4)) == {A: [2]}
    announcements.stored(3, [])
    assert told(announcements.flush(101.0 + lazy_s, 0.02, 4)) == {B: [2, 3]}
    assert announcements.next_deadline(0.02) == 101.0 + 2 * lazy_s
    assert told(announcements.flush(101.0 + 2 * lazy_s, 0.02, 4)) == {A: [3]}
    assert announcements.next_deadline(0.02) is None


def test_a_few_chunks_that_nobody_waits_for_are_told_later_than_more_of_them() -> None:
    announcements, lazy_s = news_for(A), SETTINGS.news_lazy_s
    announcements.stored(0, [])
    announcements.flush(101.0, 0.02, 4)
    for chunk in range(1, FEW_CHUNKS):
        announcements.stored(chunk, [])
    assert announcements.next_deadline(0.02) == 101.0 + FEW_S
    assert announcements.flush(101.0 + lazy_s, 0.02, 4) == []
    announcements.stored(FEW_CHUNKS, [])
    assert announcements.next_deadline(0.02) == 101.0 + lazy_s
    assert told(announcements.flush(101.0 + lazy_s, 0.02, 4)) == {A: [*range(1, FEW_CHUNKS + 1)]}


def test_a_healthy_host_that_has_not_told_a_few_chunks_does_not_look_slow() -> None:
    assert SETTINGS.behind_chunks >= FEW_CHUNKS


def test_the_same_news_for_several_are_one_command() -> None:
    announcements = news_for(A, B)
    announcements.stored(1, [A, B])
    (message,) = announcements.flush(101.0, 0.02, 3)
    assert sorted(message.peers) == [A, B]
    assert message.free_slots == 3


def test_the_next_deadline_is_when_a_message_is_due() -> None:
    announcements = news_for(A)
    announcements.stored(1, [A, B])
    announcements.flush(101.0, 0.02, 4)
    announcements.stored(2, [A, B])
    assert announcements.next_deadline(0.02) == 101.02
    assert announcements.flush(101.02, 0.02, 4)


def test_a_lost_chunk_is_urgent_unless_it_was_never_told() -> None:
    announcements = news_for(A)
    announcements.lost(7)
    (message,) = announcements.flush(101.0, 0.02, 4)
    assert message.dropped == (7,)
    announcements.stored(8, [])
    announcements.lost(8)
    assert all(not message.added and not message.dropped for message in announcements.flush(103.0, 0.02, 4))


def test_what_is_being_read_rides_along_and_is_urgent_for_readers() -> None:
    announcements = news_for(A, B)
    announcements.read((4, 5), (A,))
    (message,) = announcements.flush(101.0, 0.02, 4)
    assert (message.peers, message.reading) == ((A,), (4, 5))
    announcements.read((), (A,))
    assert told(announcements.flush(101.5, 0.02, 4)) == {}


def test_in_the_midst_of_a_model_reads_are_urgent_for_a_reader_that_has_asked_again() -> None:
    announcements = news_for(A, B)
    announcements.read((4,), (A, B), is_midst=True)
    assert announcements.flush(101.0, 0.02, 4) == []
    assert announcements.subscribe(B)
    announcements.flush(102.0, 0.02, 4)
    announcements.read((4, 5), (A, B), is_midst=True)
    (message,) = announcements.flush(102.5, 0.02, 4)
    assert (message.peers, message.reading) == ((B,), (4, 5))
    announcements.hurry((A,), is_midst=True)
    announcements.hurry((B,), is_midst=True)
    (message,) = announcements.flush(103.0, 0.02, 4)
    assert message.peers == (B,)


def test_who_asks_for_news_hears_soon_what_is_being_read_which_holdings_do_not_tell() -> None:
    announcements = news_for(A)
    announcements.read((7,), ())
    assert announcements.subscribe(B)
    (message,) = announcements.flush(101.0, 0.02, 4)
    assert (message.peers, message.added, message.reading) == ((B,), (), (7,))
    announcements.read((), ())
    assert announcements.subscribe(A)
    assert announcements.flush(102.0, 0.02, 4) == [], "nothing is being read"


def test_long_news_are_split() -> None:
    announcements = news_for(A)
    for chunk in range(600):
        announcements.stored(chunk, [A, B])
    messages = announcements.flush(101.0, 0.02, 4)
    assert [len(message.added) for message in messages] == [256, 256, 88]


def test_there_is_a_limit_to_subscribers() -> None:
    announcements = Announcements(DEPLOYMENT, PlannerSettings(subscribers_max=1))
    assert announcements.subscribe(A)
    assert not announcements.subscribe(B)
    assert announcements.subscribe(A)
    announcements.unsubscribe(A)
    assert announcements.subscribe(B)


def test_a_chunk_that_was_lost_and_came_back_is_told_as_held() -> None:
    announcements = news_for(A)
    announcements.lost(7)
    announcements.stored(7, [])
    (message,) = announcements.flush(101.0, 0.02, 4)
    assert (message.added, message.dropped) == ((7,), ())


@pytest.mark.parametrize("seed", range(20))
def test_a_peer_that_hears_every_message_knows_in_the_end_what_is_held(seed: int) -> None:
    rng = Random(seed)
    announcements = Announcements(DEPLOYMENT, SETTINGS)
    peers = [node(number) for number in range(1, 6)]
    held: set[int] = set()
    known: dict[bytes, set[int]] = {}

    def hear(now: float) -> None:
        for message in announcements.flush(now, 0.02, 4):
            for peer in message.peers:
                known[peer] = known[peer] - set(message.dropped) | set(message.added)

    now = 100.0
    for _ in range(400):
        peer, chunk = rng.choice(peers), rng.randrange(12)
        match rng.randrange(8):
            case 0:
                assert announcements.subscribe(peer)
                known[peer] = set(held)
            case 1:
                announcements.unsubscribe(peer)
                known.pop(peer, None)
            case 2 | 3 if chunk in held:
                held.remove(chunk)
                announcements.lost(chunk)
            case _ if chunk not in held:
                held.add(chunk)
                announcements.stored(chunk, rng.sample(peers, 2))
        now += rng.random() / 10
        hear(now)
    hear(now + FEW_S)
    hear(now + 2 * FEW_S)  # to whom something was told lately
    assert all(view == held for view in known.values()), seed
    assert announcements.next_deadline(0.02) is None


def test_a_mate_hears_soon_of_a_chunk_from_so_many_holders_as_are_wanted_on_average_and_the_same_in_every_run() -> None:
    rack_peers = {NodeId(bytes([number]) * 16) for number in range(40)}
    assert told_soon(rack_peers, 2, 2, Random(1)) is rack_peers, "the first holders tell everybody"
    times = 200
    for holders in (3, 10, 40):
        told = sum(len(told_soon(rack_peers, holders, 2, Random(seed))) for seed in range(times))
        assert told / times / 40 * holders == pytest.approx(2.0, rel=0.1)
    assert told_soon(rack_peers, 10, 2, Random(7)) == told_soon(frozenset(sorted(rack_peers)), 10, 2, Random(7))


def test_who_believes_that_something_is_read_hears_the_end_of_it_once() -> None:
    announcements = Announcements(DEPLOYMENT, SETTINGS)
    announcements.subscribe(node(1))
    announcements.read((3,), ())
    announcements.stored(3, [node(1)])
    announcements.subscribe(node(2))
    assert {message.reading for message in heard(announcements, 10, 100)} == {(3,)}
    assert not heard(announcements, 100, 200), "all is told"
    announcements.read((), (), is_end=True)
    told = heard(announcements, 200, 500)
    assert [(message.peers, message.added, message.reading) for message in told] == [((node(1), node(2)), (), ())]


def test_who_asks_again_hears_that_nothing_is_read_any_more() -> None:
    """The end was not told yet, and a claim that it heard before may still be believed."""
    announcements = Announcements(DEPLOYMENT, SETTINGS)
    announcements.subscribe(node(1))
    announcements.read((3,), ())
    announcements.stored(3, [node(1)])
    heard(announcements, 10, 100)
    announcements.read((), (), is_end=True)
    announcements.subscribe(node(1))
    assert [message.reading for message in heard(announcements, 100, 500)] == [()]


def test_while_chunks_are_to_come_the_end_of_reads_rides_on_them() -> None:
    announcements = Announcements(DEPLOYMENT, SETTINGS)
    announcements.subscribe(node(1))
    announcements.read((3,), ())
    announcements.stored(3, [node(1)])
    heard(announcements, 10, 100)
    announcements.read((), ())
    assert not heard(announcements, 100, 500)


def heard(announcements: Announcements, since: int, until: int) -> list[SendDelta]:
    """What is told in these seconds."""
    return [message for now in range(since, until) for message in announcements.flush(float(now), 0.1, 4)]
