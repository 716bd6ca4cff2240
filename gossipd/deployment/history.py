"""What was heard of a deployment over time: the share of each host, bytes by source, reasons, silences.

What lives here: the record of one deployment, and those of the latest few. What does not: the present
(``progress_table``), and what a report makes of it (``diagnosis.report``).

A history has 64 columns. When they are full, neighbours are joined and a column lasts twice as long, so a deployment of
any length fits in 64 bytes a host. Only changes are noted; a column in which a host told nothing new is filled from the
one before when the history is read. Some minutes after every host has what it wants the history is closed: a chunk that
rots a month later would join the whole deployment into one column. Rejected: a sample of all rows each second, which
costs a daemon more than what comes with the records that it hears anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import TypeAlias

import msgspec

from gossipd.core.errors import LocalError
from gossipd.deployment.progress_record import DELETED, HostState, Progress
from gossipd.deployment.states import FINAL
from membership.member import NODE_ID_BYTES, NodeId

COLUMNS = 64
NOTHING, SHARE_MAX = 255, 254
COLUMN_S = 1.0
SETTLED_S = 600.0
REASONS_MAX = 32  # changes of one host's reason; the oldest give way
HOSTS_MAX = 4_096  # of one deployment, as the table of progress is reckoned
HISTORIES_MAX = 16
Moved: TypeAlias = tuple[int, int, int]
"""Bytes from storage, from the same rack, from other racks."""


class HistoryFormatError(LocalError):
    """Saved histories that cannot be read. Fault: this host's disk, or another version wrote them. Retry: without."""

    code = "E_HISTORY_FORMAT"


@dataclass(frozen=True, slots=True)
class Told:
    """What one record says. ``share``: 0 to 1 of what the host wants; ``word``: its reason, or empty."""

    share: float
    moved: Moved = (0, 0, 0)
    """Since its last record."""
    word: str = ""
    is_open: bool = True
    """It does not have what it wants, and has not deleted it."""
    is_final: bool = False
    """Nothing goes on there, and it tells of it rarely."""


class HostHistory(msgspec.Struct):
    """Of one host. Times are seconds since the history began."""

    cells: bytearray
    """Of each column the share in 254ths at its end, 255 for nothing new."""
    heard_s: float
    is_open: bool = True
    is_final: bool = False
    reasons: list[tuple[float, str]] = []
    """Since when it told which word, an empty one for none."""
    silent_from_s: float = 0.0
    silent_s: float = 0.0
    """The longest time without a word while something was to go on there, and its beginning."""

    def shares(self, used: int) -> bytes:
        """Each column that is in use, filled from the one before."""
        filled, last = bytearray(), NOTHING
        for cell in self.cells[:used]:
            last = last if cell == NOTHING else cell
            filled.append(last)
        return bytes(filled)

    def silence(self, now_s: float) -> tuple[float, float]:
        """The longest silence and its beginning, with the one that still lasts."""
        lasting = 0.0 if self.is_final else now_s - self.heard_s
        return (lasting, self.heard_s) if lasting > self.silent_s else (self.silent_s, self.silent_from_s)


class History(msgspec.Struct):
    """One deployment. ``began_wall_s``: seconds since 1970, by this host; other times count from it."""

    began_wall_s: float
    step_s: float = COLUMN_S
    used: int = 0
    """Columns in use."""
    changed_s: float = 0.0
    moved: list[Moved] = msgspec.field(default_factory=lambda: [(0, 0, 0)] * COLUMNS)
    hosts: dict[NodeId, HostHistory] = {}

    def heard(self, node: NodeId, at_s: float, told: Told) -> None:
        """A host has told ``told``, ``at_s`` after the beginning."""
        at_s = max(at_s, self.changed_s, 0.0)
        if self._is_closed(at_s):
            return
        host = self.hosts.get(node)
        if host is None:
            if len(self.hosts) >= HOSTS_MAX:
                return
            host = self.hosts[node] = HostHistory(bytearray([NOTHING] * COLUMNS), at_s)
        elif not host.is_final and at_s - host.heard_s > host.silent_s:
            host.silent_from_s, host.silent_s = host.heard_s, at_s - host.heard_s
        host.heard_s, host.is_open, host.is_final = at_s, told.is_open, told.is_final
        self._note(host, at_s, told)

    def _note(self, host: HostHistory, at_s: float, told: Told) -> None:
        cell = int(SHARE_MAX * min(max(told.share, 0.0), 1.0))
        last = next((one for one in reversed(host.cells[: self.used]) if one != NOTHING), NOTHING)
        word = host.reasons[-1][1] if host.reasons else ""
        if word != told.word:
            host.reasons = [*host.reasons[1 - REASONS_MAX :], (round(at_s, 1), told.word)]
        if word == told.word and cell == last and not any(told.moved):
            return
        self.changed_s = at_s
        column = self._column(at_s)
        host.cells[column] = cell
        source, same, cross = self.moved[column]
        self.moved[column] = (source + told.moved[0], same + told.moved[1], cross + told.moved[2])

    def _is_closed(self, at_s: float) -> bool:
        return (
            at_s - self.changed_s > SETTLED_S
            and bool(self.hosts)
            and not any(host.is_open for host in self.hosts.values())
        )

    def _column(self, at_s: float) -> int:
        while at_s >= COLUMNS * self.step_s:
            self._join()
        column = int(at_s / self.step_s)
        self.used = max(self.used, column + 1)
        return column

    def _join(self) -> None:
        half = COLUMNS // 2
        for host in self.hosts.values():
            pairs = zip(host.cells[::2], host.cells[1::2], strict=True)
            joined = [first if second == NOTHING else second for first, second in pairs]
            host.cells[:] = bytes([*joined, *[NOTHING] * half])
        pairs_moved = zip(self.moved[::2], self.moved[1::2], strict=True)
        self.moved = [(a[0] + b[0], a[1] + b[1], a[2] + b[2]) for a, b in pairs_moved] + [(0, 0, 0)] * half
        self.used = -(-self.used // 2)
        self.step_s *= 2


@dataclass(slots=True)
class Histories:
    """Those of the latest deployments, by the key of their progress records. One task owns it."""

    by_key: dict[bytes, History] = field(default_factory=dict)
    revision: int = 0
    """Grows when there is something to save."""

    def heard(
        self, key: bytes, node: NodeId, before: Progress | None, told: Progress, *, chunk_count: int, wall_s: float
    ) -> None:
        """A host's record has replaced another. ``chunk_count``: of the whole model."""
        history = self.by_key.get(key)
        if history is None:
            # One that has ended before this host heard of it has no course that could be told.
            if told.state is HostState.COMPLETE or told.state in DELETED:
                return
            history = self.by_key[key] = History(began_wall_s=wall_s)
            while len(self.by_key) > HISTORIES_MAX:
                del self.by_key[min(self.by_key, key=lambda one: self._changed_wall_s(self.by_key[one]))]
        history.heard(node, wall_s - history.began_wall_s, _told(before, told, chunk_count))
        self.revision += 1

    @staticmethod
    def _changed_wall_s(history: History) -> float:
        return history.began_wall_s + history.changed_s

    def to_bytes(self) -> bytes:
        """The history for the disk; nothing in it is secret."""
        return msgspec.msgpack.encode(self.by_key)

    @classmethod
    def from_bytes(cls, kept: bytes) -> Histories:
        """Raises HistoryFormatError; the caller then starts with none."""
        try:
            by_key = msgspec.msgpack.decode(kept, type=dict[bytes, History])
        except (msgspec.MsgspecError, RecursionError) as error:
            raise HistoryFormatError(f"the saved histories are damaged: {error}") from None
        for history in by_key.values():
            cells = {len(host.cells) for host in history.hosts.values()}
            nodes = {len(node) for node in history.hosts}
            is_sound = len(history.moved) == COLUMNS and cells <= {COLUMNS} and nodes <= {NODE_ID_BYTES}
            is_sound &= isfinite(history.began_wall_s + history.changed_s + history.step_s)
            if not is_sound or not 0 <= history.used <= COLUMNS or history.step_s < COLUMN_S:
                raise HistoryFormatError("the saved histories are damaged")
        return cls(by_key)


def _told(before: Progress | None, told: Progress, chunk_count: int) -> Told:
    is_complete = told.state is HostState.COMPLETE
    wanted = max(1, told.chunks_wanted or chunk_count)
    held = 0 if told.state in DELETED else told.chunks_verified
    moved = [
        max(0, getattr(told, name) - (getattr(before, name) if before is not None else 0))
        for name in ("source_bytes", "peer_bytes_same_rack", "peer_bytes_cross_rack")
    ]
    return Told(
        1.0 if is_complete else held / wanted, (moved[0], moved[1], moved[2]), told.reason.value,
        is_open=not is_complete and told.state not in DELETED, is_final=told.state in FINAL,
    )  # fmt: skip
