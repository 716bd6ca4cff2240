"""A peer that sent a bad chunk: what it holds does not count while it is shunned, so that nobody waits for it."""

from __future__ import annotations

from random import Random

import pytest

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import (
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
from gossipd.core.ids import DeploymentId
from gossipd.core.model import PeerView, Shape
from gossipd.swarm.planner import Planner
from gossipd.swarm.settings import PlannerSettings
from membership.member import NodeId

DEPLOYMENT = DeploymentId(bytes(32))
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
