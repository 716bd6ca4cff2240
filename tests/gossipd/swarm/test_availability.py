"""What peers hold, as heard: lists follow what is missing here, the gone are forgotten."""

from __future__ import annotations

from random import Random

from gossipd.core.chunkset import ChunkSet
from gossipd.swarm.availability import Availability
from tests.gossipd.swarm.planning import node

A, B, C = node(1), node(2), node(3)


def holdings(*chunks: int, size: int = 10) -> ChunkSet:
    return ChunkSet.of(size, chunks)


def test_only_wanted_chunks_are_news() -> None:
    seen = Availability(10, held=0b11)
    assert seen.add(A, [0, 1, 2], near=True) == (2,)
    assert seen.near_holders(2) == [A]
    assert not seen.near_holders(0)
    assert not seen.lacks(A, 0)


def test_the_same_news_twice_is_no_news() -> None:
    seen = Availability(10, held=0)
    seen.add(A, [4], near=True)
    assert seen.add(A, [4], near=True) == ()
    assert seen.near_holders(4) == [A]


def test_chunks_past_the_end_are_ignored() -> None:
    seen = Availability(10, held=0)
    assert seen.add(A, [10, 11], near=True) == ()


def test_rack_mates_and_others_are_kept_apart() -> None:
    seen = Availability(10, held=0)
    seen.add(A, [4], near=True)
    seen.add(B, [4], near=False)
    assert (seen.near_count(4), seen.far_count(4)) == (1, 1)
    assert seen.far_holders(4) == [B]


def test_a_full_copy_counts_for_every_chunk_and_can_shrink_again() -> None:
    seen = Availability(10, held=0b1)
    assert seen.replace(A, ChunkSet.full(10), near=True) == tuple(range(1, 10))
    assert seen.near_count(7) == 1
    seen.drop(A, [7])
    assert seen.near_count(7) == 0
    assert seen.near_holders(8) == [A]


def test_complete_holdings_replace_what_was_known() -> None:
    seen = Availability(10, held=0)
    seen.add(A, [1, 2], near=True)
    seen.replace(A, holdings(2, 3), near=True)
    assert seen.near_count(1) == 0
    assert seen.near_holders(3) == [A]
    assert seen.count_of(A) == 2


def test_a_forgotten_peer_holds_nothing() -> None:
    seen = Availability(10, held=0)
    seen.add(A, [1], near=True)
    seen.replace(B, ChunkSet.full(10), near=False)
    seen.forget(A)
    seen.forget(B)
    assert (seen.near_count(1), seen.far_count(1), seen.union()) == (0, 0, 0)


def test_a_chunk_that_is_lost_here_finds_its_holders_again() -> None:
    seen = Availability(10, held=0)
    seen.add(A, [1], near=True)
    seen.add(B, [1], near=False)
    seen.stored(1)
    assert seen.near_count(1) == 0
    seen.lost_here(1, {A})
    assert (seen.near_holders(1), seen.far_holders(1)) == ([A], [B])


def test_a_dropped_chunk_is_not_asked_for_there() -> None:
    seen = Availability(10, held=0)
    seen.add(A, [1, 2], near=True)
    seen.drop(A, [1])
    assert seen.lacks(A, 1)
    assert not seen.near_holders(1)
    assert seen.count_of(A) == 1


def test_complete_holdings_and_the_same_said_chunk_by_chunk_are_the_same() -> None:
    rng = Random(11)
    for size in (1, 7, 8, 64, 300):
        held = sum(1 << chunk for chunk in range(size) if rng.random() < 0.3)
        whole, single = Availability(size, held), Availability(size, held)
        for _ in range(20):
            peer = (A, B, C)[int(rng.random() * 3)]
            chunks = [chunk for chunk in range(size) if rng.random() < rng.random()]
            near = peer == A
            news = whole.replace(peer, ChunkSet.of(size, chunks), near=near)
            single.drop(peer, set(range(size)) - set(chunks))
            assert set(single.add(peer, chunks, near=near)) <= set(news)
            assert (whole.bits_of(peer), whole.count_of(peer)) == (single.bits_of(peer), single.count_of(peer))
            for chunk in range(size):
                assert whole.near_count(chunk) == single.near_count(chunk)
                assert whole.far_count(chunk) == single.far_count(chunk)
