"""From the table of all hosts' progress to one row of the status page.

What lives here: a pure function. What does not: the sums (``deployment.progress_table``) and the fields' names
(``schema``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gossipd.api.schema import DeploymentRow, HostRow
from gossipd.core.ids import DeploymentId
from gossipd.core.units import timestamp
from gossipd.deployment.counters import counters_of
from gossipd.deployment.progress_record import HostState, progress_key
from gossipd.deployment.progress_table import ClusterProgress, Totals, deployment_state
from membership.member import NodeId

RATE_FLOOR_BYTES_PER_S = 1024  # below this an ETA would have no meaning


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentFacts:
    """This node's facts about a deployment, mostly from its manifest; not the progress of hosts."""

    id: DeploymentId
    name: str
    version: int
    bytes_total: int
    chunk_count: int
    priority: int = 5
    signed_by: str = ""
    started_s: float = 0.0
    """When this node first accepted it, seconds since 1970."""
    cancelled: bool = False
    one_copy: bool = False
    """The planner knows that every chunk is held by some host, before any host has all of them."""
    stall: str | None = None
    """Why no chunk arrives here, as in ``core.events.StallReason``."""
    version_label: str = ""
    lineage: str = ""


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """One target of the deployment on the roster. ``member_state``: alive, suspect, dead or left."""

    node: NodeId
    name: str
    rack: str
    member_state: str


def deployment_row(
    facts: DeploymentFacts, table: ClusterProgress, targets: Sequence[TargetFacts], *, now: float
) -> DeploymentRow:
    """One row, with the hosts in the order of ``targets``. ``now`` is on the clock that fed ``table``."""
    key = progress_key(facts.id)
    nodes = [each.node for each in targets]
    totals = table.totals(key, nodes, chunk_count=facts.chunk_count, bytes_total=facts.bytes_total, now=now)
    hosts = [_host_row(each, table, key, facts, now) for each in targets]
    states = [HostState(each.state) for each in hosts]
    count = max(1, totals.hosts_total)
    started = [moment for moment in (facts.started_s, totals.started_s) if moment > 0]
    return DeploymentRow(
        id=facts.id.hex(),
        name=facts.name,
        version=facts.version,
        state=deployment_state(states, one_copy=facts.one_copy, cancelled=facts.cancelled),
        bytes_total=facts.bytes_total,
        bytes_verified=totals.bytes_verified // count,
        chunks_total=facts.chunk_count,
        chunks_verified=totals.chunks_verified // count,
        hosts_total=totals.hosts_total,
        hosts_complete=totals.hosts_complete,
        hosts_failed=totals.hosts_failed,
        rate_in_bytes_per_s=totals.rate_in_bytes_per_s,
        rate_out_bytes_per_s=totals.rate_out_bytes_per_s,
        eta_s=_eta_s(facts, totals),
        started_at=timestamp(min(started, default=0.0)),
        completed_at=timestamp(totals.completed_s),
        hosts=hosts,
        cluster_bytes_total=facts.bytes_total * totals.hosts_total,
        cluster_bytes_verified=totals.bytes_verified,
        priority=facts.priority,
        stall=facts.stall,
        signed_by=facts.signed_by,
        version_label=facts.version_label or str(facts.version),
        lineage=facts.lineage,
        **counters_of(totals),
    )


def _host_row(target: TargetFacts, table: ClusterProgress, key: bytes, facts: DeploymentFacts, now: float) -> HostRow:
    row = table.host(target.node, key)
    away = "" if target.member_state == "alive" else target.member_state
    if row is None:
        state, reason = (HostState.CANCELLED, away) if facts.cancelled else (HostState.INIT, away or "not_heard")
        chunks, age_s = 0, None
    else:
        state, reason = row.progress.state, row.progress.reason.value or away
        chunks, age_s = min(row.progress.chunks_verified, facts.chunk_count), round(row.age_s(now), 1)
    return HostRow(
        name=target.name, rack=target.rack, state=state.value, chunks_verified=chunks, age_s=age_s, reason=reason
    )


def _eta_s(facts: DeploymentFacts, totals: Totals) -> float | None:
    """The rest over the cluster's present rate; None when complete, cancelled or standing still."""
    rest = facts.bytes_total * totals.hosts_total - totals.bytes_verified
    if rest <= 0 or facts.cancelled or totals.rate_in_bytes_per_s < RATE_FLOOR_BYTES_PER_S:
        return None
    return round(rest / totals.rate_in_bytes_per_s, 1)
