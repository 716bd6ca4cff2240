"""A target that two hosts speak for counts as none."""

from __future__ import annotations

from gossipd.api.deployment_row import DeploymentFacts, TargetFacts, deployment_row
from gossipd.core.ids import DeploymentId
from gossipd.deployment.progress_record import HostState, Progress, progress_key
from gossipd.deployment.progress_table import ClusterProgress
from membership.member import NodeId

MODEL = DeploymentId(b"m" * 32)
FACTS = DeploymentFacts(id=MODEL, name="some", version=1, bytes_total=1000, chunk_count=10)


def test_a_target_with_two_hosts_is_not_complete_whatever_they_say() -> None:
    table = ClusterProgress()
    nodes = [NodeId(bytes([number]) * 16) for number in (1, 2)]
    for node in nodes:
        complete = Progress(state=HostState.COMPLETE, chunks_verified=10, started_s=100, elapsed_s=5)
        table.record(node, progress_key(MODEL), 1, complete, now=0.0, wall_s=0.0)
    targets = [TargetFacts(node, f"node-{node[0]}", "r", "alive", is_twice=node == nodes[1]) for node in nodes]
    row = deployment_row(FACTS, table, targets, now=1.0)
    assert (row.hosts_total, row.hosts_complete, row.completed_at) == (2, 1, None)
    assert row.state != "complete"
    assert (row.hosts[1].state, row.hosts[1].reason) == ("init", "identity_twice")
    assert row.cluster_bytes_verified == 1000
    one = deployment_row(FACTS, table, targets[:1], now=1.0)
    assert (one.state, one.hosts_complete) == ("complete", 1)
