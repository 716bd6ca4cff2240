"""Who may ask for what: by place in line, by number of holders, and anyway after a while."""

from __future__ import annotations

from random import Random

from gossipd.core.chunkset import ChunkSet
from gossipd.swarm.availability import Availability
from gossipd.swarm.demand import Demand, IndexedSet
from gossipd.swarm.rendezvous import BUCKETS, bucket_of
from gossipd.swarm.settings import PlannerSettings
from tests.gossipd.swarm.planning import node

SETTINGS = PlannerSettings(spread=2, spread_far=1, import_fallback_s=1.5)


def demand(*, place: int = 0, rack_place: int = 0) -> tuple[Demand, Availability]:
    seen = Availability(100, held=0)
    wants = Demand(seen, SETTINGS)
    wants.want(range(100))
    wants.set_places([place] * BUCKETS, [rack_place] * BUCKETS, 0.0, 1.0)
    return wants, seen


def test_the_first_in_line_imports_at_once_and_others_later() -> None:
    for place, at_once in ((0, True), (1, False)):
        wants, seen = demand(place=place)
        seen.add(node(9), [5], near=False)
        wants.consider(5, 0.0, 1.0)
        assert (5 in wants.imports) is at_once
    wants.take_turns(1.9)
    assert 5 not in wants.imports
    wants.take_turns(2.1)
    assert 5 in wants.imports


def test_nobody_imports_what_the_rack_has_got() -> None:
    wants, seen = demand(place=1)
    seen.add(node(9), [5], near=False)
    wants.consider(5, 0.0, 1.0)
    seen.add(node(1), [5], near=True)
    wants.consider(5, 0.1, 1.0)
    wants.take_turns(10.0)
    assert 5 not in wants.imports
    assert 5 in wants.near


def test_late_racks_import_when_more_racks_have_it() -> None:
    wants, seen = demand(rack_place=1)
    seen.add(node(8), [5], near=False)
    wants.consider(5, 0.0, 1.0)
    assert 5 not in wants.imports
    seen.add(node(9), [5], near=False)
    wants.consider(5, 0.0, 1.0)
    assert 5 in wants.imports


def test_the_line_opens_as_holders_double() -> None:
    wants, seen = demand(place=3)
    seen.add(node(1), [5], near=True)
    wants.consider(5, 0.0, 1.0)
    assert 5 not in wants.near
    seen.add(node(2), [5], near=True)
    wants.consider(5, 0.0, 1.0)
    assert 5 in wants.near


def test_the_last_in_line_asks_anyway_when_its_patience_is_over() -> None:
    wants, seen = demand(place=39)
    seen.add(node(1), [5], near=True)
    wants.consider(5, 0.0, 1.0)
    assert wants.next_turn() == 1.0
    wants.take_turns(1.0)
    assert 5 in wants.near


def test_a_chunk_in_flight_is_in_neither_set() -> None:
    wants, seen = demand()
    seen.add(node(1), [5], near=True)
    wants.consider(5, 0.0, 1.0)
    wants.unwant(5)
    wants.consider(5, 0.0, 1.0)
    assert 5 not in wants.near


def test_an_indexed_set_samples_its_members_only() -> None:
    items = IndexedSet()
    for number in range(50):
        items.add(number)
    for number in range(0, 50, 2):
        items.discard(number)
    assert len(items) == 25
    rng = Random(1)
    for _ in range(20):
        sample = items.sample(12, rng)
        assert len(set(sample)) == 12
        assert all(number % 2 for number in sample)
    assert sorted(items.sample(100, rng)) == list(range(1, 50, 2))


def test_when_duties_move_what_was_heard_of_is_looked_at_again_by_the_new_ones() -> None:
    wants, seen = demand(place=9)
    seen.add(node(9), [5], near=False)
    seen.add(node(1), [6], near=True)
    wants.consider(5, 0.0, 1.0)
    wants.consider(6, 0.0, 1.0)
    assert not len(wants.imports)
    assert not len(wants.near)
    wants.set_places([0] * BUCKETS, [0] * BUCKETS, 0.1, 1.0)
    assert list(wants.imports) == [5]
    assert list(wants.near) == [6]


def test_when_duties_move_a_holder_of_everything_makes_every_wanted_chunk_ready() -> None:
    wants, seen = demand(place=9)
    seen.replace(node(1), ChunkSet.full(100), near=True)
    wants.set_places([1] * BUCKETS, [0] * BUCKETS, 0.1, 1.0)
    assert sorted(wants.near) == list(range(100))


def test_an_import_that_nobody_else_in_the_rack_wants_is_kept_apart() -> None:
    wants, seen = demand()
    seen.add(node(9), [5, 6], near=False)
    lone = [bucket == bucket_of(5) for bucket in range(BUCKETS)]
    wants.set_places([0] * BUCKETS, [0] * BUCKETS, 0.0, 1.0, lone=lone)
    assert (list(wants.own_imports), list(wants.imports), wants.ready_count()) == ([5], [6], 2)
    wants.set_places([0] * BUCKETS, [0] * BUCKETS, 0.0, 1.0)
    assert (list(wants.own_imports), sorted(wants.imports)) == ([], [5, 6]), "another host wants them now"
    wants.unwant(5)
    wants.unwant(6)
    assert wants.ready_count() == 0


def test_rack_peers_of_a_sole_complete_host_import_what_has_left_it() -> None:
    for place, at_once in ((0, True), (3, False)):
        wants, seen = demand(place=place)
        seen.replace(node(1), ChunkSet.full(100), near=True)
        wants.consider(5, 0.0, 1.0)
        assert (5 in wants.near) is at_once, "it sends a chunk of the line's first alone"
        seen.add(node(9), [5], near=False)
        wants.consider(5, 0.0, 1.0)
        assert 5 not in wants.near
        assert (5 in wants.imports) is at_once
        wants.take_turns(16.0)
        assert 5 in wants.near, "who is sent nothing by other racks asks it after all"
        wants.consider(5, 16.0, 1.0)
        seen.add(node(2), [5], near=True)
        wants.consider(5, 17.0, 1.0)
        assert 5 in wants.near and 5 not in wants.imports
