"""The fields of ``gossipd status --json``, as typed values.

What lives here: the structures, in the order and with the names that scripts rely on. A field may be added; changing
one raises ``SCHEMA_VERSION``. What does not: filling (``deployment_row``), sending (``answers``) and display (``cli``).

Units: bytes and counts are integers, durations end in ``_s``, times are RFC 3339 in UTC. ``null`` means unknown.
"""

from __future__ import annotations

from typing import Any

import msgspec

SCHEMA_VERSION = 1


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all rows: immutable, fields by name only."""


class NodeRow(Row, frozen=True, kw_only=True):
    """This daemon. ``address`` is the advertised one; ``version`` is the software's."""

    name: str
    rack: str
    zone: str = ""
    id: str = ""
    address: str
    version: str
    uptime_s: float


class MemberRow(Row, frozen=True, kw_only=True):
    """One host on the roster. ``state``: alive, suspect, dead, left, or unheard: it has never answered this host, and
    was asked several times or is gone, so it may be made up. ``seed``: it reads storage for its rack.
    ``clock_ahead_s``: of its clock against this host's, some seconds exact; null until it has told progress.
    ``prints``: of what should be the same on all hosts, by name; empty for a host that tells none. ``free_bytes``: its
    room for models, in coarse steps and up to five minutes old; null for a host that tells none."""

    name: str
    rack: str
    zone: str = ""
    id: str = ""
    address: str
    state: str
    seed: bool
    version: str = ""
    since_s: float | None = None
    clock_ahead_s: float | None = None
    prints: dict[str, str] = msgspec.field(default_factory=dict)
    free_bytes: int | None = None


class HostRow(Row, frozen=True, kw_only=True):
    """One target of one deployment. ``reason`` may be empty; ``subject`` is whom it is about: the name of the host that
    reads storage and cannot, or that is silent, else the head of a key's id. ``file``: that storage does not give.
    ``reason_s``: for how long it has been heard. ``current``: the version of that name that users see there, told by
    hosts that have this one complete. ``here``: the host that answers; another may bear its name. Of a host that wants
    a part: ``chunks_wanted``, ``bytes_wanted`` and ``bytes_verified``, null for others; ``want``: its terms, a line
    each, empty for everything, or where they are too long.
    """

    name: str
    rack: str
    state: str
    chunks_verified: int
    age_s: float | None
    reason: str
    subject: str = ""
    file: str = ""
    reason_s: float | None = None
    current: int | None = None
    chunks_wanted: int | None = None
    bytes_wanted: int | None = None
    bytes_verified: int | None = None
    want: str = ""
    here: bool = False


class HostGroupRow(Row, frozen=True, kw_only=True):
    """Targets of a deployment that have no row of their own, in one rack, with the same words. ``current``: as of
    ``HostRow``. ``chunks_verified`` and ``chunks_wanted`` are sums; a host that wants everything counts with all."""

    rack: str
    state: str
    reason: str
    hosts: int
    chunks_verified: int
    chunks_wanted: int
    current: int | None = None


class DeploymentRow(Row, frozen=True, kw_only=True):
    """One deployment over the whole cluster, as far as this node knows. ``bytes_total`` and ``chunks_total`` are the
    model's. ``bytes_verified`` and ``chunks_verified`` are means over the targets, where the share of a part counts for
    the whole, so they equal the totals exactly when every target has what it wants. The ``cluster_`` fields are sums
    over the targets of the bytes that each wants, and of those that it has; they fall only when a host wants another
    part. ``word``: the last one that was said of it, deploy, cancel, pause, roll_back or remove.
    ``source_budget_bytes``: what may be read from storage as this host is set; null for no limit. ``recoverable``:
    complete on a living host, or living hosts that this one has heard have each chunk, or its storage can be read.
    ``current_labels``: ``300.2`` by the version, of other versions in ``current`` of its hosts that are steps.
    ``left_out``: the targets that are not in ``hosts``: complete ones, where the question has a ``hosts_max``."""

    id: str
    name: str
    version: int
    state: str
    bytes_total: int
    bytes_verified: int
    chunks_total: int
    chunks_verified: int
    hosts_total: int
    hosts_complete: int
    hosts_failed: int
    source_bytes: int
    peer_bytes_same_rack: int
    peer_bytes_cross_rack: int
    duplicate_bytes: int
    corrupt_chunks: int
    rate_in_bytes_per_s: int
    rate_out_bytes_per_s: int
    eta_s: float | None
    started_at: str | None
    completed_at: str | None
    hosts: list[HostRow]
    cluster_bytes_total: int
    cluster_bytes_verified: int
    priority: int = 5
    source_budget_bytes: int | None = None
    stall: str | None = None
    signed_by: str = ""
    version_label: str = ""
    lineage: str = ""
    word: str = "deploy"
    recoverable: bool = False
    corrupt_bytes: int = 0
    cancelled_bytes: int = 0
    eta_p50_s: float | None = None
    current_labels: dict[str, str] = msgspec.field(default_factory=dict)
    left_out: list[HostGroupRow] = msgspec.field(default_factory=list)


class SecurityRow(Row, frozen=True, kw_only=True):
    """``state``: ok, or degraded with ``reasons``. ``bulk_encryption``: tls, or none (tokens, unencrypted)."""

    state: str
    bulk_encryption: str
    reasons: list[str] = msgspec.field(default_factory=list)


class StoreRow(Row, frozen=True, kw_only=True):
    """The disk. ``condition``: ok, full, read_only, failing, handles or silent; ``detail`` names the cause and the
    remedy."""

    condition: str
    detail: str = ""
    free_bytes: int = 0
    need_bytes: int = 0
    oldest_unchecked_s: float | None = None


class WatermarkRow(Row, frozen=True, kw_only=True):
    """Making room on the disk. ``used_percent``: of the file system, by anybody. The marks are shares of it; ``high``
    is 0 when nothing is evicted by it. ``pinned``: NAME, for its current version, or NAME@VERSION;
    ``pinned_labels``: the same with ``300.2`` for the step of a run. ``evicted``: since the start, by the high mark or
    ``gossipd prune``."""

    used_percent: float = 0.0
    high_percent: int = 0
    low_percent: int = 0
    pinned: list[str] = msgspec.field(default_factory=list)
    evicted: int = 0
    pinned_labels: list[str] = msgspec.field(default_factory=list)


class PrunedRow(Row, frozen=True, kw_only=True):
    """A complete version. ``last_used_at``: read by others, to a day. ``kept``: pinned, held, open, deploying,
    replica, gone; or empty. ``label``: ``model`` with ``300.2`` for the step of a run."""

    model: str
    bytes_total: int
    last_used_at: str | None
    current: bool
    kept: str = ""
    label: str = ""


class InboxRow(Row, frozen=True, kw_only=True):
    """The drop folder since the start. ``trouble`` is null while it works."""

    accepted: int = 0
    refused: int = 0
    waiting: int = 0
    trouble: str | None = None


class AuditRow(Row, frozen=True, kw_only=True):
    """The audit log. ``head`` is the hash of its last record; a copy kept elsewhere shows if the end was cut off."""

    records: int = 0
    head: str = ""
    trouble: str | None = None


class HooksRow(Row, frozen=True, kw_only=True):
    """The hooks since the start. ``last_failure`` is null until one has failed."""

    done: int = 0
    failed: int = 0
    dropped: int = 0
    waiting: int = 0
    last_failure: str | None = None


class LimitsRow(Row, frozen=True, kw_only=True):
    """Limits of this host that are in force, in bytes a second; 0 is none. ``entry``: of ``limits.schedule``, empty
    between entries. ``until``: when another entry, or none, comes into force; null without a schedule.
    ``shared_bytes_per_s``: what ``net.background`` leaves to downloads now, while others use the link; it counts beside
    the others."""

    upload_bytes_per_s: int = 0
    download_bytes_per_s: int = 0
    source_bytes_per_s: int = 0
    shared_bytes_per_s: int = 0
    entry: str = ""
    until: str | None = None


class WarmRow(Row, frozen=True, kw_only=True):
    """A current version with ``store.warm``. ``state``: reading, read, ``no room``, ``memory is short``.
    ``bytes_cached``: of its files in this host's page cache some seconds ago; null where the kernel does not tell."""

    model: str
    bytes_total: int
    bytes_cached: int | None
    state: str


class AlarmRow(Row, frozen=True, kw_only=True):
    """A problem that an operator must act upon; it stays until it is solved."""

    code: str
    sentence: str
    since: str


class RefusedRow(Row, frozen=True, kw_only=True):
    """A deployment that this host has refused before it could know its name. ``subject``: the head of a key's id."""

    id: str
    reason: str
    subject: str = ""
    sentence: str = ""


class SlowStepsRow(Row, frozen=True, kw_only=True):
    """A task of this daemon that has held up its event loop for 20 ms or more at once: how often since the start, and
    for how long at most. ``longest_cpu_s``: the most CPU time of one step; much below ``longest_s``, the task waited
    itself."""

    task: str
    steps: int
    longest_s: float
    longest_cpu_s: float


class StatusSnapshot(Row, frozen=True, kw_only=True):
    """The answer to ``GET /v1/status``."""

    schema_version: int = SCHEMA_VERSION
    node: NodeRow
    members: list[MemberRow]
    deployments: list[DeploymentRow]
    security: SecurityRow
    store: StoreRow
    inbox: InboxRow = InboxRow()
    audit: AuditRow = AuditRow()
    alarms: list[AlarmRow] = msgspec.field(default_factory=list)
    loop_lag_p99_s: float = 0.0
    slow_steps: list[SlowStepsRow] = msgspec.field(default_factory=list)
    hooks: HooksRow = HooksRow()
    refused: list[RefusedRow] = msgspec.field(default_factory=list)
    limits: LimitsRow = LimitsRow()
    watermark: WatermarkRow = WatermarkRow()
    warm: list[WarmRow] = msgspec.field(default_factory=list)


class ModelRow(Row, frozen=True, kw_only=True):
    """One version of one model on this host. ``path`` is null until it is published. ``version_label``: ``300.2`` for
    the step of a run; ``lineage``: run and step, in a few words. ``want``: the terms of a part, a line each; then
    ``path`` is that of the part, and ``bytes_wanted`` its size, null for a whole model. ``trouble``: why it is not
    whole at its path, though it was published there, and the cure."""

    name: str
    version: int
    state: str
    current: bool
    bytes_total: int
    path: str | None
    completed_at: str | None = None
    oldest_unchecked_s: float | None = None
    version_label: str = ""
    lineage: str = ""
    want: str = ""
    bytes_wanted: int | None = None
    trouble: str = ""


class WantRow(Row, frozen=True, kw_only=True):
    """What this host wants of a model that it need not take whole: terms, a line each; empty for everything. ``want``
    is in force: what ``configured`` and ``ordered`` name together; each of them is null where it says nothing."""

    name: str
    want: str
    configured: str | None
    ordered: str | None


class ManifestRow(Row, frozen=True, kw_only=True):
    """What a manifest says, but for its files and hashes. ``schema``: 1 or 2. ``borders``: tensors or plain. ``keep``,
    ``about`` and ``labels`` as the publisher signed them. ``version_label``: ``300.2`` for the step of a run.
    ``tensors`` is null where nobody has counted them: a daemon does not."""

    id: str
    name: str
    version: int
    version_label: str
    schema: int
    created_at: str | None
    expires_at: str | None
    signed_by: str
    priority: int
    files: int
    directories: list[str]
    bytes_total: int
    chunk_bytes: int
    chunks_total: int
    borders: str
    has_index: bool
    tensors: int | None = None
    root: str
    sources: list[str]
    racks: list[str]
    names: list[str]
    keep: dict[str, int] | None
    about: dict[str, Any]
    labels: dict[str, str]


class PeerRow(Row, frozen=True, kw_only=True):
    """Traffic of this host with one peer since this daemon started: bodies of whole chunks only."""

    bytes_in: int = 0
    bytes_out: int = 0
    chunks_in: int = 0
    chunks_out: int = 0
    busy_in: int = 0
    """How often the peer had no slot for us."""
    busy_out: int = 0


class TrafficRow(Row, frozen=True, kw_only=True):
    """What one host has moved of one deployment since it first heard of it. ``name``: the head of its id where it is
    off the roster; ``rack`` is then empty. ``started_s``: seconds since 1970, 0 for a host that has not begun.
    ``elapsed_s``: from then to its end, 0 before it."""

    name: str
    rack: str
    started_s: int
    elapsed_s: int
    source_bytes: int
    peer_bytes_same_rack: int
    peer_bytes_cross_rack: int
    duplicate_bytes: int
    corrupt_chunks: int
    corrupt_bytes: int = 0
    cancelled_bytes: int = 0


class TimelineRow(Row, frozen=True, kw_only=True):
    """The course of a deployment as this host heard it. ``began_s``: seconds since 1970; other times count from it.
    ``moved``: of each column of ``step_s`` seconds the bytes from storage, same rack, other racks. ``shares``: of each
    host in base64 a byte for each column, the share that it has in 254ths, 255 before its first word. ``reasons``:
    since when which word. ``silences``: the longest time without a word before the end, and its beginning; a
    short one where the host was started again in it.
    ``told_s``: when this was told. ``sketches``: of hosts whose chunks this one knew, in base64 for each of up to 64
    bins of adjacent chunks four numbers of two bytes: the columns at which a quarter, a half, three quarters and all of
    it were there, 65,535 for not yet, 65,534 where nothing is wanted."""

    began_s: float
    step_s: float
    moved: list[tuple[int, int, int]]
    shares: dict[str, str]
    reasons: dict[str, list[tuple[float, str]]]
    silences: dict[str, tuple[float, float]]
    told_s: float
    sketches: dict[str, str] = {}


class ReportRow(Row, frozen=True, kw_only=True):
    """What a deployment did, as this host has heard it. ``money_per_gb``: of external storage, 0 where it is not set.
    ``timeline`` is null where the daemon heard of it only when it had ended."""

    told_by: str
    told_at: str
    money_per_gb: float
    deployment: DeploymentRow
    traffic: list[TrafficRow]
    timeline: TimelineRow | None


class SketchRow(Row, frozen=True, kw_only=True):
    """Which chunks of one deployment a host has. ``shares``: in base64 a byte for each of up to 64 bins of adjacent
    chunks, the share of the wanted ones that is there in 254ths, 255 where none is wanted. ``chunks_held``: of the
    wanted ones; with those that a host has announced while they arrive there. ``known_by``: itself, for the daemon that
    answers; announcements, which a host's neighbours get; progress, of a host that has all chunks or none; or answer,
    of a host that was asked: it and the daemon that answers give up to 256 bins where ``bins`` wants them.
    ``age_s``: since that was said."""

    name: str
    rack: str
    known_by: str
    age_s: float
    chunks_held: int
    shares: str


class SketchesRow(Row, frozen=True, kw_only=True):
    """The answer to ``GET /v1/sketch``. ``hosts``: of the ``hosts_total`` targets those of which it is known.
    ``asked``: with ``bins=256``, what became of asking the host: waiting, answered, declined, silent (it runs 0.1.0, or
    is too busy), unreachable, or full: too many are asked already. Ask again in a second."""

    told_by: str
    name: str
    version: int
    version_label: str
    chunks_total: int
    hosts_total: int
    hosts: list[SketchRow]
    asked: str = ""


class HealthRow(Row, frozen=True, kw_only=True):
    """``ready``: the host has joined, and disk and clock are fine; else ``reasons``."""

    ready: bool
    reasons: list[str] = msgspec.field(default_factory=list)
