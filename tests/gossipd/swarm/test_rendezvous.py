"""The same view gives the same answer everywhere; a changed view moves little; shares are even."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from gossipd.swarm.rendezvous import BUCKETS, bucket_lines, bucket_of, rack_lines, reading_order
from tests.gossipd.swarm.planning import node

MEMBERS = tuple(sorted(node(number) for number in range(1, 26)))


def test_every_member_stands_in_every_line_once() -> None:
    for line in bucket_lines(MEMBERS, b"salt"):
        assert sorted(line) == list(MEMBERS)


def test_first_places_are_shared_evenly() -> None:
    firsts = Counter(line[0] for line in bucket_lines(MEMBERS, b"salt"))
    assert max(firsts.values()) <= -(-BUCKETS // len(MEMBERS))


def test_another_deployment_shares_them_out_differently() -> None:
    assert bucket_lines(MEMBERS, b"one") != bucket_lines(MEMBERS, b"two")


def test_a_member_that_leaves_moves_few_other_first_places() -> None:
    before = bucket_lines(MEMBERS, b"salt")
    gone = MEMBERS[3]
    after = bucket_lines(tuple(member for member in MEMBERS if member != gone), b"salt")
    moved = sum(1 for old, new in zip(before, after, strict=True) if old[0] not in (gone, new[0]))
    assert moved <= BUCKETS // 10


def test_an_empty_view_has_empty_lines() -> None:
    assert bucket_lines((), b"salt") == ((),) * BUCKETS


def test_adjacent_chunks_fall_into_different_buckets_and_all_are_used() -> None:
    buckets = [bucket_of(chunk) for chunk in range(30_000)]
    assert all(one != other for one, other in pairwise(buckets))
    counts = Counter(buckets)
    assert len(counts) == BUCKETS
    assert max(counts.values()) < 1.2 * min(counts.values())


def test_the_reading_order_is_a_permutation_that_does_not_follow_the_file() -> None:
    order = reading_order(1_000, b"salt", 1)
    assert sorted(order) == list(range(1_000))
    assert order == reading_order(1_000, b"salt", 1)
    assert sum(1 for one, other in pairwise(order) if other == one + 1) < 20


def test_the_reading_order_takes_one_extent_of_each_bucket_before_the_next_of_any() -> None:
    for extent_chunks in (1, 4):
        order = reading_order(2_000, b"salt", extent_chunks)
        buckets = [bucket_of(extent * extent_chunks) for extent in order]
        used = len(set(buckets))
        assert len(set(buckets[:used])) == used


def test_racks_stand_in_a_line_for_each_bucket() -> None:
    lines = rack_lines(("a", "b", "c"), b"salt")
    assert {line[0] for line in lines} == {"a", "b", "c"}
    assert all(sorted(line) == ["a", "b", "c"] for line in lines)
