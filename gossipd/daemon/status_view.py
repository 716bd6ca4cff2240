"""Answers to status questions, from memory: the body of ``api.ports.StatusPort``.

What lives here: gathering. What does not: what a row means (``api.schema``, ``api.deployment_row``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from pathlib import Path

import trio
from msgspec import Struct, field

from gossipd import __version__
from gossipd.api import refusal_counters, schema
from gossipd.api.counters import FETCH_BOUNDS_S, DeploymentCounters, Histogram, LocalCounters, LoopLag
from gossipd.api.deployment_row import DeploymentFacts, TargetFacts, deployment_row
from gossipd.api.local_server import LocalServers
from gossipd.api.manifest_row import manifest_row
from gossipd.api.report_row import timeline_row, traffic_rows
from gossipd.api.sketch_row import answered_row, own_fine_row, sketch_row
from gossipd.config.prints import named_prints
from gossipd.control.control_plane import ControlPlane
from gossipd.core.ids import DeploymentId, short
from gossipd.core.reasons import HostReason
from gossipd.core.units import timestamp
from gossipd.daemon.alarms import Reports
from gossipd.daemon.budget_check import BudgetCheck
from gossipd.daemon.data_plane import DataPlane
from gossipd.daemon.fine_sketches import FineSketches
from gossipd.daemon.fresh_look import FreshLook
from gossipd.daemon.hooks import Hooks
from gossipd.daemon.identity_watch import IdentityWatch
from gossipd.daemon.live_settings import LiveSettings
from gossipd.daemon.loneliness import Newcomer, is_alone
from gossipd.daemon.settled_rows import SettledRows
from gossipd.daemon.watermarks import Watermarks
from gossipd.deployment.cluster_clock import ClusterClock
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.deployment.history import Histories
from gossipd.deployment.progress_record import HostState, progress_key
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.identity.trust import key_id
from gossipd.inbox.inbox import Inbox
from gossipd.manifest.manifest import Manifest
from gossipd.parts.want_orders import unite
from gossipd.runtime.slow_steps import SlowSteps
from gossipd.store.disk.condition import StoreHealth
from gossipd.store.statistics import StoreStatistics
from gossipd.swarm.capabilities import NodeCapabilities, free_bytes
from gossipd.swarm.planner import Planner
from gossipd.swarm.statistics import SwarmStatistics
from gossipd.transfer.traffic import PeerTraffic
from membership.member import MemberState
from membership.swim import Swim

_MAY_READ = (MemberState.ALIVE, MemberState.SUSPECT)
UNHEARD = "unheard"
TRUST_ALARMS = frozenset({"E_AUDIT_CUT", "E_EQUIVOCATION", "E_IDENTITY_TWICE"})  # a key or a host may be an attacker's


_WAITS = {
    **dict.fromkeys((HostReason.NO_SPACE, HostReason.NO_INODES), "waits for space"),
    **dict.fromkeys(
        (HostReason.DISK, HostReason.DISK_FAILING, HostReason.DISK_READ_ONLY, HostReason.DISK_SILENT),
        "waits for the disk",
    ),
}
"""By the reasons whose cure names `store.detail`."""


class DaemonStatus(Struct, kw_only=True, eq=False):
    """The body of ``StatusPort``, which says what each answer is. All on the trio loop."""

    live: LiveSettings
    swim: Swim
    planner: Planner
    lifecycle: DeploymentTable
    progress: ClusterProgress
    clock: ClusterClock
    data_plane: DataPlane
    plane: ControlPlane
    inbox: Inbox
    reports: Reports
    lag: LoopLag
    slow_steps: SlowSteps
    hooks: Hooks
    identities: IdentityWatch
    watermarks: Watermarks
    histories: Histories
    budget_check: BudgetCheck
    fine_sketches: FineSketches
    credential_ends: Mapping[str, float]
    """``credentials_watch``."""
    local_servers: LocalServers
    """Of the status socket and the metrics port."""
    fresh_look: FreshLook
    settled_rows: SettledRows = field(default_factory=SettledRows)
    fetch_seconds: Histogram = field(default_factory=lambda: Histogram(FETCH_BOUNDS_S))
    age: Newcomer = field(default_factory=lambda: Newcomer(time.monotonic()))

    def wants(self) -> list[schema.WantRow]:
        configured, ordered = self.live.configured_wants(), unite({}, self.live.ordered_wants)
        return [
            schema.WantRow(
                name=name, want=want.text,
                configured=configured[name].text if name in configured else None,
                ordered=ordered[name].text if name in ordered else None,
            )
            for name, want in sorted(self.live.wants().items())
        ]  # fmt: skip

    def snapshot(self) -> schema.StatusSnapshot:
        record = self.swim.self_record()
        in_clear = self.live.config.bulk.encryption == "none"
        reasons = ["bulk.encryption is none: others can read the bytes on the way"] if in_clear else []
        reasons += [row.sentence for row in self.reports.alarms.rows.values() if row.code in TRUST_ALARMS]
        statistics = self.data_plane.store.statistics()
        condition = statistics.condition
        inbox, audit = self.inbox.statistics, self.reports.audit
        waits = _waits_for_disk(self.lifecycle)
        return schema.StatusSnapshot(
            node=schema.NodeRow(
                name=record.name, rack=record.rack, zone=record.zone, id=record.node.hex(),
                address=record.contact, version=__version__,
                uptime_s=round(time.monotonic() - self.age.started_s, 1),
            ),
            members=self.members(),
            deployments=[],
            security=schema.SecurityRow(
                state="degraded" if reasons else "ok", bulk_encryption=self.live.config.bulk.encryption, reasons=reasons
            ),
            store=schema.StoreRow(
                condition=condition.health.value, detail=condition.sentence or waits, free_bytes=statistics.free_bytes,
                need_bytes=condition.need_bytes, oldest_unchecked_s=float(statistics.oldest_unchecked_age_s),
            ),
            inbox=schema.InboxRow(
                accepted=inbox.accepted, refused=inbox.refused, waiting=inbox.waiting, trouble=inbox.trouble
            ),
            audit=schema.AuditRow(records=audit.records, head=audit.head, trouble=audit.trouble),
            alarms=list(self.reports.alarms.rows.values()),
            loop_lag_p99_s=round(self.lag.p99_s(), 4),
            slow_steps=_slow_step_rows(self.slow_steps),
            hooks=self.hooks.row(),
            refused=[
                schema.RefusedRow(
                    id=one.id.hex(), reason=one.reason.value, subject=one.subject.hex(), sentence=one.sentence
                )
                for one in self.lifecycle
                if one.manifest is None and one.state is HostState.FAILED
            ],
            limits=self.data_plane.limits_row(),
            watermark=self.watermarks.row(),
            warm=_warm_rows(statistics),
        )  # fmt: skip

    def deployments(
        self, name: str | None = None, version: int | None = None, *, hosts_max: int | None = None,
        host: str | None = None,
    ) -> Iterator[schema.DeploymentRow]:  # fmt: skip
        swarms = self.planner.statistics().swarms
        chosen = [
            (found.name, -found.version, one.id, one)
            for one in self.lifecycle
            if (found := one.manifest) is not None and name in (None, found.name) and version in (None, found.version)
        ]
        hosts = self.settled_rows.same(self._hosts()) if chosen else []
        for _, _, _, one in sorted(chosen, key=itemgetter(0, 1, 2)):
            if row := _row(self, one, hosts, swarms.get(one.id), hosts_max=hosts_max, host=host):
                yield row

    def deployment_count(self) -> int:
        return sum(one.manifest is not None for one in self.lifecycle)

    def names(self) -> Iterator[tuple[str, str]]:
        return _names(self.lifecycle, _targets(self.swim, self.identities))

    def _hosts(self) -> list[TargetFacts]:
        """The members by name, as targets; those that may be made up are none."""
        return [one for one in _targets(self.swim, self.identities) if not self.swim.is_unheard(one.node)]

    def host_name(self) -> str:
        return self.live.config.node.name

    def label(self, name: str, version: int | None) -> str:
        return self.lifecycle.label(name, version)

    def members(self) -> list[schema.MemberRow]:
        seeds, own = self.planner.seeds, self.swim.self_record().node
        rows = []
        for member in self.swim.members():
            record = member.record
            ahead = self.clock.ahead_s(record.node) if record.node != own else None
            capable = NodeCapabilities.from_bytes(record.payload)
            may_read = capable.seed_term > 0 and member.state in _MAY_READ
            rows.append(
                schema.MemberRow(
                    name=record.name, rack=record.rack, zone=record.zone, id=record.node.hex(),
                    address=record.contact,
                    state=UNHEARD if self.swim.is_unheard(record.node) else member.state.value,
                    seed=record.node in seeds or (may_read and self.swim.has_answered(record.node)),
                    version=record.software,
                    since_s=round(max(0.0, trio.current_time() - member.since_s), 1),
                    clock_ahead_s=None if ahead is None else round(ahead, 1), prints=named_prints(capable.prints),
                    free_bytes=free_bytes(capable.free_step),
                )
            )  # fmt: skip
        return sorted(rows, key=lambda row: row.name)

    async def look(self) -> None:
        await self.fresh_look.take()

    def models(self) -> list[schema.ModelRow]:
        rows = []
        for one in self.lifecycle:
            manifest = one.manifest
            if manifest is None or not one.is_open:
                continue
            is_complete = one.told_state is HostState.COMPLETE
            store, whole = self.data_plane.store, f"{manifest.name}/{manifest.version}"
            place = store.place(manifest.id) or whole
            path = str(Path(self.live.config.store.models) / place)
            is_current = store.current(manifest.name) == manifest.version if place == whole else True
            rows.append(
                schema.ModelRow(
                    name=manifest.name, version=manifest.version, state=one.told_state.value,
                    current=is_complete and is_current, want="" if one.wanted is None else one.want.text,
                    bytes_total=manifest.bytes_total, path=path if is_complete else None,
                    completed_at=timestamp(one.started_s + one.elapsed_s) if is_complete else None,
                    version_label=manifest.version_label, lineage=manifest.lineage,
                    bytes_wanted=None if one.wanted is None else one.bytes_wanted,
                    trouble=store.why_unseen(manifest.id) if is_complete else "",
                )
            )  # fmt: skip
        return sorted(rows, key=lambda row: (row.name, -row.version))

    def manifest(self, name: str | None, version: int | None, deployment: str | None) -> schema.ManifestRow | None:
        found = [
            one.manifest
            for one in self.lifecycle
            if one.manifest is not None
            and name in (None, one.manifest.name)
            and version in (None, one.manifest.version)
            and deployment in (None, one.id.hex())
        ]
        return manifest_row(max(found, key=lambda one: one.version)) if found else None

    def report(self, name: str, version: int | None) -> schema.ReportRow | None:
        row = next(self.deployments(name, version), None)
        if row is None:
            return None
        key, now_s = progress_key(DeploymentId(bytes.fromhex(row.id))), time.time()
        known = {one.record.node: (one.record.name, one.record.rack) for one in self.swim.members()}
        history = self.histories.find(key)
        return schema.ReportRow(
            told_by=self.host_name(), told_at=timestamp(now_s) or "",
            money_per_gb=self.live.config.sources.money_per_gb, deployment=row,
            traffic=traffic_rows(self.progress.everybody(key), known),
            timeline=None if history is None or not history.used else timeline_row(history, known, now_s),
        )  # fmt: skip

    def sketches(self, name: str, version: int) -> Iterator[schema.SketchRow]:
        return _sketches(self, self._hosts(), name, version)

    def fine_sketch(self, name: str, version: int, host: str) -> tuple[schema.SketchRow | None, str]:
        return _fine_sketch(self, name, version, host)

    def peers(self) -> dict[str, schema.PeerRow]:
        sent, got = self.data_plane.server.statistics().peers, self.data_plane.client.statistics().peers
        nothing = PeerTraffic()
        rows = {}
        for node in sent.keys() | got.keys():
            out, into = sent.get(node, nothing), got.get(node, nothing)
            rows[node.hex()] = schema.PeerRow(
                bytes_in=into.bytes_in, bytes_out=out.bytes_out, chunks_in=into.chunks_in, chunks_out=out.chunks_out,
                busy_in=into.busy, busy_out=out.busy,
            )  # fmt: skip
        return rows

    def counters(self) -> LocalCounters:
        data_plane = self.data_plane
        sent, pool = data_plane.server.statistics(), data_plane.pool.statistics()
        control = self.plane.statistics()
        refused = refusal_counters.refused(sent.errors, control, self.swim.statistics())
        refused["status"] = self.local_servers.refused
        planner = self.planner.statistics()
        return LocalCounters(
            deployments=[
                _deployment_counters(one, data_plane.chunk_access.sent_bytes(one.id), planner.swarms.get(one.id))
                for one in self.lifecycle
                if one.is_open
            ],
            source_requests=dict(data_plane.reader.statistics().results),
            refused=refused, uploads_failed=refusal_counters.uploads_failed(sent.errors),
            control_bytes=refusal_counters.control_bytes(control),
            control_events=refusal_counters.control_events(control),
            uploads_busy=sent.transfers, uploads_max=self.live.config.limits.upload_slots,
            credential_ends=self.credential_ends, planner_events=planner.events, planner_turns=planner.plans,
            buffers_busy_bytes=pool.leased_bytes, buffers_max_bytes=pool.pool_bytes,
            fetch_seconds=self.fetch_seconds.figures(), loop_lag_seconds=self.lag.histogram.figures(),
        )  # fmt: skip

    def newcomer(self, *, at_start: bool = False) -> str:
        words = self.age.settling if at_start else self.age.words
        return words(time.monotonic(), self.swim, self.live)

    def health(self) -> schema.HealthRow:
        condition = self.data_plane.store.condition()
        reasons = [] if condition.health is StoreHealth.OK else [condition.sentence or condition.health.value]
        reasons += filter(None, [self.data_plane.store.why_elsewhere()])
        if is_alone(self.swim, self.live):
            reasons.append("no other member has been found yet")
        if self.inbox.statistics.trouble is not None:
            reasons.append(self.inbox.statistics.trouble)
        return schema.HealthRow(ready=not reasons, reasons=reasons)


def _waits_for_disk(lifecycle: DeploymentTable) -> str:
    """What cannot be written, in words: the disk takes writes, and has no room for a whole model, or refused it."""
    waiting = [one for one in lifecycle if one.reason in _WAITS and one.state is not HostState.FAILED]
    return "; ".join(f"{one.label} {_WAITS[one.reason]}: {one.sentence}" for one in waiting[:3])


def _row(
    status: DaemonStatus, one: DeploymentRecord, hosts: Sequence[TargetFacts], swarm: SwarmStatistics | None,
    *, hosts_max: int | None, host: str | None,
) -> schema.DeploymentRow | None:  # fmt: skip
    manifest = one.manifest
    assert manifest is not None
    facts = DeploymentFacts(
        id=manifest.id, name=manifest.name, version=manifest.version, bytes_total=manifest.bytes_total,
        chunk_count=manifest.chunk_count, priority=manifest.priority, signed_by=short(key_id(manifest.signer)),
        started_s=float(one.started_s), verb=one.statement.verb, one_copy=bool(swarm and swarm.one_copy),
        served=swarm.served if swarm else frozenset(), stall=one.stall.value if one.stall is not None else None,
        source_budget_bytes=status.budget_check.budget_of(one).limit_bytes,
        own=status.swim.self_record().node, version_label=manifest.version_label, lineage=manifest.lineage,
        files=manifest.files, has_sources=bool(manifest.sources), is_step=manifest.is_step,
    )  # fmt: skip

    now = trio.current_time()
    if host is not None:
        return status.settled_rows.row_of(host, facts, status.progress, hosts, manifest.is_target, now=now)
    if hosts_max is None:
        targets = [host for host in hosts if manifest.is_target(host.name, host.rack)]
        return deployment_row(facts, status.progress, targets, now=now)
    return status.settled_rows.row(facts, status.progress, hosts, manifest.is_target, hosts_max=hosts_max, now=now)


def _sketches(
    status: DaemonStatus, hosts: list[TargetFacts], name: str, version: int
) -> Iterator[schema.SketchRow]:  # fmt: skip
    manifest = _manifest_of(status, name, version)
    if manifest is None:
        return
    key = progress_key(manifest.id)
    for host in hosts:
        if not manifest.is_target(host.name, host.rack):
            continue
        told, known = status.progress.host(host.node, key), status.planner.holdings(manifest.id, host.node)
        row = sketch_row(host, told, known, chunk_count=manifest.chunk_count, now=trio.current_time())
        if row is not None:
            yield row


def _manifest_of(status: DaemonStatus, name: str, version: int) -> Manifest | None:
    """Of the first deployment with that name and version, as ``deployments`` has it."""
    found = [one.manifest for one in status.lifecycle if one.manifest is not None]
    return min((one for one in found if (one.name, one.version) == (name, version)), key=attrgetter("id"), default=None)


def _fine_sketch(
    status: DaemonStatus, name: str, version: int, host: str
) -> tuple[schema.SketchRow | None, str]:  # fmt: skip
    manifest = _manifest_of(status, name, version)
    target = next((one for one in status._hosts() if one.name == host and not one.is_twice), None)
    if manifest is None or target is None:
        return None, ""
    if target.node == status.swim.self_record().node:
        known = status.planner.holdings(manifest.id, target.node)
        return None if known is None else own_fine_row(target, known), ""
    asked = status.fine_sketches.look(target.node, manifest.id)
    age_s = trio.current_time() - asked.heard_s
    return answered_row(target, asked.answer, age_s, chunk_count=manifest.chunk_count), asked.outcome.value


def _targets(swim: Swim, identities: IdentityWatch) -> list[TargetFacts]:
    return sorted((
        TargetFacts(
            record.node, record.name, record.rack, member.state.value, is_twice=identities.is_twice(record.node)
        )
        for member in swim.members()
        for record in (member.record,)
    ), key=attrgetter("name"))  # fmt: skip


def _names(lifecycle: DeploymentTable, hosts: list[TargetFacts]) -> Iterator[tuple[str, str]]:
    known = [one.manifest for one in lifecycle if one.manifest is not None]
    for each in sorted(known, key=lambda one: (one.name, -one.version)):
        yield "model", f"{each.name}@{each.version_label}"
    yield from (("name", host.name) for host in hosts)
    yield from (("rack", rack) for rack in dict.fromkeys(host.rack for host in hosts))


def _deployment_counters(
    one: DeploymentRecord, sent_bytes: dict[str, int], swarm: SwarmStatistics | None
) -> DeploymentCounters:
    assert one.manifest is not None
    counters = one.counters
    received = {"origin": counters.source_bytes, "peer_rack": counters.peer_bytes_same_rack}
    received["peer_far"] = counters.peer_bytes_cross_rack
    return DeploymentCounters(
        deployment=one.label,
        received_bytes=received,
        sent_bytes=sent_bytes,
        verify_failures={"peer": counters.corrupt_chunks},
        wasted_bytes={
            "duplicate": counters.duplicate_bytes,
            "corrupt": counters.corrupt_bytes,
            "cancelled": counters.cancelled_bytes,
        },
        chunks={
            "held": one.chunks_verified,
            "missing": one.chunks_wanted(one.manifest) - one.chunks_verified,
            "in_flight": 0 if swarm is None else swarm.fetches + swarm.reads,
        },
    )


def _slow_step_rows(slow: SlowSteps) -> list[schema.SlowStepsRow]:
    rows = [
        schema.SlowStepsRow(
            task=name, steps=one.steps, longest_s=round(one.longest_s, 4), longest_cpu_s=round(one.cpu_s, 4)
        )
        for name, one in slow.tasks.items()
    ]
    return sorted(rows, key=lambda row: -row.longest_s)


def _warm_rows(statistics: StoreStatistics) -> list[schema.WarmRow]:
    return [
        schema.WarmRow(
            model=one.label, bytes_total=one.bytes_total, bytes_cached=one.bytes_cached, state=one.state.value
        )
        for one in statistics.warm
    ]
