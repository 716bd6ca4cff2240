"""Answers to status questions, from memory: the body of ``ops.doors.StatusPort``.

What lives here: gathering. What does not: what a row means (``api.schema``, ``api.deployment_row``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import trio

from gossipd import __version__
from gossipd.api.counters import FETCH_BOUNDS_S, DeploymentCounters, Histogram, LocalCounters, LoopLag
from gossipd.api.deployment_row import DeploymentFacts, TargetFacts, deployment_row
from gossipd.api.schema import (
    AlarmRow,
    AuditRow,
    DeploymentRow,
    HealthRow,
    InboxRow,
    MemberRow,
    ModelRow,
    NodeRow,
    PeerRow,
    SecurityRow,
    StatusSnapshot,
    StoreRow,
)
from gossipd.audit.log import AuditLog
from gossipd.config.sections import Config
from gossipd.core.ids import DeploymentId, short
from gossipd.core.units import timestamp
from gossipd.daemon.progress_publisher import ProgressPublisher
from gossipd.deployment.lifecycle import Lifecycle
from gossipd.deployment.progress import HostState
from gossipd.deployment.record import DeploymentRecord
from gossipd.deployment.statement import Verb
from gossipd.identity.trust import key_id
from gossipd.inbox.inbox import Inbox
from gossipd.runtime.buffer_pool import BufferPool
from gossipd.sources.reader import SourceReader
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.disk.condition import StoreHealth
from gossipd.swarm.capabilities import NodeCapabilities
from gossipd.swarm.planner import Planner
from gossipd.transfer.client import BulkClient
from gossipd.transfer.server import BulkServer
from gossipd.transfer.traffic import PeerTraffic
from membership.member import Member, MemberState, NodeId
from membership.swim import Swim

ALARMS_MAX = 64


@dataclass(slots=True)
class Alarms:
    """What an operator must act on; the same code and sentence is one alarm. ``told`` hears of each that begins."""

    told: Callable[[str, str], None]
    rows: dict[tuple[str, str], AlarmRow] = field(default_factory=dict)

    def ring(self, code: str, sentence: str) -> None:
        """Begin to show it, if it is not shown."""
        if (code, sentence) in self.rows:
            return
        if len(self.rows) >= ALARMS_MAX:
            del self.rows[next(iter(self.rows))]
        self.rows[code, sentence] = AlarmRow(code=code, sentence=sentence, since=timestamp(time.time()) or "")
        self.told(code, sentence)

    def cured(self, code: str) -> None:
        """Nothing of this code is wrong any more."""
        self.rows = {key: row for key, row in self.rows.items() if row.code != code}


@dataclass(slots=True, kw_only=True)
class StatusSources:
    """Everything there is to look at."""

    config: Config
    own: NodeId
    swim: Swim
    planner: Planner
    lifecycle: Lifecycle
    progress_publisher: ProgressPublisher
    store: ChunkStore
    server: BulkServer
    client: BulkClient
    reader: SourceReader
    pool: BufferPool
    inbox: Inbox
    audit: AuditLog
    lag: LoopLag
    alarms: Alarms
    control_figures: Callable[[], dict[str, int]]
    sent_bytes: Callable[[DeploymentId], dict[str, int]]
    status_refused: Callable[[], int]
    """Requests that the status socket, and the metrics port, have turned away."""
    fetch_seconds: Histogram = field(default_factory=lambda: Histogram(FETCH_BOUNDS_S))
    started_s: float = field(default_factory=time.monotonic)


class DaemonStatus:
    """See StatusPort. All on the trio loop."""

    def __init__(self, status_sources: StatusSources) -> None:
        self._see = status_sources

    def change(self, config: Config) -> None:
        """The configuration was reloaded."""
        self._see.config = config

    def snapshot(self) -> StatusSnapshot:
        """See StatusPort."""
        see = self._see
        record = see.swim.self_record()
        in_clear = see.config.bulk.encryption == "none"
        reasons = ["bulk.encryption is none: others can read the bytes on the way"] if in_clear else []
        statistics = see.store.statistics()
        condition = statistics.condition
        inbox = see.inbox.statistics
        return StatusSnapshot(
            node=NodeRow(
                name=record.name, rack=record.rack, zone=record.zone, id=record.node.hex(),
                address=f"{record.host}:{record.port}", version=__version__,
                uptime_s=round(time.monotonic() - see.started_s, 1),
            ),
            members=self._members(),
            deployments=self.deployments(),
            security=SecurityRow(
                state="degraded" if reasons else "ok", bulk_encryption=see.config.bulk.encryption, reasons=reasons
            ),
            store=StoreRow(
                condition=condition.health.value, detail=condition.sentence, free_bytes=statistics.free_bytes,
                need_bytes=condition.need_bytes, oldest_unchecked_s=float(statistics.oldest_unchecked_age_s),
            ),
            inbox=InboxRow(
                accepted=inbox.accepted, refused=inbox.refused, waiting=inbox.waiting, trouble=inbox.trouble
            ),
            audit=AuditRow(records=see.audit.records, head=see.audit.head, trouble=see.audit.trouble),
            alarms=list(see.alarms.rows.values()),
            loop_lag_p99_s=round(see.lag.p99_s(), 4),
        )  # fmt: skip

    def deployments(self, name: str | None = None, version: int | None = None) -> list[DeploymentRow]:
        """See StatusPort."""
        members = self._see.swim.members()
        swarms = self._see.planner.statistics().swarms
        rows = [
            self._row(one, members, one_copy=one.id in swarms and swarms[one.id].one_copy)
            for one in self._see.lifecycle
            if one.manifest is not None
            and name in (None, one.manifest.name)
            and version in (None, one.manifest.version)
        ]
        return sorted(rows, key=lambda row: (row.name, -row.version))

    def _row(self, deployment: DeploymentRecord, members: list[Member], *, one_copy: bool) -> DeploymentRow:
        manifest = deployment.manifest
        assert manifest is not None
        targets = [
            TargetFacts(member.record.node, member.record.name, member.record.rack, member.state.value)
            for member in members
            if manifest.is_target(member.record.name, member.record.rack)
        ]
        facts = DeploymentFacts(
            id=manifest.id,
            name=manifest.name,
            version=manifest.version,
            bytes_total=manifest.bytes_total,
            chunk_count=manifest.chunk_count,
            priority=manifest.priority,
            signed_by=short(key_id(manifest.signer)),
            started_s=float(deployment.started_s),
            cancelled=deployment.statement.verb is Verb.CANCEL and deployment.state is not HostState.COMPLETE,
            one_copy=one_copy,
            stall=deployment.stall.value if deployment.stall is not None else None,
        )
        targets.sort(key=lambda target: target.name)
        return deployment_row(facts, self._see.progress_publisher.table, targets, now=trio.current_time())

    def _members(self) -> list[MemberRow]:
        seeds = self._see.planner.statistics().seeds
        rows = []
        for member in self._see.swim.members():
            record = member.record
            rows.append(
                MemberRow(
                    name=record.name, rack=record.rack, zone=record.zone, id=record.node.hex(),
                    address=f"{record.host}:{record.port}", state=member.state.value,
                    seed=record.node in seeds or NodeCapabilities.from_bytes(record.payload).seed_term > 0,
                    version=record.software,
                    since_s=round(max(0.0, trio.current_time() - member.since_s), 1),
                )
            )  # fmt: skip
        return sorted(rows, key=lambda row: row.name)

    def models(self) -> list[ModelRow]:
        """See StatusPort."""
        see = self._see
        rows = []
        for one in see.lifecycle:
            manifest = one.manifest
            if manifest is None or not one.is_open:
                continue
            is_complete = one.state is HostState.COMPLETE
            path = str(Path(see.config.store.models) / manifest.name / str(manifest.version))
            rows.append(
                ModelRow(
                    name=manifest.name,
                    version=manifest.version,
                    state=one.state.value,
                    current=is_complete and see.store.current(manifest.name) == manifest.version,
                    bytes_total=manifest.bytes_total,
                    path=path if is_complete else None,
                    completed_at=timestamp(one.started_s + one.elapsed_s) if is_complete else None,
                )
            )
        return sorted(rows, key=lambda row: (row.name, -row.version))

    def peers(self) -> dict[str, PeerRow]:
        """See StatusPort."""
        sent, got = self._see.server.statistics().peers, self._see.client.statistics().peers
        nothing = PeerTraffic()
        rows = {}
        for node in sent.keys() | got.keys():
            out, into = sent.get(node, nothing), got.get(node, nothing)
            rows[node.hex()] = PeerRow(
                bytes_in=into.bytes_in, bytes_out=out.bytes_out, chunks_in=into.chunks_in, chunks_out=out.chunks_out,
                busy_in=into.busy, busy_out=out.busy,
            )  # fmt: skip
        return rows

    def counters(self) -> LocalCounters:
        """See StatusPort."""
        see = self._see
        sent, pool, sources = see.server.statistics(), see.pool.statistics(), see.reader.statistics()
        refused = {**sent.errors, **{f"control_{key}": value for key, value in see.control_figures().items()}}
        refused |= {key: value for key, value in see.swim.statistics().items() if key.startswith("dropped_")}
        refused["status"] = see.status_refused()
        return LocalCounters(
            deployments=[self._deployment_counters(one) for one in see.lifecycle if one.is_open],
            source_requests=dict(sources.results),
            refused=refused,
            uploads_busy=sent.transfers,
            uploads_max=see.config.limits.upload_slots,
            buffers_busy_bytes=pool.leased_bytes,
            buffers_max_bytes=pool.pool_bytes,
            fetch_seconds=see.fetch_seconds.figures(),
            loop_lag_seconds=see.lag.histogram.figures(),
        )

    def _deployment_counters(self, one: DeploymentRecord) -> DeploymentCounters:
        assert one.manifest is not None
        counters = one.counters
        return DeploymentCounters(
            deployment=one.label,
            received_bytes={
                "origin": counters.source_bytes,
                "peer_rack": counters.peer_bytes_same_rack,
                "peer_far": counters.peer_bytes_cross_rack,
            },
            sent_bytes=self._see.sent_bytes(one.id),
            verify_failures={"peer": counters.corrupt_chunks},
            wasted_bytes={"duplicate": counters.duplicate_bytes},
            chunks={"held": one.chunks_verified, "missing": one.manifest.chunk_count - one.chunks_verified},
        )

    def health(self) -> HealthRow:
        """See StatusPort."""
        see = self._see
        reasons = []
        condition = see.store.condition()
        if condition.health is not StoreHealth.OK:
            reasons.append(condition.sentence or condition.health.value)
        live = sum(member.state is MemberState.ALIVE for member in see.swim.members())
        if see.config.net.join and live < 2:
            reasons.append("no other member has been found yet")
        if see.inbox.statistics.trouble is not None:
            reasons.append(see.inbox.statistics.trouble)
        return HealthRow(ready=not reasons, reasons=reasons)
