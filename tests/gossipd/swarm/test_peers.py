"""Evidence about one pair and the cluster's verdict stay apart; bad peers are left alone for a while."""

from __future__ import annotations

from random import Random

import pytest

from gossipd.core.events import FailReason
from gossipd.swarm.peers import Peer, Peers
from tests.gossipd.swarm.planning import SETTINGS, node, view


def peers_with_one() -> tuple[Peers, Peer]:
    peers = Peers(SETTINGS, Random(1))
    peers.seen(view(1))
    peer = peers.get(node(1))
    assert peer is not None
    return peers, peer


def test_a_dead_member_is_not_usable_however_reachable() -> None:
    peers, peer = peers_with_one()
    peers.lost(node(1))
    peers.reached(node(1), True)
    assert not peer.usable(0.0)
    assert peers.seen(view(1))
    assert peer.usable(0.0)


def test_an_unreachable_member_is_not_usable_until_evidence_says_so() -> None:
    peers, peer = peers_with_one()
    peers.reached(node(1), False)
    peers.seen(view(1))
    assert not peer.usable(1e6)
    assert peers.reached(node(1), True)
    assert peer.usable(0.0)


@pytest.mark.parametrize("reason", [FailReason.CORRUPT, FailReason.GONE, FailReason.REFUSED])
def test_a_peer_that_lies_or_vanishes_is_asked_no_more_for_a_while(reason: FailReason) -> None:
    peers, peer = peers_with_one()
    version = peers.version
    peers.started(peer)
    peers.failed(node(1), reason, 10.0)
    assert not peer.usable(10.1)
    assert peers.version > version
    assert peer.usable(10.0 + 61.0)
    version = peers.version
    peers.expire(10.0 + 61.0)
    assert peers.version > version


def fail(peers: Peers, reason: FailReason, *times_s: float, idle_s: float = 0.0) -> None:
    for now in times_s:
        peers.failed(node(1), reason, now, idle_s=idle_s)


def test_a_peer_that_is_too_slow_twice_while_others_deliver_is_left_alone() -> None:
    peers, peer = peers_with_one()
    fail(peers, FailReason.SLOW, 10.0)
    peers.delivered(node(1), 1.0, 15.0)
    fail(peers, FailReason.SLOW, 20.0, 20.5)  # at once: one stop of the peer
    peers.seen(view(2))
    peers.delivered(node(2), 1.0, 25.0)
    assert peer.usable(25.1)
    fail(peers, FailReason.SLOW, 30.0)
    assert peers.is_shunned(node(1), 30.1)


def test_peers_of_a_host_that_gets_nothing_from_any_are_left_alone_later() -> None:
    peers, peer = peers_with_one()
    fail(peers, FailReason.SLOW, *range(10, 15))
    assert peer.usable(14.1)
    fail(peers, FailReason.SLOW, 15.0)
    assert peers.is_shunned(node(1), 15.1)


@pytest.mark.parametrize("reason", [FailReason.BUSY, FailReason.NOT_HELD])
def test_a_peer_that_only_refuses_is_left_alone_after_a_while(reason: FailReason) -> None:
    peers, _ = peers_with_one()
    fail(peers, reason, *range(10, 30), idle_s=3.0)
    assert not peers.is_shunned(node(1), 29.5)
    fail(peers, reason, 40.5, idle_s=2.9)
    assert not peers.is_shunned(node(1), 41.0), "others bring chunks"
    fail(peers, reason, 41.0, idle_s=3.0)
    assert peers.is_shunned(node(1), 41.5)


@pytest.mark.parametrize(("usual_s", "chunk_s", "after_s"), [(0.1, 0.05, 6.0), (0.1, 0.5, 12.0), (1.0, 9.0, 30.0)])
def test_a_peer_that_refuses_is_waited_for_as_long_as_chunks_take(
    usual_s: float, chunk_s: float, after_s: float
) -> None:
    peers, _ = peers_with_one()
    peers.usual_s = usual_s
    for step in range(10 * int(after_s)):
        peers.failed(node(1), FailReason.BUSY, step / 10, idle_s=9.0, chunk_s=chunk_s)
    assert not peers.is_shunned(node(1), after_s)
    peers.failed(node(1), FailReason.BUSY, after_s, idle_s=9.0, chunk_s=chunk_s)
    assert peers.is_shunned(node(1), after_s + 0.1)


def trickle(peers: Peers, reason: FailReason, refusals_per_s: int, *, every_s: float, until_s: float) -> None:
    """The peer gives one chunk every so often, and refuses all else."""
    for turn in range(int(until_s * refusals_per_s)):
        now = turn / refusals_per_s
        if turn % int(every_s * refusals_per_s) == 0:
            peers.delivered(node(1), 0.1, now)
        peers.failed(node(1), reason, now)


def test_a_peer_that_gives_a_chunk_now_and_then_and_refuses_the_rest_is_left_alone() -> None:
    peers, peer = peers_with_one()
    trickle(peers, FailReason.NOT_HELD, 20, every_s=2.5, until_s=5.9)
    assert peer.usable(5.9)
    trickle(peers, FailReason.NOT_HELD, 20, every_s=2.5, until_s=6.5)
    assert peers.is_shunned(node(1), 6.5) and node(1) in peers.doubted
    peers.delivered(node(1), 0.1, 9.0)
    assert node(1) in peers.doubted and peer.has_lied, "one chunk pays for a few refusals"
    fail(peers, FailReason.NOT_HELD, *[9.0 + step / 20 for step in range(60)])
    assert 2.5 < peer.shunned_until - 9.0 < 6.0, "the next pause is longer, and those asked together are one"
    for step in range(20):
        peers.delivered(node(1), 0.1, 20.0 + step)
    assert peer.usable(40.0) and node(1) not in peers.doubted and not peer.has_lied


@pytest.mark.parametrize(("reason", "per_s", "every_s"), [(FailReason.BUSY, 40, 1.0), (FailReason.NOT_HELD, 8, 1.0)])
def test_a_peer_with_few_slots_or_a_few_lost_chunks_is_none_of_these(
    reason: FailReason, per_s: int, every_s: float
) -> None:
    peers, peer = peers_with_one()
    trickle(peers, reason, per_s, every_s=every_s, until_s=60.0)
    assert peer.usable(60.0) and node(1) not in peers.doubted


def test_a_new_connection_or_life_of_a_liar_changes_nothing() -> None:
    peers, peer = peers_with_one()
    fail(peers, FailReason.CORRUPT, 10.0)
    until = peer.shunned_until
    peers.reached(node(1), False)
    peers.reached(node(1), True)
    peers.lost(node(1))
    peers.seen(view(1))
    assert (peer.reachable, peer.shunned_until) == (True, until)
    fail(peers, FailReason.CORRUPT, 20.0)
    assert peer.shunned_until - 20.0 >= 3.0, "the second pause is twice the first"


def test_bad_chunks_that_were_under_way_together_are_one_lie_and_the_next_is_not_forgiven() -> None:
    peers, peer = peers_with_one()
    peers.delivered(node(1), 0.1, 9.0)
    fail(peers, FailReason.CORRUPT, 10.0, 10.1, 10.2)
    assert peers.is_rotten(node(1), 10.3)
    assert peer.shunned_until <= 12.5
    fail(peers, FailReason.CORRUPT, 13.0)
    assert peers.is_shunned(node(1), 15.9)
    assert not peers.is_rotten(node(1), 13.1)


@pytest.mark.parametrize(("reason", "was_silent"), [(FailReason.CORRUPT, False), (FailReason.SLOW, True)])
def test_a_peer_that_begins_with_nothing_good_is_doubted_at_once(reason: FailReason, *, was_silent: bool) -> None:
    for has_delivered in (False, True):
        peers, peer = peers_with_one()
        if has_delivered:
            peers.delivered(node(1), 0.1, 9.0)
        peers.started(peer)
        peers.failed(node(1), reason, 10.0, was_silent=was_silent)
        assert (node(1) in peers.doubted) is not has_delivered


def test_a_first_fetch_that_is_slow_but_moves_speaks_little_against_a_peer() -> None:
    peers, _ = peers_with_one()
    fail(peers, FailReason.SLOW, 10.0)
    assert not peers.doubted
    fail(peers, FailReason.SLOW, 14.0)
    assert peers.doubted == {node(1)}


def test_what_a_peer_says_does_not_count_while_it_is_left_alone() -> None:
    peers, peer = peers_with_one()
    assert peers.hears(node(1), 2, 9.0)
    peers.started(peer)
    peers.failed(node(1), FailReason.CORRUPT, 10.0)
    free = peer.free
    assert not peers.hears(node(1), 7, 10.1)
    assert (peer.free, peers.slots_most) == (free, SETTINGS.slots_assumed)
    assert peers.hears(node(1), 7, 10.0 + 61.0)
    assert (peer.free, peers.slots_most) == (7, 7)


def test_each_failure_in_a_row_doubles_the_pause_up_to_a_minute() -> None:
    peers, peer = peers_with_one()
    pauses = []
    for _ in range(8):
        peers.failed(node(1), FailReason.GONE, 0.0)
        pauses.append(peer.shunned_until)
    assert pauses[0] < 1.5
    assert 30 < pauses[-1] <= 75
    peers.delivered(node(1), 1.0, 0.0)
    peers.failed(node(1), FailReason.GONE, 0.0)
    assert peer.shunned_until < 1.5


def test_busy_is_no_fault_but_says_that_no_slot_is_free() -> None:
    peers, peer = peers_with_one()
    peers.started(peer)
    peers.failed(node(1), FailReason.BUSY, 5.0)
    assert peer.usable(5.0)
    assert (peer.free, peer.asked) == (0, 0)


def test_only_a_peer_far_slower_than_usual_is_slow() -> None:
    peers, _ = peers_with_one()
    peers.seen(view(2))
    for _ in range(40):
        peers.delivered(node(1), 1.0, 0.0)
    for _ in range(10):
        peers.delivered(node(2), 8.0, 0.0)
        peers.delivered(node(1), 1.0, 0.0)
    slow, quick = peers.get(node(2)), peers.get(node(1))
    assert slow is not None
    assert quick is not None
    assert slow.elapsed_s > peers.slow_s() > quick.elapsed_s


def test_a_fetch_that_was_given_up_is_not_counted_for_ever() -> None:
    peers, peer = peers_with_one()
    peers.started(peer)
    peers.released(node(1))
    assert peer.asked == 0


def test_a_mapping_of_all_members_is_shared_until_one_of_them_changes() -> None:
    shared = {node(number): view(number) for number in range(4)}
    one, other = (Peers(SETTINGS, Random(1), node(0)) for _ in range(2))
    for peers in (one, other):
        assert peers.adopt(shared) == []
        assert peers.adopt(shared) == [], "nobody is gone"
        assert [member.node for member in peers.members()] == [node(1), node(2), node(3)]
    one.lost(node(1))
    one.seen(view(2, term=5))
    assert [member.seed_term for member in one.members()] == [5, 0]
    assert [member.seed_term for member in other.members()] == [0, 0, 0]
    assert shared == {node(number): view(number) for number in range(4)}


def test_a_peer_that_is_no_member_any_more_is_lost_and_forgiven_when_back() -> None:
    peers, peer = peers_with_one()
    peers.failed(node(1), FailReason.GONE, 10.0)
    assert peers.adopt({node(2): view(2)}) == [node(1)]
    assert not peer.usable(1e6)
    assert peers.adopt({node(1): view(1), node(2): view(2)}) == []
    assert peer.usable(10.0)


def test_hosts_that_came_and_went_leave_few_records() -> None:
    peers = Peers(SETTINGS, Random(1))
    for number in range(1, 1000):
        peers.seen(view(number))
        assert peers.get(node(number)) is not None
        peers.lost(node(number))
    assert len(peers.unusable(0.0)) <= 65
    assert peers.get(node(1)) is None


def test_we_are_no_peer_of_ours() -> None:
    peers = Peers(SETTINGS, Random(1), node(1))
    peers.adopt({node(1): view(1)})
    assert peers.get(node(1)) is None


def test_all_are_unusable_when_every_member_is_and_there_is_one() -> None:
    peers = Peers(SETTINGS, Random(1), node(1))
    peers.adopt({node(1): view(1)})
    assert not peers.are_all_unusable(0.0), "there is nobody else"
    peers.seen(view(2))
    peers.seen(view(3))
    peers.reached(node(2), False)
    assert not peers.are_all_unusable(0.0)
    peers.reached(node(3), False)
    assert peers.are_all_unusable(0.0)
    peers.lost(node(3))
    assert peers.are_all_unusable(0.0), "who is gone is no member that could be asked"
    peers.reached(node(2), True)
    assert not peers.are_all_unusable(0.0)
