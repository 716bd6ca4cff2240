"""One deployment's row of the status page, made from the progress that all hosts have told.

What lives here: a pure function. What does not: the sums (``deployment.progress_table``) and the fields' names
(``schema``).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import cached_property
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gossipd.api.schema import DeploymentRow, HostRow
from gossipd.core.ids import DeploymentId
from gossipd.core.reasons import CuredBy, HostReason
from gossipd.core.units import timestamp
from gossipd.core.versions import show_step
from gossipd.deployment.counters import counters_of
from gossipd.deployment.progress_record import DELETED, SUBJECT_BYTES, HostState, progress_key
from gossipd.deployment.progress_table import (
    ClusterProgress,
    HostProgress,
    Totals,
    bytes_wanted,
    deployment_state,
    verified_bytes,
)
from gossipd.deployment.statement import STOPS, Verb
from gossipd.deployment.states import FINAL
from gossipd.manifest.manifest import FileEntry
from membership.member import NodeId

RATE_FLOOR_BYTES_PER_S = 1024  # below this an ETA would have no meaning
_STANDING = {one for one in HostReason if one.cured_by is CuredBy.DISK}
_STANDING |= {HostReason.CLOCK_WRONG, HostReason.PAUSED, HostReason.NO_COPY}


class DeploymentFacts(Struct, frozen=True, kw_only=True):
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
    verb: Verb = Verb.DEPLOY
    one_copy: bool = False
    """The planner knows that every chunk is held by some host, before any host has all of them."""
    served: Set[NodeId] = frozenset()
    """Hosts that want a part, of which it knows that."""
    stall: str | None = None
    """Why no chunk arrives here, as in ``core.events.StallReason``; the row shows the reason that this host tells."""
    source_budget_bytes: int | None = None
    own: NodeId | None = None
    version_label: str = ""
    lineage: str = ""
    files: Sequence[FileEntry] = ()
    has_sources: bool = False
    """Whether storage has it."""
    is_step: bool = False
    """Whether versions of the name are steps of a run."""

    @property
    def cancelled(self) -> bool:
        """Whether no host goes on to fetch it."""
        return self.verb in STOPS


class TargetFacts(Struct, frozen=True):
    """One target of the deployment on the roster. ``member_state``: alive, suspect, dead or left."""

    node: NodeId
    name: str
    rack: str
    member_state: str
    is_twice: bool = False
    """Two hosts speak with its key: neither's word counts."""


def deployment_row(
    facts: DeploymentFacts, table: ClusterProgress, targets: Sequence[TargetFacts], *, now: float
) -> DeploymentRow:
    """One row, with the hosts in the order of ``targets``. ``now`` is on the clock that fed ``table``."""
    key = progress_key(facts.id)
    single = [each.node for each in targets if not each.is_twice]
    totals = table.totals(key, single, chunk_count=facts.chunk_count, bytes_total=facts.bytes_total, now=now)
    if len(single) < len(targets):
        totals = replace(totals, hosts_total=len(targets), completed_s=0)
    reasons = _Reasons(table, key, targets, facts.files)
    told = [_host_row(each, reasons, facts, now) for each in targets]
    hosts, states = [each.row for each in told], [each.state for each in told]
    told_here = [host.reason for host, each in zip(hosts, targets, strict=True) if each.node == facts.own]
    count = max(1, totals.hosts_total)
    wanted = totals.bytes_wanted + facts.bytes_total * (totals.hosts_total - len(single))
    rates = (totals.rate_in_bytes_per_s, totals.rate_out_bytes_per_s)
    rate_in, rate_out = (
        (0, 0) if _stands_still(told) else (each if each >= RATE_FLOOR_BYTES_PER_S else 0 for each in rates)
    )
    eta_s = _eta_s(facts, totals, told, rate_in)
    started = [moment for moment in (facts.started_s, totals.started_s) if moment > 0]
    return DeploymentRow(
        id=facts.id.hex(),
        name=facts.name,
        version=facts.version,
        state=deployment_state(states, one_copy=facts.one_copy, cancelled=facts.cancelled),
        bytes_total=facts.bytes_total,
        bytes_verified=verified_bytes(totals.chunks_verified, facts.chunk_count * count, facts.bytes_total),
        chunks_total=facts.chunk_count,
        chunks_verified=totals.chunks_verified // count,
        hosts_total=totals.hosts_total,
        hosts_complete=totals.hosts_complete,
        hosts_failed=totals.hosts_failed,
        rate_in_bytes_per_s=rate_in,
        rate_out_bytes_per_s=rate_out,
        eta_s=eta_s,
        eta_p50_s=None if eta_s is None else _eta_p50_s(facts, told, rate_in, eta_s),
        started_at=timestamp(min(started, default=0.0)),
        completed_at=timestamp(totals.completed_s),
        hosts=hosts,
        cluster_bytes_total=wanted,
        cluster_bytes_verified=totals.bytes_verified,
        priority=facts.priority,
        source_budget_bytes=facts.source_budget_bytes,
        stall="".join(told_here) or facts.stall if facts.stall is not None else None,
        signed_by=facts.signed_by,
        version_label=facts.version_label or str(facts.version),
        lineage=facts.lineage,
        word=facts.verb.name.lower(),
        recoverable=_is_recoverable(facts, targets, told),
        current_labels=_current_labels(facts, hosts),
        left_out=[],
        **counters_of(totals),
    )


def host_rows(
    facts: DeploymentFacts, table: ClusterProgress, targets: Sequence[TargetFacts], shown: Sequence[TargetFacts], *,
    now: float,
) -> list[HostRow]:  # fmt: skip
    """As in ``deployment_row`` of these targets, the rows of those that are ``shown``."""
    reasons = _Reasons(table, progress_key(facts.id), targets, facts.files)
    return [_host_row(each, reasons, facts, now).row for each in shown]


def _current_labels(facts: DeploymentFacts, hosts: Sequence[HostRow]) -> dict[str, str]:
    """How other versions that users see on hosts are written, where they are steps and that is not the number."""
    if not facts.is_step:
        return {}
    others = {host.current for host in hosts} - {facts.version}
    labels = {str(version): show_step(version) for version in others if version is not None}
    return {version: label for version, label in labels.items() if label != version}


def _is_recoverable(facts: DeploymentFacts, targets: Sequence[TargetFacts], told: Sequence[_Told]) -> bool:
    """Whether it is complete on a living host, or can become so on all that live, as far as this host knows. One with
    all of the part that it wants is a source for those that want the same, and for no other."""
    living = [one for one in zip(targets, told, strict=True) if one[1].row.reason not in ("dead", "left")]
    complete = {_part_of(each.row) for _, each in living if each.state is HostState.COMPLETE}
    under_way = {target.node: each.row for target, each in living if each.state not in FINAL}
    if "" in complete or facts.one_copy or not under_way:
        return bool(complete or under_way)
    if facts.has_sources and any(not host.reason.startswith("source_") for host in under_way.values()):
        return True
    return all(_part_of(row) in complete or (_part_of(row) and node in facts.served) for node, row in under_way.items())


def _part_of(row: HostRow) -> str:
    """The terms of the part that the host wants; empty where it wants everything."""
    return row.want if row.chunks_wanted else ""


class _Reasons:
    """The one reason of each target, with whom it is about."""

    def __init__(
        self, table: ClusterProgress, key: bytes, targets: Sequence[TargetFacts], files: Sequence[FileEntry]
    ) -> None:
        self._table = table
        self._files = files
        self._key = key
        self._targets = targets

    def row(self, target: TargetFacts) -> HostProgress | None:
        return self._table.host(target.node, self._key)

    @cached_property
    def _by_subject(self) -> dict[bytes, TargetFacts]:
        return {each.node[:SUBJECT_BYTES]: each for each in self._targets}

    def of(self, target: TargetFacts, row: HostProgress) -> tuple[HostReason, str, str]:
        """The reason, whom it is about, and the file. A host that is gone can change nothing; a host that waits for a
        reader has that reader's reason.
        """
        reason, subject = row.progress.reason, row.progress.subject
        away = _AWAY.get(target.member_state, HostReason.NONE)
        if reason is HostReason.NONE or away in (HostReason.DEAD, HostReason.LEFT):
            return away, "", ""
        if reason.is_the_readers:
            return reason, "", self._file(subject)
        if reason is HostReason.HOLDER_SILENT:
            peer = self._by_subject.get(subject)
            return reason, subject.hex() if peer is None else peer.name, ""
        reader = self._by_subject.get(subject) if reason is HostReason.WAITS_FOR_READER else None
        if reader is None:
            return reason, subject.hex(), ""
        said = self.row(reader)
        if said is None or not said.progress.reason.is_the_readers:
            return reason, reader.name, ""
        return said.progress.reason, reader.name, self._file(said.progress.subject)

    def _file(self, subject: bytes) -> str:
        index = int.from_bytes(subject, "big")
        return self._files[index].path if subject and index < len(self._files) else ""


_AWAY = {one.value: one for one in (HostReason.SUSPECT, HostReason.DEAD, HostReason.LEFT)}


class _Told(NamedTuple):
    """A host's row, and the values that its words stand for."""

    row: HostRow
    state: HostState
    reason: HostReason


def _host_row(target: TargetFacts, reasons: _Reasons, facts: DeploymentFacts, now: float) -> _Told:
    row = reasons.row(target)
    is_here = target.node == facts.own
    if target.is_twice:
        return _unheard(target, HostState.INIT, HostReason.IDENTITY_TWICE, row, now, is_here=is_here)
    if row is None:
        away = _AWAY.get(target.member_state, HostReason.NONE if facts.cancelled else HostReason.NOT_HEARD)
        state = HostState.CANCELLED if facts.cancelled else HostState.INIT
        return _unheard(target, state, away, None, now, is_here=is_here)
    progress, state = row.progress, row.progress.state
    reason, subject, file = reasons.of(target, row)
    held = progress.chunks_verified if state is HostState.COMPLETE or state not in DELETED else 0
    chunks = min(held, facts.chunk_count)
    shown = HostRow(
        name=target.name, rack=target.rack, state=state.value, chunks_verified=chunks, age_s=round(row.age_s(now), 1),
        reason=reason.value, subject=subject, file=file, reason_s=_reason_s(row, reason, now),
        current=progress.current, want=progress.want, here=is_here,
    )  # fmt: skip
    if progress.chunks_wanted:
        shown = msgspec.structs.replace(shown, **_of_a_part(row, chunks, facts))
    return _Told(shown, state, reason)


def _unheard(
    target: TargetFacts, state: HostState, reason: HostReason, row: HostProgress | None, now: float, *, is_here: bool
) -> _Told:  # fmt: skip
    """A host that has told nothing, or whose word does not count."""
    shown = HostRow(
        name=target.name, rack=target.rack, state=state.value, chunks_verified=0, age_s=None, reason=reason.value,
        reason_s=_reason_s(row, reason, now), current=None if row is None else row.progress.current,
        want="" if row is None else row.progress.want, here=is_here,
    )  # fmt: skip
    return _Told(shown, state, reason)


def _reason_s(row: HostProgress | None, reason: HostReason, now: float) -> float | None:
    return None if row is None or reason is HostReason.NONE else round(now - row.reason_at, 1)


def _of_a_part(row: HostProgress, chunks: int, facts: DeploymentFacts) -> dict[str, int]:
    """Figures of a host that wants a part. Bytes on the way are in proportion to chunks, exact for none and all."""
    wanted, told = bytes_wanted(row.progress, facts.bytes_total), row.progress.chunks_wanted
    return {
        "chunks_wanted": told, "bytes_wanted": wanted, "bytes_verified": verified_bytes(chunks, told, wanted)
    }  # fmt: skip


def _stands_still(told: Sequence[_Told]) -> bool:
    """Every host that is not complete tells of a cause that somebody must cure, which it does after some seconds
    without a chunk: rates that were told are over."""
    waiting = [each.reason for each in told if each.state is not HostState.COMPLETE]
    return all(reason.cured_by is not CuredBy.NOBODY for reason in waiting)


def _eta_s(facts: DeploymentFacts, totals: Totals, told: Sequence[_Told], rate_in_bytes_per_s: int) -> float | None:
    """The rest over the cluster's present rate; None when complete, cancelled or standing still, or when a host waits
    for what no rate brings. Hosts that have deleted it are not waited for.
    """
    if facts.cancelled or not rate_in_bytes_per_s:
        return None
    coming = [each for each in told if each.state not in DELETED]
    if any(each.reason in _STANDING for each in coming if each.state is not HostState.COMPLETE):
        return None
    wanted = [each.row.bytes_wanted for each in coming]
    rest = sum(facts.bytes_total if each is None else each for each in wanted) - totals.bytes_verified
    return round(rest / rate_in_bytes_per_s, 1) if rest > 0 else None


def _eta_p50_s(facts: DeploymentFacts, told: Sequence[_Told], rate_in_bytes_per_s: int, last_s: float) -> float:
    """Until half of the hosts have all that they want, if those that lack something share the cluster's rate equally;
    0 when half have it."""
    rests = sorted(_rest_bytes(facts, each) for each in told if each.state not in DELETED)
    lacking = sum(rest > 0 for rest in rests)
    return min(last_s, round(rests[(len(rests) - 1) // 2] * lacking / rate_in_bytes_per_s, 1))


def _rest_bytes(facts: DeploymentFacts, host: _Told) -> int:
    if host.state is HostState.COMPLETE:
        return 0
    row = host.row
    if row.bytes_wanted is not None:
        return row.bytes_wanted - (row.bytes_verified or 0)
    return facts.bytes_total - verified_bytes(row.chunks_verified, facts.chunk_count, facts.bytes_total)
