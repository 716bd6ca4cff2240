"""The report of a simulated run, as a daemon would tell it of a deployment.

What lives here: from a run's end to the answer of ``GET /v1/report``. What does not: noting the course
(``sim.course``), and what a report says (``diagnosis.report``). Time 0 of the run is second 1 of the report,
because 0 means never in records.
"""

from __future__ import annotations

from math import ceil
from typing import Any

import msgspec

from gossipd.api.report_row import timeline_row
from gossipd.api.schema import DeploymentRow, HostRow, ReportRow, TrafficRow
from gossipd.sim.host import SimHost
from gossipd.sim.world import World

NAME = "simulated"


def simulated_report(world: World) -> dict[str, Any]:
    """The report of a run that has kept its course."""
    assert world.course is not None
    known = {host.node: (f"host-{host.index}", f"rack-{host.rack}") for host in world.hosts}
    timeline = timeline_row(world.course.history, known, world.clock.now)
    timeline = msgspec.structs.replace(timeline, silences={})  # a host is noted with each chunk, and is never silent
    row = ReportRow(
        told_by="gossipd simulate", told_at="", money_per_gb=0.0, deployment=_deployment(world),
        traffic=[_traffic(world, host) for host in world.hosts],
        timeline=timeline,
    )  # fmt: skip
    found: dict[str, Any] = msgspec.to_builtins(row)
    return found


def _deployment(world: World) -> DeploymentRow:
    scenario = world.scenario
    chunks, hosts = scenario.chunks, len(world.hosts)
    held = sum(host.held_count for host in world.hosts)
    complete = sum(host.held_count >= chunks for host in world.hosts)
    moved = [sum(one) for one in zip(*_moved(world), strict=True)]
    return DeploymentRow(
        id=world.deployment.hex(), name=NAME, version=scenario.rng, bytes_total=scenario.size, chunks_total=chunks,
        state="complete" if complete == hosts else "distributing",
        bytes_verified=scenario.size * held // (chunks * hosts), chunks_verified=held // hosts,
        hosts_total=hosts, hosts_complete=complete, hosts_failed=0, source_bytes=moved[0],
        peer_bytes_same_rack=moved[1], peer_bytes_cross_rack=moved[2], corrupt_chunks=0,
        duplicate_bytes=sum(host.duplicates for host in world.hosts) * scenario.chunk_bytes,
        rate_in_bytes_per_s=0, rate_out_bytes_per_s=0, eta_s=None, started_at=None, completed_at=None,
        hosts=[_host(world, host) for host in world.hosts], cluster_bytes_total=scenario.size * hosts,
        cluster_bytes_verified=scenario.size * held // chunks, version_label=str(scenario.rng),
    )  # fmt: skip


def _moved(world: World) -> list[list[int]]:
    assert world.course is not None
    return world.course.moved


def _host(world: World, host: SimHost) -> HostRow:
    state = "complete" if host.held_count >= world.scenario.chunks else "downloading"
    return HostRow(
        name=f"host-{host.index}", rack=f"rack-{host.rack}", state=state, chunks_verified=host.held_count, age_s=0.0,
        reason="" if host.alive else "dead",
    )  # fmt: skip


def _traffic(world: World, host: SimHost) -> TrafficRow:
    source, same, cross = _moved(world)[host.index]
    return TrafficRow(
        name=f"host-{host.index}", rack=f"rack-{host.rack}", started_s=1,
        elapsed_s=0 if host.done_s is None else max(1, ceil(host.done_s)), source_bytes=source,
        peer_bytes_same_rack=same, peer_bytes_cross_rack=cross,
        duplicate_bytes=host.duplicates * world.scenario.chunk_bytes, corrupt_chunks=0,
    )  # fmt: skip
