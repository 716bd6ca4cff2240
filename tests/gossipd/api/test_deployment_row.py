"""The reason that each host of a row has, and whom it is about."""

from __future__ import annotations

import pytest

from gossipd.api.deployment_row import DeploymentFacts, TargetFacts, deployment_row
from gossipd.api.schema import DeploymentRow
from gossipd.core.ids import DeploymentId
from gossipd.core.reasons import HostReason
from gossipd.deployment.progress_record import HostState, Progress, progress_key
from gossipd.deployment.progress_table import ClusterProgress
from membership.member import NodeId
from tests.gossipd.api.fake_daemon import TOY, node


def told_row(*said: tuple[HostReason, bytes], state: str = "alive", own: int = 3) -> DeploymentRow:
    """Hosts 1, 2 ... with a reason each; the last one is in ``state``; host ``own`` answers."""
    table = ClusterProgress()
    for number, (reason, subject) in enumerate(said, 1):
        progress = Progress(state=HostState.DOWNLOADING, reason=reason, subject=subject)
        table.record(node(number), progress_key(TOY), 1_800_000_000_000, progress, now=100.0, wall_s=1_800_000_000.0)
    facts = DeploymentFacts(
        id=TOY, name="org/toy", version=3, bytes_total=1024, chunk_count=4, stall="storage", own=node(own)
    )
    targets = [
        TargetFacts(node(number), f"node-{number}", "r1", state if number == len(said) else "alive")
        for number in range(1, len(said) + 1)
    ]
    return deployment_row(facts, table, targets, now=101.0)


def test_the_readers_reason_is_the_reason_of_all_that_wait_for_it() -> None:
    waits = (HostReason.WAITS_FOR_READER, node(1)[:8])
    row = told_row((HostReason.SOURCE_AUTH, b""), (HostReason.ALL_BUSY, b""), waits)
    assert [(host.reason, host.subject) for host in row.hosts] == [
        ("source_auth", ""),
        ("all_busy", ""),
        ("source_auth", "node-1"),
    ]
    assert row.stall == "source_auth", "one host has one reason in every view"
    row = told_row((HostReason.NONE, b""), (HostReason.NONE, b""), waits)
    assert (row.hosts[2].reason, row.hosts[2].subject) == ("waits_for_reader", "node-1")
    unknown = told_row((HostReason.WAITS_FOR_READER, b"nobody.."), own=1)
    assert (unknown.hosts[0].reason, unknown.stall) == ("waits_for_reader", "waits_for_reader")


def test_a_missing_key_is_named() -> None:
    [host] = told_row((HostReason.REFUSED_KEY, b"k" * 8), own=1).hosts
    assert (host.reason, host.subject) == ("refused_key", (b"k" * 8).hex())


@pytest.mark.parametrize(("state", "shown"), [("dead", "dead"), ("left", "left"), ("suspect", "no_space")])
def test_a_host_that_is_gone_has_that_reason_and_no_other(state: str, shown: str) -> None:
    assert told_row((HostReason.NO_SPACE, b""), state=state, own=1).hosts[0].reason == shown


MODEL = DeploymentId(b"m" * 32)
FACTS = DeploymentFacts(id=MODEL, name="some", version=1, bytes_total=1000, chunk_count=10)


def test_a_target_with_two_hosts_is_not_complete_whatever_they_say() -> None:
    table = ClusterProgress()
    nodes = [NodeId(bytes([number]) * 16) for number in (1, 2)]
    for each in nodes:
        complete = Progress(state=HostState.COMPLETE, chunks_verified=10, started_s=100, elapsed_s=5)
        table.record(each, progress_key(MODEL), 1, complete, now=0.0, wall_s=0.0)
    targets = [TargetFacts(each, f"node-{each[0]}", "r", "alive", is_twice=each == nodes[1]) for each in nodes]
    row = deployment_row(FACTS, table, targets, now=1.0)
    assert (row.hosts_total, row.hosts_complete, row.completed_at) == (2, 1, None)
    assert row.state != "complete"
    assert (row.hosts[1].state, row.hosts[1].reason) == ("init", "identity_twice")
    assert row.cluster_bytes_verified == 1000
    one = deployment_row(FACTS, table, targets[:1], now=1.0)
    assert (one.state, one.hosts_complete) == ("complete", 1)
