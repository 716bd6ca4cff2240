"""What this node knows of every host's progress, and the totals over all hosts.

What lives here: the latest record of each host and deployment, their ages, and sums that never fall. What does not: the
record itself (``progress_record``), and its display (``api.schema``).

Totals survive anything that can happen to a host. A counter only rises, to the larger of what was heard before and now,
because a host that was re-installed starts at zero. A chunk that rots stays in the host's peak. A host that is
forgotten leaves its counters behind. ``to_bytes`` keeps the table over a restart.

``chunks_verified`` of a host is what it says now; ``chunks_peak`` is the most it ever said, and totals use the peak. A
host that wants another part than before begins again.

Format of ``to_bytes``, big-endian: one byte version (1), then for each row 16 bytes node, 8 bytes key, 8 bytes record
version, 1 byte, 3 bytes peak, 32 bytes record in form 1 with the merged counters. The lowest bit of the one byte says
that the host is forgotten, the others are the number of a reason that form 1 has no room for. A table of another
version is not read: the totals then start from what gossip brings within one refresh.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gossipd.core.errors import LocalError
from gossipd.core.reasons import HostReason, reason_of_number
from gossipd.core.start_time import began_s
from gossipd.core.timing import CLOCKS_APART_MAX_S
from gossipd.deployment.counters import COUNTER_NAMES
from gossipd.deployment.end_time import with_end
from gossipd.deployment.progress_record import (
    DELETED,
    RECORD_BYTES,
    Budget,
    HostState,
    Progress,
    ProgressFormatError,
    refresh_interval_s,
    state_with,
)
from gossipd.deployment.states import FINAL
from membership.member import NodeId
from membership.writer_counts import WriterCounts

TABLE_VERSION = 1
ROWS_MAX = 262_144  # 4,096 hosts with 64 deployments; the table is then 18 MB on disk
ROWS_PER_HOST_MAX = 1_024  # deployments that a host remembers; the record that was heard longest ago gives way
LOADS_MAX = 4  # sizes of the model that count in a sum of what one host moved: what it says of itself moves no more
RATES_MAX = 16  # of the middle rate, likewise in a sum of rates; links of 100 Gbit/s among those of 10 have ten
STALE_REFRESHES = 5  # rates of a host that has missed this many refreshes do not count

_ROW = struct.Struct(">16s8sQI32s")
_FORGOTTEN = 1 << 24
_REASON_SHIFT = 25
_COUNTERS = attrgetter(*COUNTER_NAMES)


class ProgressTableError(LocalError):
    """A saved table that cannot be read. Fault: this host's disk, or another version wrote it. Retry: without it."""

    code = "E_PROGRESS_TABLE"


class HostProgress(msgspec.Struct, frozen=True, gc=False):
    """One host's last record. ``heard_at`` is on the clock of ``now``; ``age_when_heard_s`` is its age at that time: 0
    from gossip, which is quick and whose records are dated by other hosts' clocks; of a saved table, what these say.
    There are 100,000 of a large cluster, and none is part of a cycle: no collection of garbage goes through them.
    """

    progress: Progress
    packed: bytes
    """As in the saved table: kept so that saving it encodes nothing."""
    version: int
    chunks_peak: int
    heard_at: float
    age_when_heard_s: float
    forgotten: bool = False
    is_signed: bool = False
    """Heard from gossip with the host's signature since this daemon started."""
    reason_at: float = 0.0
    """When the reason was heard first, on the clock of ``now``; this daemon's start for one that it has kept."""

    @property
    def record(self) -> bytes:
        """The record in form 1."""
        return self.packed[-RECORD_BYTES:]

    def age_s(self, now: float) -> float:
        """The age of the record in seconds."""
        return max(0.0, now - self.heard_at) + self.age_when_heard_s


class Totals(Struct, frozen=True, kw_only=True):
    """One deployment over all hosts. Chunks and bytes count the targets, traffic counts all hosts, each with
    ``LOADS_MAX`` sizes of the model at most, and the rate of what is received with ``RATES_MAX`` times the middle one.
    ``chunks_verified``: of a host that wants a part, its share of that counts for the whole; bytes are those that are
    wanted and there."""

    hosts_total: int
    hosts_complete: int
    hosts_failed: int
    chunks_verified: int
    bytes_verified: int
    bytes_wanted: int
    source_bytes: int
    peer_bytes_same_rack: int
    peer_bytes_cross_rack: int
    duplicate_bytes: int
    corrupt_chunks: int
    corrupt_bytes: int
    cancelled_bytes: int
    rate_in_bytes_per_s: int
    rate_out_bytes_per_s: int
    started_s: int
    """When the first host began; 0 when none has."""
    completed_s: int
    """When the last target completed; 0 until all have."""


class ClusterProgress:
    """The table. One task owns it; times are arguments."""

    def __init__(self, *, rows_max: int = ROWS_MAX) -> None:
        self._rows: dict[bytes, dict[NodeId, HostProgress]] = {}
        self._rows_max = rows_max
        self._keys: defaultdict[NodeId, dict[bytes, None]] = defaultdict(dict)  # of each host, heard longest ago first
        self._counts: WriterCounts[NodeId] = WriterCounts()
        self._count = 0
        self.revision = 0
        """Grows when a host says something else than it last said, or tells a rate, and when a row goes."""

        self._revisions: dict[bytes, int] = {}  # of each deployment, as of its last change
        self._latest: dict[NodeId, int] = {}  # the highest version of each host that has rows
        self._wants_news: dict[bytes, set[NodeId]] = {}  # at most a node for each row
        self._budgets: dict[bytes, set[NodeId]] = {}  # rows that tell one, or have told one

    def record(
        self, node: NodeId, key: bytes, version: int, progress: Progress, *, now: float, is_signed: bool = False,
        heard_s: float | None = None,
    ) -> bool:  # fmt: skip
        """Take a record, rounded as others hear it. ``heard_s``: when another's was heard, in seconds since 1970; it is
        rounded already, and ends no later. False when it is not newer than the known, or there is no room. A signed one
        is newer than any that is not, but for those of a saved table: else an old one that is sent again after a
        restart would displace them.
        """
        if heard_s is None:
            progress = Progress.from_body(progress.to_body())
        old = self._rows.get(key, {}).get(node)
        if old is not None and version <= old.version:
            is_kept = old.age_when_heard_s > 0 and version < old.version
            if is_kept or old.is_signed >= is_signed:
                return False
        if old is None and not self._make_room(node):
            return False
        if heard_s is not None:
            progress = with_end(progress, None if old is None else old.progress, heard_s)
        if old is not None:
            progress = _never_falling(old.progress, progress)
        has_its_peak = old is not None and _want(old) == (progress.want, progress.chunks_wanted)
        peak = max(progress.chunks_verified, old.chunks_peak if old is not None and has_its_peak else 0)
        reason_at = old.reason_at if old is not None and old.progress.reason is progress.reason else now
        packed = _packed(node, key, version, peak, progress)
        row = HostProgress(progress, packed, version, peak, now, 0.0, is_signed=is_signed, reason_at=reason_at)
        self._put(node, key, row)
        return True

    def _put(self, node: NodeId, key: bytes, row: HostProgress) -> None:
        rows = self._rows.setdefault(key, {})
        if (old := rows.get(node)) is None:
            self._count += 1
            self._counts.change(node, 1)
        if old is None or old.forgotten or _want(old) != _want(row):
            self._wants_news.setdefault(key, set()).add(node)
        if old is None or old.forgotten or old.progress != row.progress or _has_rate(row.progress):
            self._has_changed(key)
        if row.progress.budget is not None:
            self._budgets.setdefault(key, set()).add(node)
        rows[node] = row
        self._latest[node] = max(row.version, self._latest.get(node, 0))
        self._keys[node].pop(key, None)
        self._keys[node][key] = None

    def _has_changed(self, key: bytes) -> None:
        self.revision += 1
        self._revisions[key] = self.revision

    def revision_of(self, key: bytes) -> int:
        """``revision`` of one deployment."""
        return self._revisions.get(key, 0)

    def _make_room(self, node: NodeId) -> bool:
        """Whether one more row fits. A host that tells of very many deployments pushes out only its own rows. Where all
        are too many, the host with most of them loses its oldest: members that somebody makes up could else keep those
        that come from being heard, for ever."""
        counts = self._counts
        if (own := counts.of(node)) >= ROWS_PER_HOST_MAX:
            self._drop_oldest(node)
        elif self._count >= self._rows_max:
            if counts.of(counts.loudest) <= own + 1:
                return False
            self._drop_oldest(counts.loudest)
        return True

    def _drop_oldest(self, node: NodeId) -> None:
        """Forget the row of this host that was heard longest ago."""
        oldest = next(iter(self._keys[node]))
        del self._rows[oldest][node]
        self._row_gone(node, oldest)
        self._has_changed(oldest)
        self._budgets.get(oldest, set()).discard(node)
        if not self._rows[oldest]:
            del self._rows[oldest], self._revisions[oldest]
            self._budgets.pop(oldest, None)

    def _row_gone(self, node: NodeId, key: bytes) -> None:
        """Nothing is kept of a host without rows: any number may come and go."""
        self._count -= 1
        self._counts.change(node, -1)
        del self._keys[node][key]
        if not self._keys[node]:
            del self._keys[node], self._latest[node]

    def forget(self, node: NodeId) -> None:
        """A forgotten host has no row any more, but its traffic still counts."""
        for key, rows in self._rows.items():
            if (row := rows.get(node)) is not None:
                packed = _packed(node, key, row.version, row.chunks_peak, row.progress, forgotten=True)
                rows[node] = msgspec.structs.replace(row, forgotten=True, packed=packed)
                self._has_changed(key)

    def drop(self, key: bytes) -> None:
        """Forget a deployment of which nothing is left."""
        self._wants_news.pop(key, None)
        self._budgets.pop(key, None)
        self._revisions.pop(key, None)
        self.revision += 1
        for node in self._rows.pop(key, {}):
            self._row_gone(node, key)

    def version(self, node: NodeId, key: bytes) -> int:
        """Version of the last record, 0 when there is none. Our own next record must exceed it."""
        row = self._rows.get(key, {}).get(node)
        return 0 if row is None else row.version

    def latest_version(self, node: NodeId) -> int:
        """The highest version of all its records, in this life or an earlier one; 0 when there is none."""
        return self._latest.get(node, 0)

    def take_back(self, node: NodeId, key: bytes, latest: int) -> None:
        """If the last record's version is beyond ``latest``, so that no host believed it, the next may have any."""
        row = self._rows.get(key, {}).get(node)
        if row is not None and row.version > latest:
            packed = _packed(node, key, 0, row.chunks_peak, row.progress, forgotten=row.forgotten)
            self._rows[key][node] = msgspec.structs.replace(row, version=0, packed=packed)
            self._has_changed(key)

    def host(self, node: NodeId, key: bytes) -> HostProgress | None:
        """One host's last record, None when none was heard or the host is forgotten."""
        row = self._rows.get(key, {}).get(node)
        return None if row is None or row.forgotten else row

    def everybody(self, key: bytes) -> dict[NodeId, HostProgress]:
        """The last record of every host that has told of it; forgotten ones among them."""
        return dict(self._rows.get(key, {}))

    def budgets(self, key: bytes) -> dict[NodeId, Budget]:
        """What hosts tell of budgets that were ordered there. An order is not later than the record that tells it,
        whose date was judged."""
        rows = self._rows.get(key, {})
        told = {node: rows[node] for node in self._budgets.get(key, ()) if node in rows and rows[node].is_signed}
        budgets = {node: row.progress.budget for node, row in told.items()}
        return {node: one for node, one in budgets.items() if one and 0 < one.ordered_ms <= rows[node].version}

    def budget_refused(self, node: NodeId, key: bytes) -> None:
        """The budget that this host tells is not looked at until it tells again: each look checks a signature."""
        self._budgets.get(key, set()).discard(node)

    def keys_with_budgets(self) -> list[bytes]:
        """The deployments of which a budget was told."""
        return list(self._budgets)

    def had_it_whole(self, key: bytes) -> list[NodeId]:
        """Hosts whose last word, perhaps long ago, was that they have the whole model; forgotten ones among them."""
        rows = self._rows.get(key, {}).items()
        return [
            node for node, row in rows if row.progress.state is HostState.COMPLETE and not row.progress.chunks_wanted
        ]

    def wants(self, key: bytes, nodes: Iterable[NodeId] | None = None) -> dict[NodeId, tuple[str, int]]:
        """What each host, or each of ``nodes``, wants of a model, and how many chunks that is (0: all)."""
        rows = self._rows.get(key, {})
        chosen = rows if nodes is None else rows.keys() & nodes
        return {node: _want(rows[node]) for node in chosen if not rows[node].forgotten}

    def take_wants_news(self) -> dict[bytes, set[NodeId]]:
        """Hosts by model whose want was heard first, or changed, since the last call. Only one part may call this."""
        news, self._wants_news = self._wants_news, {}
        return news

    def source_bytes(self, key: bytes, *, own: NodeId, each_max: int) -> int:
        """What all hosts have read of it from storage; forgotten ones among them. Others than ``own`` count with
        ``each_max`` at most."""
        rows = self._rows.get(key, {}).items()
        return sum(
            row.progress.source_bytes if node == own else min(row.progress.source_bytes, each_max) for node, row in rows
        )

    def readers_in_trouble(self, key: bytes, hosts: int, now: float, *, but: HostReason) -> list[NodeId]:
        """Hosts that have lately said that they cannot read its storage, for another reason than ``but``."""
        stale_s, rows = STALE_REFRESHES * refresh_interval_s(hosts), self._rows.get(key, {}).items()
        found = [(node, row) for node, row in rows if row.progress.reason.is_the_readers and row.age_s(now) <= stale_s]
        return [node for node, row in found if row.progress.reason is not but]

    def totals(
        self, key: bytes, targets: Collection[NodeId], *, chunk_count: int, bytes_total: int, now: float
    ) -> Totals:
        """Sum one deployment over ``targets``, the hosts on the roster for which it is meant."""
        everybody = self._rows.get(key, {})
        rows = [everybody.get(node) for node in targets]
        chosen = [row for row in rows if row is not None and not row.forgotten]
        states = [row.progress.state for row in chosen]
        complete = states.count(HostState.COMPLETE)
        peaks = [_peak(row, chunk_count) for row in chosen]
        wanted = [bytes_wanted(row.progress, bytes_total) for row in chosen]
        stale_s = STALE_REFRESHES * refresh_interval_s(len(targets))
        moved = [row.progress for row in everybody.values()]
        moving = [row for row in everybody.values() if not row.forgotten and _has_rate(row.progress)]
        fresh = [row.progress for row in moving if row.age_s(now) <= stale_s]
        done = bool(targets) and complete == len(targets)
        return Totals(
            hosts_total=len(targets),
            hosts_complete=complete,
            hosts_failed=states.count(HostState.FAILED),
            chunks_verified=sum(peaks),
            bytes_verified=sum(verified_bytes(peak, chunk_count, of) for peak, of in zip(peaks, wanted, strict=True)),
            bytes_wanted=sum(wanted) + bytes_total * (len(targets) - len(chosen)),
            rate_in_bytes_per_s=_rate_in(fresh),
            rate_out_bytes_per_s=sum(each.rate_out_bytes_per_s for each in fresh),
            started_s=began_s(row.progress.started_s for row in chosen),
            completed_s=max(row.progress.started_s + row.progress.elapsed_s for row in chosen) if done else 0,
            **_moved(moved, chunk_count, bytes_total),
        )

    def to_bytes(self) -> bytes:
        """The table for the disk; it holds nothing secret."""
        rows = [row.packed for hosts in self._rows.values() for row in hosts.values()]
        return b"".join([bytes([TABLE_VERSION]), *rows])

    @classmethod
    def from_bytes(cls, table: bytes, *, now: float, wall_s: float, rows_max: int = ROWS_MAX) -> ClusterProgress:
        """Read a saved table. Raises ProgressTableError; the caller then starts with an empty one."""
        if not table or table[0] != TABLE_VERSION:
            raise ProgressTableError(f"progress table version {table[0] if table else 'missing'}, not {TABLE_VERSION}")
        loaded = cls(rows_max=rows_max)
        try:
            for node, key, row in _unpacked(table[1:], now, wall_s):
                if loaded._count < rows_max and row.version <= (wall_s + CLOCKS_APART_MAX_S) * 1000:
                    loaded._put(node, key, row)
        except (struct.error, ProgressFormatError) as error:
            raise ProgressTableError(f"the saved progress table is damaged: {error}") from None
        return loaded


def _moved(hosts: list[Progress], chunk_count: int, bytes_total: int) -> dict[str, int]:
    """The sums of the hosts' counters."""
    most = {name: LOADS_MAX * (chunk_count if name == "corrupt_chunks" else bytes_total) for name in COUNTER_NAMES}
    return {name: sum([min(getattr(one, name), most[name]) for one in hosts]) for name in COUNTER_NAMES}


def _rate_in(hosts: list[Progress]) -> int:
    """What all receive now. One that tells a rate far above the middle one counts with ``RATES_MAX`` times that."""
    rates = sorted(one.rate_in_bytes_per_s for one in hosts if one.rate_in_bytes_per_s)
    return sum(min(rate, RATES_MAX * rates[(len(rates) - 1) // 2]) for rate in rates)


def verified_bytes(chunks_verified: int, chunk_count: int, bytes_total: int) -> int:
    """Bytes of ``chunks_verified`` chunks: a proportional share, exact for none and for all."""
    if chunk_count <= 0:
        return bytes_total
    return bytes_total * min(chunks_verified, chunk_count) // chunk_count


def deployment_state(states: Collection[HostState], *, one_copy: bool = False, cancelled: bool = False) -> str:
    """One word for a whole deployment.

    Args:
        states: of its targets; a target that has not been heard counts as ``init``.
        one_copy: the planner knows a holder of every chunk.
        cancelled: the last statement about the deployment is a cancel; what all had by then is complete all the same.
    Returns: ``downloading`` until the cluster holds one full copy, then ``distributing`` while any target is under way.
        In the end ``complete`` when all targets are, else the worst of their final states. A host that has
        deleted it, removed or evicted, counts only when all have.
    """
    states = set(states)  # a thousand hosts are in a handful of states
    if states and states <= DELETED:
        deleted = HostState.REMOVED if HostState.REMOVED in states else HostState.EVICTED
        return str(deleted.value)
    states -= DELETED
    if states and all(state in FINAL for state in states):
        endings = [HostState.FAILED, HostState.EXPIRED, HostState.CANCELLED, HostState.COMPLETE]
        worst = next(ending for ending in endings if ending in states)
        return HostState.CANCELLED.value if cancelled and worst is not HostState.COMPLETE else str(worst.value)
    if cancelled or HostState.PAUSED in states:
        return HostState.CANCELLED.value if cancelled else HostState.PAUSED.value
    if all(state is HostState.INIT for state in states):
        return HostState.INIT.value
    is_whole = one_copy or any(state in (HostState.COMPLETE, HostState.VERIFYING) for state in states)
    return "distributing" if is_whole else HostState.DOWNLOADING.value


def _has_rate(progress: Progress) -> bool:
    return progress.rate_in_bytes_per_s > 0 or progress.rate_out_bytes_per_s > 0


def _want(row: HostProgress) -> tuple[str, int]:
    return row.progress.want, row.progress.chunks_wanted


def bytes_wanted(progress: Progress, bytes_total: int) -> int:
    """How many bytes of a deployment the host wants."""
    return min(progress.bytes_wanted, bytes_total) if progress.chunks_wanted else bytes_total


def _peak(row: HostProgress, chunk_count: int) -> int:
    """The most chunks that a host ever had; one that says complete has all, and one that has deleted them none. Of a
    part, the share of it that is there counts for the whole."""
    if row.progress.state is HostState.COMPLETE:
        return chunk_count
    if row.progress.state in DELETED:
        return 0
    wanted = row.progress.chunks_wanted or chunk_count
    return min(row.chunks_peak * chunk_count // wanted, chunk_count)


def _never_falling(old: Progress, new: Progress) -> Progress:
    before, said = _COUNTERS(old), _COUNTERS(new)
    highest = tuple(map(max, before, said))
    if highest == said:  # of a host that was not re-installed
        return new
    raised: dict[str, Any] = dict(zip(COUNTER_NAMES, highest, strict=True))
    return replace(new, **raised)


def _packed(node: NodeId, key: bytes, version: int, peak: int, progress: Progress, *, forgotten: bool = False) -> bytes:
    """A row of the saved table."""
    number = progress.reason.number
    later = number if number != progress.reason.number_in_format_1 else 0
    flags = _FORGOTTEN * forgotten | later << _REASON_SHIFT
    return _ROW.pack(node, key, version, peak | flags, progress.to_bytes())


def _unpacked(rows: bytes, now: float, wall_s: float) -> Iterator[tuple[NodeId, bytes, HostProgress]]:
    for at in range(0, len(rows), _ROW.size):
        packed = rows[at : at + _ROW.size]
        node, key, version, peak, record = _ROW.unpack(packed)
        age = max(0.0, wall_s - version / 1000)
        progress = Progress.from_bytes(record)
        forgotten, reason = bool(peak & _FORGOTTEN), peak >> _REASON_SHIFT
        if reason:
            told = reason_of_number(reason)
            progress = replace(progress, reason=told, state=state_with(progress.state, told))
        yield (
            NodeId(node),
            key,
            HostProgress(progress, packed, version, peak & 0xFFFFFF, now, age, forgotten, reason_at=now),
        )
