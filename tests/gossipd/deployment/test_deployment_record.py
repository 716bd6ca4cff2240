"""One deployment's record: counters that never fall, states that follow the table, and why it does not go on."""

from __future__ import annotations

import pytest

from gossipd.core.events import StallReason
from gossipd.core.ids import SOURCE, DeploymentId
from gossipd.core.reasons import HostReason
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.progress_record import HostState
from gossipd.deployment.statement import Verb, sign_statement
from gossipd.deployment.states import STATES
from gossipd.identity.keys import SecretKey
from membership.member import NodeId

PEER = NodeId(b"p" * 16)


@pytest.fixture
def deployment() -> DeploymentRecord:
    identity = DeploymentId(b"d" * 32)
    statement = sign_statement(
        SecretKey(b"k" * 32), identity, epoch=1, verb=Verb.DEPLOY, manifest_bytes=100, now_s=1_000_000
    )
    return DeploymentRecord(identity, statement, started_s=1_000_000)


def test_a_restart_goes_on_counting_where_the_last_run_left_off(deployment: DeploymentRecord) -> None:
    deployment.counters.add(SOURCE, 256 * 1024, same_rack=False)
    deployment.take_figures(512 * 1024, 3, 7)
    said = deployment.progress(1_000_010)
    again = DeploymentRecord(deployment.id, deployment.statement)
    again.restore(said)
    again.base.duplicate_bytes, again.base.corrupt_chunks, again.base.corrupt_bytes = 512 * 1024, 3, 7
    again.take_figures(0, 1, 5)
    assert again.progress(1_000_020).source_bytes == 256 * 1024
    assert again.progress(1_000_020).duplicate_bytes == 512 * 1024
    assert again.progress(1_000_020).corrupt_chunks == 4
    assert again.progress(1_000_020).corrupt_bytes == 12
    assert again.progress(1_000_020).started_s == 1_000_000


def test_the_time_that_it_took_is_fixed_when_it_ends(deployment: DeploymentRecord) -> None:
    deployment.enter(HostState.DOWNLOADING)
    deployment.enter(HostState.COMPLETE)
    assert deployment.progress(1_000_030).elapsed_s == 30
    assert deployment.progress(1_000_900).elapsed_s == 30


@pytest.mark.parametrize(
    ("stall", "trouble", "shown"),
    [
        (None, HostReason.SOURCE_AUTH, HostReason.NONE),
        (StallReason.STORAGE, HostReason.SOURCE_AUTH, HostReason.SOURCE_AUTH),
        (StallReason.NO_HOLDER, HostReason.SOURCE_GONE, HostReason.SOURCE_GONE),
        (StallReason.DISK, HostReason.SOURCE_AUTH, HostReason.DISK),
        (StallReason.ALL_BUSY, HostReason.NONE, HostReason.ALL_BUSY),
    ],
)
def test_a_stall_is_explained_by_what_is_nearest_to_its_cause(
    deployment: DeploymentRecord, stall: StallReason | None, trouble: HostReason, shown: HostReason
) -> None:
    deployment.enter(HostState.DOWNLOADING)
    deployment.stall, deployment.source_trouble = stall, trouble
    assert deployment.progress(1_000_001).reason is shown


@pytest.mark.parametrize(
    ("stall", "told"),
    [(one, HostReason.DISK_SLOW) for one in StallReason if one not in (StallReason.DISK, StallReason.VERIFICATION)]
    + [(StallReason.DISK, HostReason.DISK), (StallReason.VERIFICATION, HostReason.VERIFICATION)],
)
def test_writes_that_wait_explain_a_stall_for_all_others(
    deployment: DeploymentRecord, stall: StallReason, told: HostReason
) -> None:
    deployment.enter(HostState.DOWNLOADING)
    deployment.disk_changed(HostReason.NONE, is_slow=True)
    assert deployment.progress(1_000_010).reason is HostReason.NONE, "chunks come"
    deployment.stall = stall
    assert deployment.progress(1_000_010).reason is told
    deployment.changed = False
    deployment.disk_changed(HostReason.NONE, is_slow=False)
    assert deployment.changed is (told is HostReason.DISK_SLOW)


def test_the_states_own_reason_comes_first(deployment: DeploymentRecord) -> None:
    deployment.enter(HostState.INIT, HostReason.NO_SPACE, "E_NO_SPACE: it is full")
    deployment.stall = StallReason.STORAGE
    assert deployment.progress(1_000_001).reason is HostReason.NO_SPACE


@pytest.mark.parametrize("before", HostState)
@pytest.mark.parametrize("after", HostState)
def test_a_state_is_followed_by_those_of_the_table_only(
    deployment: DeploymentRecord, before: HostState, after: HostState
) -> None:
    deployment.state = before
    if after is before or after in STATES[before]:
        deployment.enter(after)
    else:
        with pytest.raises(AssertionError):
            deployment.enter(after)


def test_what_is_complete_is_left_by_an_order_to_make_room_or_for_another_part_only() -> None:
    assert STATES[HostState.COMPLETE] == {HostState.REMOVED, HostState.EVICTED, HostState.FAILED, HostState.INIT}
    assert HostState.INIT not in STATES[HostState.VERIFYING]


@pytest.mark.parametrize(
    ("state", "reason", "is_opening"),
    [
        (HostState.INIT, HostReason.NONE, True),
        (HostState.INIT, HostReason.NO_SPACE, False),
        (HostState.COMPLETE, HostReason.NONE, False),
    ],
)
def test_it_is_opening_until_it_has_a_state_or_something_keeps_it(
    deployment: DeploymentRecord, state: HostState, reason: HostReason, is_opening: bool
) -> None:
    deployment.state, deployment.reason = state, reason
    assert deployment.is_opening == is_opening
