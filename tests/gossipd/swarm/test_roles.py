"""Who does what follows from the view alone, the same on every host."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from gossipd.core.model import PeerView, Shape
from gossipd.core.targets import EVERY_HOST, Targets
from gossipd.swarm.peers import Peers
from gossipd.swarm.roles import Roles, _Drawn, _Rack
from gossipd.swarm.settings import PlannerSettings
from membership.member import NodeId
from tests.gossipd.swarm.planning import SETTINGS, node, view


def roles_of(
    own: PeerView,
    views: Sequence[PeerView],
    *,
    targets: Targets = EVERY_HOST,
    seeds: Sequence[int] = (),
    slow: Sequence[int] = (),
    behind: Sequence[int] = (),
    unreachable: Sequence[int] = (),
    settings: PlannerSettings = SETTINGS,
    extent_chunks: int = 1,
    has_sources: bool = True,
) -> Roles:
    peers = Peers(settings, Random(1))
    for one in views:
        if one.node != own.node:
            peers.seen(one)
    for number in unreachable:
        peers.reached(node(number), False)
    roles = Roles(own, targets, b"salt", settings, shape=Shape(8, 1024, 8192, extent_chunks, has_sources))
    slow_nodes = frozenset(node(number) for number in slow)
    seed_nodes, late = frozenset(node(number) for number in seeds), frozenset(node(number) for number in behind)
    assert roles.refresh(own, peers, slow_nodes, seed_nodes, 0.0, behind=late)
    assert not roles.refresh(own, peers, slow_nodes, seed_nodes, 1.0, behind=late)
    return roles


def cluster(racks: int, per_rack: int) -> list[PeerView]:
    return [
        view(rack * per_rack + at, f"rack-{rack}", name=f"h{at}") for rack in range(racks) for at in range(per_rack)
    ]


def test_made_up_members_that_do_not_answer_stand_between_no_neighbours() -> None:
    own, *others = cluster(2, 4)
    peers = Peers(SETTINGS, Random(1), own.node, own.rack)
    for one in others:
        peers.seen(one)
    made_up = [view(1000 + number, f"rack-{number % 2}") for number in range(200)]
    for one in made_up:
        peers.seen(one, has_answered=False)
    roles = Roles(own, EVERY_HOST, b"salt", SETTINGS, shape=Shape(8, 1024, 8192, 1, True))
    roles.refresh(own, peers, frozenset(), frozenset(), 0.0)
    assert not roles.neighbours >= {one.node for one in others}, "any of them may be a host"
    for one in made_up:
        peers.reached(one.node, False)
    assert roles.refresh(own, peers, frozenset(), frozenset(), 1.0)
    assert roles.neighbours == {one.node for one in others}
    assert roles.rack_peers == {one.node for one in others if one.rack == own.rack}
    assert set(roles.racks) == {"rack-0", "rack-1"}
    peers.seen(made_up[0], has_answered=True)
    peers.reached(made_up[0].node, True)
    assert roles.refresh(own, peers, frozenset(), frozenset(), 2.0)
    assert made_up[0].node in roles.neighbours


def test_a_rack_from_which_nobody_has_spoken_is_in_no_role() -> None:
    own, *others = cluster(3, 4)
    peers = Peers(SETTINGS, Random(1), own.node, own.rack)
    for one in others:
        peers.seen(one, has_answered=one.rack == "rack-1" and one.name == "h1")
    roles = Roles(own, EVERY_HOST, b"salt", SETTINGS, shape=Shape(8, 1024, 8192, 1, True))
    roles.refresh(own, peers, frozenset(), frozenset(), 0.0)
    assert set(roles.racks) == {"rack-0", "rack-1"}, "its own, and one with a host that spoke"
    assert len(roles.neighbours) == 7
    peers.seen(others[-1], has_answered=True)
    assert roles.refresh(own, peers, frozenset(), frozenset(), 1.0)
    assert roles.neighbours == {one.node for one in others}


def test_all_hosts_name_the_same_importer() -> None:
    views = cluster(3, 4)
    for bucket in (0, 17, 255):
        named = {roles_of(own, views).first_in_line("rack-1", bucket) for own in views}
        assert len(named) == 1


def test_nobody_reads_what_no_storage_has() -> None:
    views = cluster(3, 4)
    roles = roles_of(views[0], views, seeds=[0, 4, 8], has_sources=False)
    assert roles.readers == ()
    assert roles.reader_lines == ((),) * 256
    assert 0 in roles.places, "a seed that reads nothing imports as its rack peers do"


def test_a_seed_reads_and_does_not_import() -> None:
    views = cluster(3, 4)
    roles = roles_of(views[0], views, seeds=[0, 4, 8])
    assert roles.readers == tuple(sorted(node(number) for number in (0, 4, 8)))
    firsts = {roles.first_in_line("rack-1", bucket) for bucket in range(256)}
    assert node(4) not in firsts
    assert len(firsts) == 3


def test_a_seed_that_cannot_be_reached_loses_its_share_at_once() -> None:
    views = cluster(3, 4)
    assert node(4) not in roles_of(views[0], views, seeds=[0, 4, 8], unreachable=[4]).readers


def test_a_host_that_lags_has_no_duties() -> None:
    views = cluster(2, 4)
    roles = roles_of(views[0], views, seeds=[0, 4], slow=[4, 5])
    assert roles.readers == (node(0),)
    assert {roles.first_in_line("rack-1", bucket) for bucket in range(256)} == {node(6), node(7)}


def test_hosts_of_slower_links_stand_behind_all_others_for_imports_and_for_reads() -> None:
    views = cluster(2, 4)
    roles = roles_of(views[0], views, seeds=[0, 4], behind=[4, 5])
    assert set(roles.reader_lines) == {(node(0), node(4))}
    assert {roles.first_in_line("rack-1", bucket) for bucket in range(256)} == {node(6), node(7)}
    own_places = roles_of(views[5], views, seeds=[0, 4], behind=[4, 5]).places
    assert min(own_places) >= 2, "they take over where the quicker ones fail"


def test_where_all_links_of_a_rack_are_slow_its_hosts_share_the_imports_as_before() -> None:
    views = cluster(2, 4)
    before, now = (roles_of(views[0], views, seeds=[0], behind=late) for late in ([], [4, 5, 6, 7]))
    for bucket in range(256):
        assert now.first_in_line("rack-1", bucket) == before.first_in_line("rack-1", bucket)


def test_hosts_outside_the_targets_do_nothing_and_are_no_neighbours() -> None:
    views = cluster(2, 4)
    roles = roles_of(views[0], views, seeds=[0, 4], targets=Targets(names=("h0", "h1")))
    assert roles.neighbours == {node(number) for number in (1, 4, 5)}
    assert {roles.first_in_line("rack-1", bucket) for bucket in range(256)} == {node(5)}, "node 4 reads"


def test_without_any_claim_one_host_reads() -> None:
    views = cluster(2, 4)
    assert len({roles_of(own, views).readers for own in views}) == 1
    assert len(roles_of(views[0], views).readers) == 1


def test_neighbours_are_mutual_and_few_in_a_large_cluster() -> None:
    views = cluster(12, 8)
    for seeds in ((), range(0, 96, 8)):
        assert_neighbours_are_mutual_and_few(views, seeds)


def assert_neighbours_are_mutual_and_few(views: Sequence[PeerView], seeds: Sequence[int]) -> None:
    everyone = {own.node: roles_of(own, views, seeds=seeds).neighbours for own in views}
    readers = roles_of(views[0], views, seeds=seeds).readers
    for own, neighbours in everyone.items():
        assert own not in neighbours
        far = SETTINGS.subscribers_max - SETTINGS.rack_peers_max if own in readers else SETTINGS.far_neighbours_max
        assert len(neighbours) <= SETTINGS.rack_peers_max + far
        for other in neighbours:
            assert own in everyone[other]


def test_a_rack_larger_than_the_limit_is_a_ring() -> None:
    views = cluster(1, 100)
    everyone: dict[NodeId, set[NodeId]] = {own.node: roles_of(own, views).neighbours for own in views}
    assert all(len(neighbours) <= SETTINGS.rack_peers_max + 1 for neighbours in everyone.values())
    assert all(own in everyone[other] for own, neighbours in everyone.items() for other in neighbours)


def test_there_are_no_more_readers_than_can_hear_of_each_other_and_all_hosts_name_the_same() -> None:
    views = cluster(100, 2)
    seeds = range(0, 200, 2)
    readers = roles_of(views[0], views, seeds=seeds).readers
    assert len(readers) == SETTINGS.far_neighbours_max + 1
    assert roles_of(views[77], views, seeds=seeds).readers == readers
    one = next(own for own in views if own.node in readers)
    assert set(readers) - {one.node} <= roles_of(one, views, seeds=seeds).neighbours


def test_in_a_large_cluster_a_reader_is_first_in_its_racks_line_for_what_it_reads_and_for_nothing_else() -> None:
    views = cluster(10, 6)
    seeds = range(0, 60, 6)
    roles = roles_of(views[0], views, seeds=seeds)
    for bucket, (reader, *_) in enumerate(roles.reader_lines):
        rack = roles.rack_of[reader]
        assert roles.first_in_line(rack, bucket) == reader
        assert roles.first_in_line("rack-1" if rack != "rack-1" else "rack-2", bucket) not in roles.readers
    assert {line[0] for line in roles.reader_lines} == set(roles.readers)
    for own in views:
        assert roles_of(own, views, seeds=seeds).reader_lines == roles.reader_lines


def test_where_extents_are_of_many_chunks_or_hosts_are_few_a_reader_is_in_the_middle_of_every_line() -> None:
    for racks, extent_chunks in ((10, 4), (4, 1)):
        views = cluster(racks, 6)
        seeds = range(0, racks * 6, 6)
        roles = roles_of(views[0], views, seeds=seeds, extent_chunks=extent_chunks)
        assert roles.places == [2] * 256


def test_the_only_mate_of_a_reader_imports_everything() -> None:
    views = cluster(4, 2)
    roles = [roles_of(own, views, seeds=range(0, 8, 2)) for own in views[:2]]
    assert [one.places for one in roles] == [[1] * 256, [0] * 256]


def test_lines_that_were_drawn_are_kept_up_to_a_bound_and_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossipd.swarm.roles._PLACES_MAX", 2 * 8 * 4)
    drawn = _Drawn(_Rack.lines, is_whole=True)
    racks = [_Rack(tuple(node(rack * 8 + at) for at in range(4)), (), (), 8, b"salt") for rack in range(3)]
    first, second = (drawn.of(rack) for rack in racks[:2])
    assert drawn.of(racks[0]) is first
    drawn.of(racks[2])
    assert drawn.of(racks[0]) is first, "used later than the second"
    again = drawn.of(racks[1])
    assert again == second


@pytest.mark.parametrize("readers", [(), (3,), (3, 5)])
@pytest.mark.parametrize("behind", [(), (2, 3), tuple(range(1, 8))])
@pytest.mark.parametrize("members", [1, 2, 7])
def test_other_racks_know_the_firsts_that_a_rack_itself_has(
    members: int, behind: tuple[int, ...], readers: tuple[int, ...]
) -> None:
    here = tuple(sorted(node(number) for number in range(1, members + 1)))
    reading = tuple(one for one in here if one in {node(number) for number in readers})
    heads = tuple((bucket, reader) for bucket, reader in zip((1, 6, 30), reading, strict=False))
    late = frozenset(node(number) for number in behind).intersection(here)
    for folds in (32, 256):
        rack = _Rack(here, reading, heads, folds, b"salt", late)
        assert rack.firsts() == tuple(line[0] for line in rack.lines())


def test_hosts_that_disagree_about_one_slow_host_agree_about_all_others() -> None:
    here = tuple(sorted(node(number) for number in range(1, 42)))
    late = here[7]
    before, after = (_Rack(here, (), (), 256, b"salt", behind) for behind in (frozenset[NodeId](), frozenset([late])))
    for line, other in zip(before.lines(), after.lines(), strict=True):
        assert other == (*(one for one in line if one != late), late)


class CountedPeers(Peers):
    """``looks``: how often all members were looked at."""

    looks = 0

    def members(self, *, heard: bool = False) -> list[PeerView]:
        self.looks += 1
        return super().members(heard=heard)


def test_records_that_did_not_change_are_not_read_again() -> None:
    own, *others = cluster(3, 4)
    peers = CountedPeers(SETTINGS, Random(1), own.node)
    for one in others:
        peers.seen(one)
    roles = Roles(own, EVERY_HOST, b"salt", SETTINGS, shape=Shape(8, 1024, 8192, 1))
    assert roles.refresh(own, peers, frozenset(), frozenset(), 0.0)
    peers.reached(others[-1].node, False)
    assert roles.refresh(own, peers, frozenset(), frozenset(), 1.0)
    assert others[-1].node not in roles.racks["rack-2"]
    assert peers.looks == 1
    peers.seen(view(12, "rack-2"))
    assert roles.refresh(own, peers, frozenset(), frozenset(), 2.0)
    assert node(12) in roles.racks["rack-2"]
    assert peers.looks == 2
