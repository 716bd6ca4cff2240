"""A daemon for the status socket that holds its answers in memory: what the tests of sockets and commands talk to."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gossipd.api.calling_process import NO_PROCESS, CallingProcess
from gossipd.api.counters import FETCH_BOUNDS_S, DeploymentCounters, Histogram, LocalCounters, LoopLag
from gossipd.api.deployment_row import DeploymentFacts, TargetFacts, deployment_row
from gossipd.api.events import EventRing
from gossipd.api.host_groups import grouped
from gossipd.api.ports import Costs, Deployed, Done, Pruned, PublishStep, Reloaded, VerifyStep, WantInForce
from gossipd.api.schema import (
    AlarmRow,
    DeploymentRow,
    HealthRow,
    ManifestRow,
    MemberRow,
    ModelRow,
    NodeRow,
    PeerRow,
    PrunedRow,
    ReportRow,
    SecurityRow,
    SketchRow,
    StatusSnapshot,
    StoreRow,
    TimelineRow,
    TrafficRow,
    WantRow,
)
from gossipd.config.load import ConfigError, Problem
from gossipd.core.errors import LocalError, NotFoundError
from gossipd.core.ids import DeploymentId
from gossipd.core.reasons import HostReason
from gossipd.core.versions import show_step
from gossipd.deployment.progress_record import HostState, Progress, progress_key
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.deployment.statement import Verb
from membership.member import NodeId

MIB = 1 << 20
TOY = DeploymentId(bytes(range(32)))


def node(number: int) -> NodeId:
    return NodeId(bytes([number]) * 16)


def toy_table(complete: int = 2, hosts: int = 4) -> ClusterProgress:
    """``complete`` hosts have all 1024 chunks, the next one half of them, the last has not been heard of."""
    table = ClusterProgress()
    for number in range(1, hosts):
        done = number <= complete
        progress = Progress(
            state=HostState.COMPLETE if done else HostState.DOWNLOADING,
            reason=HostReason.NONE if done else HostReason.ALL_BUSY,
            chunks_verified=1024 if done else 512,
            source_bytes=128 * MIB if done else 0,
            peer_bytes_same_rack=128 * MIB,
            corrupt_chunks=number % 2,
            rate_in_bytes_per_s=0 if done else 64 * MIB,
            started_s=1_800_000_000,
            elapsed_s=30 if done else 0,
        )
        table.record(node(number), progress_key(TOY), 1_800_000_010_000, progress, now=100.0)
    return table


def toy_row(complete: int = 2, *, hosts: int = 4, verb: Verb = Verb.DEPLOY, stall: str | None = None) -> DeploymentRow:
    facts = DeploymentFacts(
        id=TOY, name="org/toy", version=3, bytes_total=256 * MIB, chunk_count=1024, verb=verb, stall=stall,
        own=node(1),
    )  # fmt: skip
    targets = [TargetFacts(node(n), f"node-{n}", f"r{n % 2}", "alive") for n in range(1, hosts)]
    targets.append(TargetFacts(node(hosts), f"node-{hosts}", f"r{hosts % 2}", "dead"))
    return deployment_row(facts, toy_table(complete, hosts), targets, now=102.0)


def report_of(row: DeploymentRow) -> ReportRow:
    """What a daemon would tell of it: node-1 read storage, and each next host was ten seconds later."""
    traffic = [
        TrafficRow(
            name=host.name, rack=host.rack, started_s=1000, elapsed_s=4 + 10 * at if host.state == "complete" else 0,
            source_bytes=0 if at else row.source_bytes, peer_bytes_same_rack=row.bytes_total if at else 0,
            peer_bytes_cross_rack=0, duplicate_bytes=0, corrupt_chunks=0,
        )
        for at, host in enumerate(row.hosts)
        if host.state != "init"
    ]  # fmt: skip
    shares = {host.name: b64encode(bytes([255, 100, 254])).decode() for host in row.hosts}
    timeline = TimelineRow(
        began_s=1000.0, step_s=2.0, moved=[(0, 0, 0), (7, 0, 0), (row.source_bytes - 7, row.bytes_total, 0)],
        shares=shares, reasons={row.hosts[-1].name: [(1.5, "all_busy"), (4.0, "")]},
        silences={row.hosts[-1].name: (5.5, 0.5)}, told_s=6.0,
    )  # fmt: skip
    return ReportRow(
        told_by="node-1", told_at="2026-11-25T10:00:00Z", money_per_gb=0.5, deployment=row, traffic=traffic,
        timeline=timeline,
    )  # fmt: skip


@dataclass
class FakeDaemon:
    """StatusPort and Operations in one; ``orders`` is what it was told."""

    rows: list[DeploymentRow] = field(default_factory=lambda: [toy_row()])
    manifests: list[ManifestRow] = field(default_factory=list)
    costs: Costs | None = None
    alarms: list[AlarmRow] = field(default_factory=list)
    ready: bool = True
    newcomer_words: str = ""
    settling_words: str = ""
    bad_chunks: int = 0
    missing_chunks: int = 0
    orders: list[tuple[object, ...]] = field(default_factory=list)
    steps_closed: int = 0
    path: str = "/m/org/toy/2"
    trouble: str = ""
    looks: int = 0
    ring: EventRing = field(default_factory=lambda: EventRing(7))
    needs_restart: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def snapshot(self) -> StatusSnapshot:
        return StatusSnapshot(
            node=NodeRow(name="node-1", rack="r1", address="127.0.0.1:7946", version="0.1.0", uptime_s=200.0),
            members=[
                MemberRow(
                    name=f"node-{n}",
                    rack=f"r{n % 2}",
                    address=f"127.0.0.1:{7940 + n}",
                    state="dead" if n == 4 else "alive",
                    seed=n in (1, 2),
                    version="0.1.0",
                    since_s=60.0 * n,
                )
                for n in range(1, 5)
            ],
            deployments=[],
            security=SecurityRow(state="ok", bulk_encryption="tls"),
            store=StoreRow(condition="ok", free_bytes=10 << 40, oldest_unchecked_s=3600.0),
            alarms=self.alarms,
        )

    def deployments(
        self, name: str | None = None, version: int | None = None, *, hosts_max: int | None = None,
        host: str | None = None,
    ) -> Iterator[DeploymentRow]:  # fmt: skip
        for row in sorted(self.rows, key=lambda row: (row.name, -row.version)):
            if name not in (None, row.name) or version not in (None, row.version):
                continue
            if host is None:
                yield row if hosts_max is None else grouped(row, hosts_max)
            elif alone := [each for each in row.hosts if each.name == host]:
                yield msgspec.structs.replace(row, hosts=alone)

    def deployment_count(self) -> int:
        return len(self.rows)

    def report(self, name: str, version: int | None) -> ReportRow | None:
        row = next(self.deployments(name, version), None)
        return None if row is None else report_of(row)

    def sketches(self, name: str, version: int) -> Iterator[SketchRow]:
        """The first host has all, the third its first half, and of the last two nothing is known."""
        for number, shares in ((1, bytes([254] * 64)), (3, bytes([254] * 31 + [100] + [0] * 31 + [255]))):
            yield SketchRow(
                name=f"node-{number}", rack=f"r{number % 2}", known_by="announcements", age_s=1.5,
                chunks_held=1024 // number, shares=b64encode(shares).decode(),
            )  # fmt: skip

    def fine_sketch(self, name: str, version: int, host: str) -> tuple[SketchRow | None, str]:
        """The first host has answered; the others are silent."""
        if host != "node-1":
            return None, "silent"
        shares = b64encode(bytes([254] * 256)).decode()
        return SketchRow(
            name=host, rack="r1", known_by="answer", age_s=0.4, chunks_held=1024, shares=shares
        ), "answered"  # fmt: skip

    def host_name(self) -> str:
        return "node-1"

    def label(self, name: str, version: int | None) -> str:
        return name if version is None else f"{name}@{version}"

    def names(self) -> Iterator[tuple[str, str]]:
        yield from (("model", f"{row.name}@{row.version_label or row.version}") for row in self.deployments())
        members = self.snapshot().members
        yield from (("name", one.name) for one in members)
        yield from (("rack", rack) for rack in dict.fromkeys(one.rack for one in members))

    async def look(self) -> None:
        self.looks += 1

    def models(self) -> Sequence[ModelRow]:
        done = ModelRow(
            name="org/toy", version=2, state="complete", current=True, bytes_total=200 * MIB, path=self.path,
            trouble=self.trouble,
        )  # fmt: skip
        part = ModelRow(name="org/toy", version=3, state="downloading", current=False, bytes_total=256 * MIB, path=None)
        return [part, done]

    def manifest(self, name: str | None, version: int | None, deployment: str | None) -> ManifestRow | None:
        found = [
            row
            for row in self.manifests
            if name in (None, row.name) and version in (None, row.version) and deployment in (None, row.id)
        ]
        return max(found, key=lambda row: row.version, default=None)

    def peers(self) -> dict[str, PeerRow]:
        return {"aa" * 16: PeerRow(chunks_out=3)}

    def counters(self) -> LocalCounters:
        fetches, lag = Histogram(FETCH_BOUNDS_S), LoopLag()
        fetches.observe(0.02)
        fetches.observe(99.0)
        lag.observe(0.0004)
        return LocalCounters(
            deployments=[
                DeploymentCounters(
                    deployment="org/toy@3",
                    received_bytes={"origin": 128 * MIB, "peer_rack": 128 * MIB, "peer_far": 0},
                    sent_bytes={"rack": MIB, "far": 0},
                    verify_failures={"peer": 1},
                    wasted_bytes={"duplicate": 0, "corrupt": MIB, "cancelled": 0},
                    chunks={"held": 1024, "missing": 0, "in_flight": 0},
                )
            ],
            source_requests={("http", "ok"): 12},
            refused={"bad_mac": 3},
            credential_ends={"s3": 1_800_000_000.0},
            uploads_failed={"E_RELAY_ENDED": 1},
            control_bytes={"sent": 10, "received": 20},
            control_events={"link_dialed": 2},
            planner_events=7,
            planner_turns=3,
            fetch_seconds=fetches.figures(),
            loop_lag_seconds=lag.histogram.figures(),
        )

    def newcomer(self, *, at_start: bool = False) -> str:
        return self.settling_words if at_start else self.newcomer_words

    def health(self) -> HealthRow:
        return HealthRow(ready=self.ready, reasons=[] if self.ready else ["the store is full"])

    async def deploy(self, manifest: str, *, dry_run: bool, budget: str) -> Deployed:
        done = self._take("deploy", manifest, dry_run, *([budget] if budget else []))
        return Deployed(changed=not dry_run, sentence=done.sentence, manifest=self.manifests[0], costs=self.costs)

    async def cancel(self, name: str, version: int, *, force: bool) -> Done:
        return self._take("cancel", name, version, *([force] if force else []))

    async def pause(self, name: str, version: int, *, undo: bool) -> Done:
        return self._take("resume" if undo else "pause", name, version)

    async def remove(self, name: str, version: int, *, dry_run: bool, everywhere: bool) -> Done:
        return self._take("rm", name, version, dry_run, *(["everywhere"] if everywhere else []))

    async def rollback_everywhere(self, name: str, version: int | None) -> Done:
        return self._take("rollback", name, version, "everywhere")

    async def pin(self, name: str, version: int | None, *, undo: bool) -> Done:
        return self._take("unpin" if undo else "pin", name, version)

    async def warm(self, name: str, version: int | None) -> Done:
        return self._take("warm", name, version)

    def wants(self) -> list[WantRow]:
        return [WantRow(name="org/toy", want="ep:3/16", configured=None, ordered="ep:3/16")]

    async def want(
        self, name: str, terms: list[str], *, clear: bool, free: bool, holder: str = "",
        process: CallingProcess = NO_PROCESS,
    ) -> WantInForce:  # fmt: skip
        done = self._take("want", name, terms, clear, free, holder, *([process.pid] if holder else []))
        return WantInForce(
            changed=True, sentence=done.sentence, want="\n".join(sorted(terms)), version=3, bytes_wanted=5 * MIB
        )

    async def prune(self, *, dry_run: bool) -> Pruned:
        done = self._take("prune", "", dry_run)
        kept = PrunedRow(model="org/toy@3", bytes_total=5, last_used_at=None, current=True, kept="pinned")
        return Pruned(changed=done.changed, sentence=done.sentence, evicted=[], kept=[kept])

    async def rollback(self, name: str) -> Done:
        return self._take("rollback", name)

    async def untrust(self, key: str, name: str, version: int, *, undo: bool) -> Done:
        return self._take("untrust", key or name, version, undo)

    async def override(self, name: str) -> Done:
        return self._take("override", name)

    async def forget(self, node: str) -> Done:
        if node == "node-1":
            raise LocalError("node-1 is alive; stop it first", code="E_ALIVE")
        return self._take("forget", node)

    async def reload(self) -> Reloaded:
        if self.problems:
            raise ConfigError(tuple(Problem("/d/gossipd.toml:3", key, "is wrong") for key in self.problems))
        applied = ["log.level"]
        return Reloaded(
            changed=True, sentence="applied log.level", applied=applied, needs_restart=self.needs_restart
        )  # fmt: skip

    async def verify(self, name: str, version: int) -> AsyncGenerator[VerifyStep, None]:
        self._take("verify", name, version)
        try:
            yield VerifyStep(chunks_checked=512, chunks_total=1024, bad_count=0)
            bad = [f"weights.safetensors bytes {n}-{n + 9} (chunk {n})" for n in range(self.bad_chunks)]
            yield VerifyStep(
                chunks_checked=1024 - self.missing_chunks,
                chunks_total=1024,
                bad_count=self.bad_chunks,
                missing_count=self.missing_chunks,
                bad_chunks=bad,
                version_label=show_step(version),
                done=True,
            )
        finally:
            self.steps_closed += 1

    async def publish(
        self, user: int, directory: str, name: str, *, version: int | None, step: int | None, how: str,
        keep_last: int | None, keep_every: int | None, about: str, exclude: str,
    ) -> AsyncGenerator[PublishStep, None]:  # fmt: skip
        more = filter(None, (keep_last, keep_every, about, exclude))
        self._take("publish", name, user, directory, version, step, how, *more)
        begun = PublishStep(stage="hashing", name=name, version=0, bytes_done=0, bytes_total=9, file_count=2)
        yield begun
        yield msgspec.structs.replace(begun, version=version or 1, id=TOY.hex(), done=True)

    async def shards(
        self, user: int, directory: str, name: str, *, rank: int, ranks: int, chunk_bytes: int, exclude: str
    ) -> AsyncGenerator[PublishStep, None]:
        self._take("shards", name, user, directory, rank, ranks, *filter(None, [exclude]), chunk_bytes)
        yield self._signed(name, b"shards %d" % rank)

    async def assemble(
        self, user: int, shards: str, name: str, *, version: int | None, step: int | None, keep_last: int | None,
        keep_every: int | None, about: str,
    ) -> AsyncGenerator[PublishStep, None]:  # fmt: skip
        found = sorted(path.read_bytes() for path in Path(shards).iterdir()) if os.path.isdir(shards) else []
        self._take("assemble", name, user, version, step, keep_last, keep_every, *filter(None, [about]), *found)
        yield self._signed(name, b"whole")

    def _signed(self, name: str, envelope: bytes) -> PublishStep:
        return PublishStep(
            stage="hashing", name=name, version=7, bytes_done=9, bytes_total=9, file_count=2, done=True,
            id=TOY.hex(), envelope=b64encode(envelope).decode(),
        )  # fmt: skip

    async def adopt_shards(
        self, user: int, directory: str, manifest: str, *, is_told: bool
    ) -> AsyncGenerator[PublishStep, None]:
        body = Path(manifest).read_bytes() if os.path.isfile(manifest) else b""
        self._take("adopt-shards", body.decode(), user, directory, is_told)
        yield self._signed("m", b"")

    async def adopt(self, user: int, directory: str, manifest: str, *, how: str) -> AsyncGenerator[PublishStep, None]:
        self._take("adopt", manifest, user, directory, how)
        yield PublishStep(stage="deploying", name="m", version=1, bytes_done=9, bytes_total=9, file_count=2, done=True)

    def _take(self, verb: str, name: str, *rest: object) -> Done:
        if name == "nothing":
            raise NotFoundError("nothing is not deployed here")
        self.orders.append((verb, name, *rest))
        return Done(changed=True, sentence=f"{verb} {name} done")
