"""Which deployments the planner looks at, and that the others miss nothing by it."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import (
    ChunkLost,
    ChunkStored,
    Command,
    DeploymentClosed,
    FinishModel,
    HoldingsHeard,
    MembersSeen,
    PeerLost,
    PeerReachable,
    PeerSeen,
    PeerWantHeard,
    ProbeSource,
    SendHoldings,
    StartSourceRead,
    StartSubscription,
    SubscribeHeard,
    UnsubscribeHeard,
)
from gossipd.core.ids import SOURCE, DeploymentId
from gossipd.swarm.deployment_swarm import DeploymentSwarm
from gossipd.swarm.maintenance import refresh_roles
from gossipd.swarm.surroundings import Surroundings
from tests.gossipd.swarm.planning import CHUNK_BYTES, DEPLOYMENT, Driven, node, of, opened, seed_alone, view

A, B = node(1), node(2)
HELD = tuple(range(8))


@pytest.fixture
def refreshed(monkeypatch: pytest.MonkeyPatch) -> Counter[DeploymentId]:
    """How often the roles of each deployment were looked at."""
    counts: Counter[DeploymentId] = Counter()

    def refresh(swarm: DeploymentSwarm, around: Surroundings, now: float) -> bool:
        counts[swarm.deployment] += 1
        return refresh_roles(swarm, around, now)

    monkeypatch.setattr("gossipd.swarm.planner.refresh_roles", refresh)
    return counts


def at_rest() -> Driven:
    """A planner with one deployment that was completed with the help of A, and is at rest."""
    driven = Driven()
    driven.meet(view(1), view(2))
    driven.tell(opened(8, held=HELD[1:]), HoldingsHeard(A, DEPLOYMENT, ChunkSet.full(8), 4))
    driven.tell(PeerSeen(view(3)), after=1.0)
    driven.tell(ChunkStored(DEPLOYMENT, 0, A, CHUNK_BYTES, 0.1))
    driven.wait(8.0)
    assert not driven.planner._deployments.busy
    return driven


def test_a_hundred_complete_models_cost_a_tick_nothing(refreshed: Counter[DeploymentId]) -> None:
    driven = Driven()
    driven.meet(view(1), view(2))
    ids = [DeploymentId(bytes([number]) * 32) for number in range(100)]
    commands = driven.tell(*[replace(opened(8, held=HELD), deployment=one) for one in ids])
    assert [one.deployment for one in of(FinishModel, commands)] == ids
    for number in range(3, 9):
        driven.tell(PeerSeen(view(number)), after=1.0)
    assert not refreshed
    assert not driven.planner._deployments.busy
    assert len(driven.planner.statistics().swarms) == 100


def test_a_peer_that_asks_for_a_model_at_rest_is_answered() -> None:
    driven = at_rest()
    answered = driven.tell(SubscribeHeard(B, DEPLOYMENT))
    assert [(one.peer, one.chunks) for one in of(SendHoldings, answered)] == [(B, ChunkSet.full(8))]
    driven.wait(20.0)
    assert driven.planner._deployments.busy, "B listens"
    driven.tell(UnsubscribeHeard(B, DEPLOYMENT))
    driven.wait(8.0)
    assert not driven.planner._deployments.busy


def test_a_peer_is_answered_though_no_roles_were_ever_computed(refreshed: Counter[DeploymentId]) -> None:
    driven = Driven()
    driven.meet(view(1), view(2))
    driven.tell(opened(8, held=HELD))
    driven.wait(10.0)
    assert not refreshed
    assert of(SendHoldings, driven.tell(SubscribeHeard(B, DEPLOYMENT)) + driven.wait(1.0))
    assert driven.swarm().roles.rack_peers == {A, B}


def test_a_rotten_chunk_of_a_model_at_rest_is_wanted_again() -> None:
    driven = at_rest()
    commands: list[Command] = driven.tell(ChunkLost(DEPLOYMENT, 3))
    commands += driven.wait(1.0)
    assert {one.peer for one in of(StartSubscription, commands)} == {A, B, node(3)}
    assert list(driven.swarm().replica.missing()) == [3]


@pytest.mark.parametrize("goes", [True, False])
def test_who_has_gone_during_the_rest_holds_nothing_afterwards(goes: bool) -> None:
    driven = at_rest()
    if goes:
        driven.tell(PeerLost(A))
    driven.tell(ChunkLost(DEPLOYMENT, 3))
    assert (A in driven.swarm().availability.counts) is not goes
    assert bool(driven.swarm().reader.present[3]) is not goes, "else nobody reads it from storage"


@pytest.mark.parametrize("goes", [PeerLost(A), PeerReachable(A, False), MembersSeen({B: view(2)})])
def test_who_came_back_during_the_rest_may_be_empty(goes: PeerLost | PeerReachable | MembersSeen) -> None:
    driven = at_rest()
    driven.tell(goes)
    driven.tell(*([PeerReachable(A, True)] if isinstance(goes, PeerReachable) else [PeerSeen(view(1))]), after=5.0)
    driven.tell(ChunkLost(DEPLOYMENT, 3))
    assert A not in driven.swarm().availability.counts
    assert not driven.swarm().reader.present[3]


def test_who_is_gone_before_the_rest_and_then_met_holds_what_it_says() -> None:
    driven = at_rest()
    driven.tell(PeerLost(B), PeerSeen(view(2)), HoldingsHeard(B, DEPLOYMENT, ChunkSet.full(8), 4))
    driven.wait(8.0)
    assert not driven.planner._deployments.busy
    driven.tell(ChunkLost(DEPLOYMENT, 3))
    assert driven.swarm().availability.counts.keys() == {A, B}


def test_a_rest_is_no_time_in_which_no_reader_brought_anything() -> None:
    """A seed lives; it was not heard to hold the chunk, as this host was complete first."""
    driven = Driven()
    driven.meet(view(1, term=1), view(2))
    driven.wait(5.0)
    driven.tell(opened(8, held=HELD[1:]), HoldingsHeard(A, DEPLOYMENT, ChunkSet.of(8, (0, 1)), 4))
    driven.tell(ChunkStored(DEPLOYMENT, 0, A, CHUNK_BYTES, 0.1))
    driven.wait(3600.0)
    assert not driven.planner._deployments.busy
    commands: list[Command] = driven.tell(ChunkLost(DEPLOYMENT, 3)) + driven.wait(5.0)
    assert not of(ProbeSource, commands)
    assert not driven.swarm().stand_in.is_active


def test_nothing_is_decided_with_roles_of_before_the_rest() -> None:
    driven = seed_alone(8)
    driven.tell(*[ChunkStored(DEPLOYMENT, chunk, SOURCE, CHUNK_BYTES, 0.1) for chunk in range(8)])
    driven.wait(8.0)
    driven.planner.set_own(can_read_sources=False)
    driven.tell(replace(opened(8), deployment=DeploymentId(b"o" * 32)))  # another one is under way: no tick is forced
    driven.wait(2.0)
    assert [one.deployment for one in driven.planner._deployments.busy] == [DeploymentId(b"o" * 32)]
    assert not of(StartSourceRead, driven.tell(ChunkLost(DEPLOYMENT, 3), after=0.05))


def test_nor_while_the_look_at_its_roles_is_postponed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossipd.swarm.planner._UPKEEP_HOSTS", 1)
    driven = seed_alone(8)
    driven.tell(*[ChunkStored(DEPLOYMENT, chunk, SOURCE, CHUNK_BYTES, 0.1) for chunk in range(8)])
    driven.wait(8.0)
    driven.planner.set_own(can_read_sources=False)
    another = replace(opened(8), deployment=DeploymentId(b"o" * 32), priority=9)  # has its first look before
    assert not of(StartSourceRead, driven.tell(another, ChunkLost(DEPLOYMENT, 3)))


@pytest.mark.parametrize("members", [10, 1000])
def test_a_question_is_answered_at_once_though_roles_are_postponed(members: int) -> None:
    driven = Driven()
    driven.meet(*[view(number, f"r{number // 20}") for number in range(1, members)])
    ids = [DeploymentId(bytes([number]) * 32) for number in range(60)]
    driven.tell(*[replace(opened(8, held=HELD), deployment=one) for one in ids])
    driven.wait(10.0)
    driven.tell(replace(opened(8), deployment=DeploymentId(b"z" * 32)))  # one is under way
    driven.wait(2.0)
    assert len(of(SendHoldings, driven.tell(*[SubscribeHeard(A, one) for one in ids], after=0.01))) == 60


def test_of_parts_the_copies_of_who_goes_count_no_longer_at_once() -> None:
    driven = Driven()
    driven.meet(view(1), view(2))
    wanted = ChunkSet.of(8, range(4))
    driven.tell(replace(opened(8, held=(0, 1, 2, 3)), wanted=wanted))
    driven.tell(PeerWantHeard(A, DEPLOYMENT, ChunkSet.of(8, range(4, 8))))
    driven.tell(HoldingsHeard(A, DEPLOYMENT, ChunkSet.of(8, range(4, 8)), 4))
    driven.wait(8.0)
    assert not driven.planner._deployments.busy
    assert driven.planner.statistics().swarms[DEPLOYMENT].one_copy
    driven.tell(PeerLost(A))
    assert not driven.planner.statistics().swarms[DEPLOYMENT].one_copy


def test_each_of_many_deployments_has_roles_though_each_tick_is_late(
    monkeypatch: pytest.MonkeyPatch, refreshed: Counter[DeploymentId]
) -> None:
    monkeypatch.setattr("gossipd.swarm.planner._UPKEEP_HOSTS", 1)
    driven = Driven()
    driven.meet(view(1), view(2))
    ids = [DeploymentId(bytes([number]) * 32) for number in range(12)]
    driven.tell(*[replace(opened(8), deployment=one) for one in ids])
    for number in range(3, 26):
        driven.tell(PeerSeen(view(number)), after=0.6)  # longer than roles are kept
    assert set(refreshed) == set(ids)
    assert max(refreshed.values()) - min(refreshed.values()) <= 1


def test_a_model_at_rest_is_closed_like_any_other() -> None:
    driven = at_rest()
    driven.tell(DeploymentClosed(DEPLOYMENT))
    assert DEPLOYMENT not in driven.planner._deployments
    assert not of(SendHoldings, driven.tell(SubscribeHeard(B, DEPLOYMENT)) + driven.wait(1.0))
