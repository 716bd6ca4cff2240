"""Duties follow wants: who reads, imports and asks for a chunk is one that wants it."""

from __future__ import annotations

from dataclasses import replace as replace_scenario
from functools import cache

from msgspec.structs import replace

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import (
    ChunkStored,
    FinishModel,
    HoldingsHeard,
    PeerWantHeard,
    SourceProbed,
    StartFetch,
    StartSourceRead,
)
from gossipd.core.ids import SOURCE
from gossipd.sim.scenario import Kill, Scenario, Slowdown
from gossipd.sim.world import World
from gossipd.swarm.class_roles import extents_of
from tests.gossipd.swarm.planning import CHUNK_BYTES, DEPLOYMENT, Driven, node, opened, view

RATE = 12_500_000.0
SCENARIO = Scenario(hosts=8, racks=2, size=64 << 18, chunks=64, link=RATE, external=RATE)
COMMON, SIZE = range(16), 64


@cache
def played(copies: int = 2) -> World:
    """Hosts of four ranks: all want the common chunks, each rank its own; chunk 63 is wanted by nobody."""
    ranks = SCENARIO.hosts // copies
    share = (SIZE - 1 - len(COMMON)) // ranks
    wants = [
        ChunkSet.of(SIZE, [*COMMON, *range(16 + share * (at % ranks), 16 + share * (at % ranks + 1))])
        for at in range(SCENARIO.hosts)
    ]
    world = World(SCENARIO, wants=wants)
    world.run(limit_s=600)
    for host, want in zip(world.hosts, wants, strict=True):
        assert host.done_s is not None and host.held == want.bits
    union = ChunkSet(SIZE)
    for want in wants:
        union |= want
    assert world.external_chunks <= len(union) + 1
    return world


def test_every_host_gets_its_part_and_no_more_and_storage_sends_each_chunk_once() -> None:
    assert played().external_chunks == 60


def test_where_all_want_all_everything_goes_as_without_wants() -> None:
    for seed in range(1, 21):
        worlds = [
            World(replace_scenario(SCENARIO, rng=seed), wants=wants, keep_arrivals=True)
            for wants in (None, [ChunkSet.full(SIZE)] * SCENARIO.hosts)
        ]
        for world in worlds:
            world.run(limit_s=600)
        assert worlds[0].arrivals == worlds[1].arrivals


def test_what_is_lost_with_the_last_host_of_a_class_is_read_once_more() -> None:
    """Hosts 0 and 4 alone want chunks 16 to 26; host 0 dies when half of all is delivered, and host 4 is slow."""
    wants = [ChunkSet.of(SIZE, [*COMMON, *range(16 + 11 * (at % 4), 27 + 11 * (at % 4))]) for at in range(8)]
    scenario = replace_scenario(SCENARIO, kills=(Kill(0.5, host=0),), slowdowns=(Slowdown(0.1, host=4),))
    for seed in (1, 3):
        world = World(replace_scenario(scenario, rng=seed), wants=wants, keep_arrivals=True)
        world.run(limit_s=600)
        died_s = world.hosts[0].died_s
        assert died_s is not None and world.arrivals is not None
        assert all(host.done_s is not None and host.held == wants[host.index].bits for host in world.hosts[1:])
        here = {chunk for when, host, chunk in world.arrivals if host == 0 and when <= died_s}
        elsewhere = {chunk for when, host, chunk in world.arrivals if host != 0 and when <= died_s}
        lost = here - elsewhere
        assert lost and 60 < world.external_chunks <= 60 + len(lost)


def test_a_rack_gets_no_chunk_that_nobody_there_wants() -> None:
    world = played(copies=1)
    assert all(count <= 16 + 4 * 5 for count in world.entered)


def test_a_reader_reads_what_it_wants_and_leaves_the_rest_to_those_who_want_it() -> None:
    driven = Driven()
    driven.meet(view(1), view(2))
    driven.wait(6.0)
    wanted = ChunkSet.of(8, range(4))
    commands = driven.tell(replace(opened(8), wanted=wanted), SourceProbed(DEPLOYMENT, True))
    commands += driven.tell(*[PeerWantHeard(node(n), DEPLOYMENT, ChunkSet.of(8, range(4, 8))) for n in (1, 2)])
    read: list[int] = []
    for _ in range(40):
        for one in commands:
            if isinstance(one, StartSourceRead):
                read += one.chunks
                driven.planner.handle(ChunkStored(DEPLOYMENT, one.chunks[0], SOURCE, CHUNK_BYTES, 0.1), driven.now)
        commands = driven.wait(1.0)
    assert sorted(set(read)) == [0, 1, 2, 3]


def test_a_host_is_done_when_it_holds_what_it_wants_and_asks_for_nothing_else() -> None:
    driven = Driven()
    driven.meet(view(1))
    driven.tell(replace(opened(8, held=(7,)), wanted=ChunkSet.of(8, [2, 3])))
    driven.tell(HoldingsHeard(node(1), DEPLOYMENT, ChunkSet.full(8), 4))
    asked = {one.chunk for one in driven.wait(3.0) if isinstance(one, StartFetch)}
    assert asked <= {2, 3}
    for chunk in (2, 3):
        commands = driven.tell(ChunkStored(DEPLOYMENT, chunk, node(1), CHUNK_BYTES, 0.1))
    assert FinishModel(DEPLOYMENT) in commands


def test_extents_are_cut_where_the_class_changes() -> None:
    classes = [1, 1, 2, 0, 0, 2, 2, 1]
    assert extents_of(classes, [range(4, 8), range(4)]) == [range(5, 7), range(7, 8), range(2), range(2, 3)]
