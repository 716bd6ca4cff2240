"""One deployment's record: counters that never fall, rates that calm down, and why it does not go on."""

from __future__ import annotations

import pytest

from gossipd.core.events import StallReason
from gossipd.core.ids import LOCAL, SOURCE, DeploymentId
from gossipd.daemon.deployment import Deployment, SmoothedRate
from gossipd.deployment.progress import HostReason, HostState
from gossipd.deployment.statement import Verb, sign_statement
from gossipd.identity.keys import SecretKey
from membership.member import NodeId

PEER = NodeId(b"p" * 16)


@pytest.fixture
def deployment() -> Deployment:
    identity = DeploymentId(b"d" * 32)
    statement = sign_statement(
        SecretKey(b"k" * 32), identity, epoch=1, verb=Verb.DEPLOY, manifest_bytes=100, now_s=1_000_000
    )
    return Deployment(identity, statement, started_s=1_000_000)


async def test_bytes_are_counted_by_where_they_came_from(deployment: Deployment) -> None:
    counters = deployment.counters
    counters.add(SOURCE, 1, same_rack=False)
    counters.add(PEER, 10, same_rack=True)
    counters.add(PEER, 100, same_rack=False)
    counters.add(LOCAL, 1000, same_rack=False)
    found = (counters.source_bytes, counters.peer_bytes_same_rack, counters.peer_bytes_cross_rack)
    assert found == (1, 10, 100), "a copy from another version here was moved by nobody"


async def test_a_restart_goes_on_counting_where_the_last_run_left_off(deployment: Deployment) -> None:
    deployment.counters.add(SOURCE, 256 * 1024, same_rack=False)
    deployment.take_figures(512 * 1024, 3)
    said = deployment.progress(1_000_010)
    again = Deployment(deployment.id, deployment.statement)
    again.restore(said)
    again.base.duplicate_bytes, again.base.corrupt_chunks = 512 * 1024, 3
    again.take_figures(0, 1)
    assert again.progress(1_000_020).source_bytes == 256 * 1024
    assert again.progress(1_000_020).duplicate_bytes == 512 * 1024
    assert again.progress(1_000_020).corrupt_chunks == 4
    assert again.progress(1_000_020).started_s == 1_000_000


async def test_the_time_that_it_took_is_fixed_when_it_ends(deployment: Deployment) -> None:
    deployment.enter(HostState.COMPLETE)
    assert deployment.progress(1_000_030).elapsed_s == 30
    assert deployment.progress(1_000_900).elapsed_s == 30


@pytest.mark.parametrize(
    ("stall", "trouble", "shown"),
    [
        (None, HostReason.SOURCE_AUTH, HostReason.NONE),
        (StallReason.STORAGE, HostReason.SOURCE_AUTH, HostReason.SOURCE_AUTH),
        (StallReason.NO_HOLDER, HostReason.SOURCE_NOT_FOUND, HostReason.SOURCE_NOT_FOUND),
        (StallReason.DISK, HostReason.SOURCE_AUTH, HostReason.DISK),
        (StallReason.ALL_BUSY, HostReason.NONE, HostReason.ALL_BUSY),
    ],
)
async def test_a_stall_is_explained_by_what_is_nearest_to_its_cause(
    deployment: Deployment, stall: StallReason | None, trouble: HostReason, shown: HostReason
) -> None:
    deployment.enter(HostState.DOWNLOADING)
    deployment.stall, deployment.source_trouble = stall, trouble
    assert deployment.progress(1_000_001).reason is shown


async def test_the_states_own_reason_comes_first(deployment: Deployment) -> None:
    deployment.enter(HostState.INIT, HostReason.NO_SPACE, "E_NO_SPACE: it is full")
    deployment.stall = StallReason.STORAGE
    assert deployment.progress(1_000_001).reason is HostReason.NO_SPACE


def test_a_rate_rises_to_what_is_moved_and_falls_to_nothing() -> None:
    rate = SmoothedRate()
    for _ in range(40):
        rate.add(1000)
        rate.tick(1.0)
    assert rate.bytes_per_s == pytest.approx(1000, rel=0.01)
    for _ in range(60):
        rate.tick(1.0)
    assert rate.bytes_per_s == 0.0
