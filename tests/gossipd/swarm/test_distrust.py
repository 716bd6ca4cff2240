"""A peer that sent a bad chunk: what it holds does not count while it is shunned, so that nobody waits for it."""

from __future__ import annotations

from random import Random

import pytest

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import (
    ChunkStored,
    ClaimSeed,
    Command,
    DeltaHeard,
    DeploymentOpened,
    FailReason,
    FetchFailed,
    HoldingsHeard,
    PeerSeen,
    ProbeSource,
    SourceProbed,
    StartFetch,
    StartSourceRead,
)
from gossipd.core.ids import SOURCE
from gossipd.core.model import PeerView, Shape
from gossipd.swarm.planner import Planner
from gossipd.swarm.settings import PlannerSettings
from membership.member import NodeId
from tests.gossipd.swarm.planning import CHUNK_BYTES, DEPLOYMENT, Driven, node, of, opened, view

CHUNKS = 8
OWN, RACK_PEER, FAR = (NodeId(bytes([number]) * 16) for number in (1, 2, 3))
FULL = ChunkSet.full(CHUNKS)


def fetches(commands: list[Command]) -> list[StartFetch]:
    return [command for command in commands if isinstance(command, StartFetch)]


def planner_with_a_full_mate() -> Planner:
    planner = Planner(node=OWN, rack="r1", settings=PlannerSettings(), rng=Random(1), can_read_sources=False)
    planner.handle(PeerSeen(PeerView(RACK_PEER, "r1", "")), 0.0)
    planner.handle(PeerSeen(PeerView(FAR, "r2", "")), 0.0)
    shape = Shape(CHUNKS, 1024, CHUNKS * 1024, 1)
    planner.handle(DeploymentOpened(DEPLOYMENT, shape, ChunkSet(CHUNKS)), 0.0)
    planner.plan(0.0)
    planner.drain()
    for peer in (RACK_PEER, FAR):
        planner.handle(HoldingsHeard(peer, DEPLOYMENT, FULL, 8), 0.1)
    planner.plan(0.1)
    return planner


@pytest.mark.parametrize("then", ["nothing", "holdings", "delta"])
def test_the_rack_of_a_mate_that_lied_is_served_from_another_rack_at_once(then: str) -> None:
    planner = planner_with_a_full_mate()
    first = fetches(planner.drain())
    assert first
    assert {fetch.peer for fetch in first} == {RACK_PEER}
    for fetch in first:
        planner.handle(FetchFailed(DEPLOYMENT, fetch.chunk, RACK_PEER, FailReason.CORRUPT), 0.2)
    if then == "holdings":
        planner.handle(HoldingsHeard(RACK_PEER, DEPLOYMENT, FULL, 8), 0.3)
    elif then == "delta":
        planner.handle(DeltaHeard(RACK_PEER, DEPLOYMENT, tuple(range(CHUNKS)), (), (), 8), 0.3)
    asked: list[StartFetch] = []
    now = 0.4
    while now < 5.0:
        planner.plan(now)
        asked += fetches(planner.drain())
        now += 0.1
    assert asked
    assert {fetch.peer for fetch in asked} == {FAR}


def test_chunks_that_a_mate_claims_and_never_sends_are_read_from_storage() -> None:
    planner = Planner(node=OWN, rack="r1", settings=PlannerSettings(), rng=Random(1))
    planner.handle(PeerSeen(PeerView(RACK_PEER, "r1", "")), 0.0)
    planner.handle(DeploymentOpened(DEPLOYMENT, Shape(CHUNKS, 1024, CHUNKS * 1024, 1), ChunkSet(CHUNKS)), 0.0)
    read: set[int] = set()
    now = 0.0
    while now < 60.0:
        planner.handle(HoldingsHeard(RACK_PEER, DEPLOYMENT, FULL, 8), now)
        planner.plan(now)
        for command in planner.drain():
            if isinstance(command, StartFetch):
                planner.handle(FetchFailed(DEPLOYMENT, command.chunk, RACK_PEER, FailReason.SLOW), now + 0.1)
            elif isinstance(command, ProbeSource):
                planner.handle(SourceProbed(DEPLOYMENT, True), now + 0.1)
            elif isinstance(command, ClaimSeed):
                planner.handle(PeerSeen(PeerView(OWN, "r1", "", True, command.term)), now + 0.1)
            elif isinstance(command, StartSourceRead):
                read.update(command.chunks)
        now += 0.5
    assert read


@pytest.mark.parametrize(
    ("good", "bad_s", "is_left"), [(1, [0.25, 0.5], True), (1, [0.25, 4.0], False), (0, [0.25, 0.5], False)]
)
def test_what_a_reader_with_a_rotten_chunk_reads_is_left_to_it_until_it_sends_another(
    good: int, bad_s: list[float], *, is_left: bool
) -> None:
    seed, reader, claimed = Driven(), node(1), tuple(range(3, 11))
    seed.meet(view(1, "b", term=1))
    seed.wait(6.0)
    seed.meet(view(0, term=1))
    seed.tell(opened(64))
    seed.planner.handle(HoldingsHeard(reader, DEPLOYMENT, ChunkSet.of(64, (0, 1, 2)), 8), seed.now)
    seed.planner.handle(DeltaHeard(reader, DEPLOYMENT, (), (), claimed, 8), seed.now)
    seed.planner.handle(SourceProbed(DEPLOYMENT, True), seed.now)
    read: set[int] = set()
    for step in range(round(20 * bad_s[-1]) + 36):
        if step / 20 in bad_s:
            bad = bad_s.index(step / 20)
            seed.planner.handle(FetchFailed(DEPLOYMENT, bad, reader, FailReason.CORRUPT), seed.now)
        commands = seed.tell(after=0.05)
        if good and not step:
            assert 2 in [fetch.chunk for fetch in of(StartFetch, commands)]
            seed.planner.handle(ChunkStored(DEPLOYMENT, 2, reader, CHUNK_BYTES, 0.05), seed.now)
        for command in commands:
            if isinstance(command, StartSourceRead):
                read.update(command.chunks)
                for chunk in command.chunks:
                    seed.planner.handle(ChunkStored(DEPLOYMENT, chunk, SOURCE, 1 << 20, 0.2), seed.now)
    assert len(read) > 8
    assert read.isdisjoint(claimed) is is_left
