"""What was heard of a deployment over time: the share of each host, its sketch, bytes by source, reasons, silences.

What lives here: the record of one deployment, and those of the latest few. What does not: the present
(``progress_table``), and what a report makes of it (``diagnosis.report``).

A history has a column for each second of its first ten minutes, then one for each ten seconds. Only changes are noted,
three bytes each, so that a host costs some hundred bytes however long it takes: it tells its share in 254ths. Shown is
a course of equal columns, as many as are asked for. Of a host whose chunks are known here (its own, those of
neighbours) there is, for each bin of its sketch, when a quarter, a half, three quarters and all of it were there: 512
bytes, however often the sketch is looked at. Some minutes after every host has what it wants the history is
closed: a chunk that rots a month later does not belong to it. Closed ones are packed, and so is that which changed
longest ago when there are too many; what is packed changes no more. Rejected: a sample of all rows each second, which
costs a daemon more than what comes with the records that it hears anyway. Rejected, too: each change of each bin,
which has no bound. Where there are too many, those of which one host alone tells make room first: it may tell of every
deployment that there ever was.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from math import ceil, isfinite
from struct import Struct
from typing import TypeAlias

import msgspec
from msgspec import field

from gossipd.core.errors import LocalError
from gossipd.core.sketch import BINS, NOTHING_WANTED
from gossipd.deployment.progress_record import DELETED, HostState, Progress
from gossipd.deployment.states import FINAL
from membership.member import NODE_ID_BYTES, NodeId

FINE_COLUMNS, COARSE_S = 600, 10  # of a second each, then of ten
COLUMN_MAX = (1 << 16) - 1  # in two bytes: of a week; what comes later is in the last one
CHANGES_MAX = 340  # of one host, so that a history of 4,096 hosts is about 4 MiB; then every second one goes
MOVED_MAX = 2048  # columns in which bytes moved; then neighbours are joined
NOTHING, SHARE_MAX = 255, 254
SETTLED_S = 600.0
BYTES_MAX = (1 << 53) - 1  # of a column: what JSON carries exactly; a member may tell any number
REASONS_MAX = 32  # changes of one host's reason; the oldest give way
HOSTS_MAX = 4_096  # of one deployment, as the table of progress is reckoned
LIVE_MAX, HISTORIES_MAX = 16, 50
PACKED_BYTES_MAX = 16 << 20  # of one that is unpacked
QUARTERS = 4  # of a bin
NOT_YET, NOT_WANTED = COLUMN_MAX, COLUMN_MAX - 1  # in the place of the column at which a quarter was there
_MARK_BYTES = 2
_UNWANTED_MARK, _NOT_YET_MARK = NOT_WANTED.to_bytes(_MARK_BYTES), NOT_YET.to_bytes(_MARK_BYTES)
_UNWANTED = _UNWANTED_MARK * QUARTERS
_UNREACHED = [_NOT_YET_MARK * (QUARTERS - reached) for reached in range(QUARTERS + 1)]  # the others
_CHANGE = Struct(">HB")
Moved: TypeAlias = tuple[int, int, int]
"""Bytes from storage, from the same rack, from other racks."""


class HistoryFormatError(LocalError):
    """Saved histories that cannot be read. Fault: this host's disk, or another version wrote them. Retry: without."""

    code = "E_HISTORY_FORMAT"


class Told(msgspec.Struct, frozen=True):
    """What one record says. ``share``: 0 to 1 of what the host wants; ``word``: its reason, or empty."""

    share: float
    moved: Moved = (0, 0, 0)
    """Since its last record."""
    word: str = ""
    is_open: bool = True
    """It does not have what it wants, and has not deleted it."""
    is_final: bool = False
    """Nothing goes on there, and it tells of it rarely."""
    boot: int = 0
    """Of its daemon; 0 where that is not known."""


class HostHistory(msgspec.Struct):
    """Of one host. Times are seconds since the history began."""

    heard_s: float
    changes: bytearray = msgspec.field(default_factory=bytearray)
    """Each a column in two bytes, and the share at its end in 254ths."""
    is_open: bool = True
    is_final: bool = False
    reasons: tuple[tuple[float, str], ...] = ()
    """Since when it told which word, an empty one for none."""
    silent_from_s: float = 0.0
    silent_s: float = 0.0
    """The longest time without a word while something was to go on there, and its beginning."""
    boot: int = 0
    restart: tuple[float, float] | None = None
    """How long it was silent, and since when, as its daemon was started again last."""
    reached: bytes = b""
    """For each bin of its sketch, and each quarter of it, the column at which that was there first, in two bytes;
    or ``NOT_YET``, ``NOT_WANTED``. Empty where no chunks of it were known."""
    chunks_sketched: int = -1
    """How many chunks it had when its sketch was noted last."""

    def note_sketch(self, column: int, shares: bytes) -> None:
        """It has these shares of bins, in 254ths or ``NOTHING_WANTED``. A bin that has lost chunks has reached less."""
        size = _MARK_BYTES * QUARTERS
        marks = bytearray(self.reached if len(self.reached) == size * len(shares) else _UNREACHED[0] * len(shares))
        here = min(column, NOT_WANTED - 1).to_bytes(_MARK_BYTES)
        for at, share in enumerate(shares):
            first, end = size * at, size * (at + 1)
            if share == NOTHING_WANTED:
                marks[first:end] = _UNWANTED
                continue
            quarters = QUARTERS * share // SHARE_MAX
            mark = first + _MARK_BYTES * quarters
            marks[mark:end] = _UNREACHED[quarters]
            while mark > first and marks[mark - _MARK_BYTES : mark] >= _UNWANTED_MARK:  # those before it are reached
                marks[mark - _MARK_BYTES : mark] = here
                mark -= _MARK_BYTES
        self.reached = bytes(marks)

    def note_whole(self, column: int) -> None:
        """It has all that it wants: neighbours that are complete announce nothing more."""
        firsts = Struct(f">H{2 * (QUARTERS - 1)}x").iter_unpack(self.reached)
        self.note_sketch(column, bytes(NOTHING_WANTED if one == NOT_WANTED else SHARE_MAX for (one,) in firsts))

    def marks(self, places: Sequence[int]) -> bytes:
        """``reached``, by the equal columns of ``History.columns``."""
        words, last = Struct(f">{len(self.reached) // 2}H"), len(places) - 1
        return words.pack(*(one if one >= NOT_WANTED else places[min(one, last)] for one in words.unpack(self.reached)))

    def note(self, column: int, share: int) -> None:
        """It has this share at the end of the column, which is not before the last that was noted."""
        change = _CHANGE.pack(column, share)
        if self.changes[-_CHANGE.size : -1] == change[:2]:
            self.changes[-1] = share
            return
        self.changes += change
        if len(self.changes) > CHANGES_MAX * _CHANGE.size:
            kept = [self.changes[at : at + _CHANGE.size] for at in range(0, len(self.changes), 2 * _CHANGE.size)]
            self.changes = bytearray().join([*kept, change])

    def share(self) -> int:
        """The last, or ``NOTHING``."""
        return self.changes[-1] if self.changes else NOTHING

    def shares(self, places: Sequence[int]) -> bytes:
        """At the ends of equal columns: ``History.columns``."""
        shown, last, count = bytearray(), NOTHING, places[-1] + 1
        for column, share in _CHANGE.iter_unpack(self.changes):
            first = places[column]
            if first > len(shown):
                shown += bytes([last]) * (first - len(shown))
            last = share
        return bytes(shown) + bytes([last]) * (count - len(shown))

    def silence(self, now_s: float) -> tuple[float, float]:
        """The longest silence and its beginning, with the one that still lasts."""
        lasting = 0.0 if self.is_final else now_s - self.heard_s
        return (lasting, self.heard_s) if lasting > self.silent_s else (self.silent_s, self.silent_from_s)

    def note_word(self, at_s: float, boot: int) -> None:
        """It is heard again. What it tells of an earlier start comes late, and says nothing of when."""
        for_s = at_s - self.heard_s
        if not self.is_final and for_s > self.silent_s:
            self.silent_from_s, self.silent_s = self.heard_s, for_s
        if not self.is_final and boot > self.boot > 0:
            self.restart = (for_s, self.heard_s)
        self.boot = max(self.boot, boot)


class History(msgspec.Struct):
    """One deployment. ``began_wall_s``: seconds since 1970, by this host; other times count from it."""

    began_wall_s: float
    used: int = 0
    """Columns in use."""
    changed_s: float = 0.0
    moved: dict[int, Moved] = {}
    """By column. ``moved_every``: of coarse columns those that it divides stand for their neighbours, too."""
    moved_every: int = 1
    hosts: dict[NodeId, HostHistory] = {}

    def heard(self, node: NodeId, at_s: float, told: Told) -> None:
        """A host has told ``told``, ``at_s`` after the beginning."""
        at_s = max(at_s, self.changed_s, 0.0)
        if self.is_closed(at_s):
            return
        host = self.hosts.get(node)
        if host is None:
            if len(self.hosts) >= HOSTS_MAX:
                return
            host = self.hosts[node] = HostHistory(at_s, boot=told.boot)
        host.note_word(at_s, told.boot)
        host.heard_s, host.is_open, host.is_final = at_s, told.is_open, told.is_final
        self._note(host, at_s, told)

    def sketched(self, node: NodeId, at_s: float, chunks_held: int, shares: bytes) -> None:
        """A host that has told something has these shares of bins: ``core.sketch``."""
        host = self.hosts.get(node)
        if host is None or host.chunks_sketched == chunks_held or len(shares) > BINS or not host.is_open:
            return
        host.chunks_sketched = chunks_held
        host.note_sketch(column_at(max(at_s, self.changed_s, 0.0)), shares)

    def _note(self, host: HostHistory, at_s: float, told: Told) -> None:
        share = int(SHARE_MAX * min(max(told.share, 0.0), 1.0))
        if share == SHARE_MAX and host.reached and host.share() != SHARE_MAX:
            host.note_whole(column_at(at_s))
        word = host.reasons[-1][1] if host.reasons else ""
        if word != told.word:
            host.reasons = (*host.reasons[1 - REASONS_MAX :], (round(at_s, 1), told.word))
        if word == told.word and share == host.share() and not any(told.moved):
            return
        self.changed_s = at_s
        column = column_at(at_s)
        self.used = max(self.used, column + 1)
        if share != host.share():
            host.note(column, share)
        if any(told.moved):
            self._add(column, told.moved)
            while len(self.moved) > MOVED_MAX:
                self.moved_every *= 2
                before, self.moved = self.moved, {}
                for joined, moved in before.items():
                    self._add(joined, moved)

    def _add(self, column: int, moved: Moved) -> None:
        column = column if column < FINE_COLUMNS else column - (column - FINE_COLUMNS) % self.moved_every
        source, same, cross = (
            min(BYTES_MAX, had + more) for had, more in zip(self.moved.get(column, (0, 0, 0)), moved, strict=True)
        )
        self.moved[column] = source, same, cross

    @property
    def last_wall_s(self) -> float:
        """When it changed last, in seconds since 1970."""
        return self.began_wall_s + self.changed_s

    def is_closed(self, at_s: float) -> bool:
        """Whether all have had what they want for some minutes."""
        return (
            at_s - self.changed_s > SETTLED_S
            and bool(self.hosts)
            and not any(host.is_open for host in self.hosts.values())
        )

    def end(self, at_s: float) -> None:
        """Nothing more will be noted: who is silent from now on is not silent."""
        for host in self.hosts.values():
            host.silent_s, host.silent_from_s = host.silence(at_s)
            host.is_final = True

    def columns(self, most: int) -> tuple[float, list[int]]:
        """As few equal columns as are asked for: how many whole seconds each lasts, and for each column that is kept,
        in which of them it is shown."""
        step_s = max(1, ceil(begins_s(self.used) / most))
        return float(step_s), [begins_s(column) // step_s for column in range(self.used)]

    def moved_by(self, places: Sequence[int]) -> list[Moved]:
        """What moved in each of the equal columns."""
        shown = [(0, 0, 0)] * (places[-1] + 1)
        for column, moved in self.moved.items():
            at = places[column]
            source, same, cross = shown[at]
            shown[at] = (source + moved[0], same + moved[1], cross + moved[2])
        return shown


def column_at(at_s: float) -> int:
    """The column of a moment, which is not before the beginning."""
    late_s = at_s - FINE_COLUMNS
    return int(at_s) if late_s < 0 else min(COLUMN_MAX, FINE_COLUMNS + int(min(late_s, 1e9) / COARSE_S))


def begins_s(column: int) -> int:
    """When a column begins."""
    return column if column <= FINE_COLUMNS else FINE_COLUMNS + COARSE_S * (column - FINE_COLUMNS)


class _Kept(msgspec.Struct):
    live: dict[bytes, History]
    packed: dict[bytes, bytes]
    lone: list[bytes] = []


class Histories(msgspec.Struct):
    """Those of the latest deployments, by the key of their progress records. One task owns it."""

    live: dict[bytes, History] = field(default_factory=dict)
    packed: dict[bytes, bytes] = field(default_factory=dict)
    """Of those that change no more, the one that was packed first in front."""
    revision: int = 0
    """Grows when there is something to save."""
    lone: set[bytes] = field(default_factory=set)
    """Those of the packed of which one host alone has told."""

    def heard(
        self, key: bytes, node: NodeId, before: Progress | None, told: Progress, *, chunk_count: int, wall_s: float,
        boot: int = 0,
    ) -> None:  # fmt: skip
        """A host's record has replaced another. ``chunk_count``: of the whole model. ``boot``: of its daemon."""
        if key in self.packed:
            return
        history = self.live.get(key)
        if history is None:
            # One that has ended before this host heard of it has no course that could be told.
            if told.state is HostState.COMPLETE or told.state in DELETED:
                return
            self._make_room(wall_s)
            history = self.live[key] = History(began_wall_s=wall_s)
        history.heard(node, wall_s - history.began_wall_s, _told(before, told, chunk_count, boot))
        self.revision += 1

    def find(self, key: bytes) -> History | None:
        """The one of this deployment, if it is kept and can be read."""
        packed = self.packed.get(key)
        return self.live.get(key) if packed is None else _unpacked(packed)

    def _make_room(self, wall_s: float) -> None:
        """For one more."""
        over = [key for key, one in self.live.items() if one.is_closed(wall_s - one.began_wall_s)]
        oldest = sorted(self.live, key=lambda one: (len(self.live[one].hosts) > 1, self.live[one].last_wall_s))
        for key in dict.fromkeys([*over, *oldest[: max(0, len(self.live) + 1 - LIVE_MAX)]]):
            history = self.live.pop(key)
            history.end(wall_s - history.began_wall_s)
            self.packed[key] = zlib.compress(msgspec.msgpack.encode(history), 1)
            self.lone |= {key} if len(history.hosts) < 2 else set()
        while len(self.live) + len(self.packed) >= HISTORIES_MAX:
            gone = next((key for key in self.packed if key in self.lone), next(iter(self.packed)))
            del self.packed[gone]
            self.lone.discard(gone)

    def to_bytes(self) -> bytes:
        """The histories for the disk; nothing in them is secret."""
        return msgspec.msgpack.encode(_Kept(self.live, self.packed, sorted(self.lone)))

    @classmethod
    def from_bytes(cls, kept: bytes) -> Histories:
        """Raises HistoryFormatError; the caller then starts with none."""
        try:
            found = msgspec.msgpack.decode(kept, type=_Kept)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise HistoryFormatError(f"the saved histories are damaged: {error}") from None
        if not all(_is_sound(one) for one in found.live.values()):
            raise HistoryFormatError("the saved histories are damaged")
        return cls(found.live, found.packed, lone=set(found.lone) & found.packed.keys())


def _unpacked(packed: bytes) -> History | None:
    try:
        raw = zlib.decompressobj().decompress(packed, PACKED_BYTES_MAX)
        history = msgspec.msgpack.decode(raw, type=History)
    except (zlib.error, msgspec.MsgspecError, RecursionError):
        return None
    return history if _is_sound(history) else None


def _is_sound(history: History) -> bool:
    hosts, columns = history.hosts, history.moved
    return (
        0 < history.used <= COLUMN_MAX + 1
        and history.moved_every >= 1
        and isfinite(history.began_wall_s + history.changed_s)
        and all(0 <= column < history.used for column in columns)
        and all(len(node) == NODE_ID_BYTES and _is_in(host.changes, history.used) for node, host in hosts.items())
        and all(len(host.reached) in range(0, 2 * QUARTERS * BINS + 1, 2 * QUARTERS) for host in hosts.values())
    )


def _is_in(changes: bytearray, used: int) -> bool:
    return not len(changes) % _CHANGE.size and all(column < used for column, _ in _CHANGE.iter_unpack(changes))


def _told(before: Progress | None, told: Progress, chunk_count: int, boot: int) -> Told:
    is_complete = told.state is HostState.COMPLETE
    wanted = max(1, told.chunks_wanted or chunk_count)
    held = 0 if told.state in DELETED else told.chunks_verified
    moved = told.source_bytes, told.peer_bytes_same_rack, told.peer_bytes_cross_rack
    if before is not None:
        had = before.source_bytes, before.peer_bytes_same_rack, before.peer_bytes_cross_rack
        moved = max(0, moved[0] - had[0]), max(0, moved[1] - had[1]), max(0, moved[2] - had[2])
    return Told(
        1.0 if is_complete else held / wanted, moved, told.reason.value,
        is_open=not is_complete and told.state not in DELETED, is_final=told.state in FINAL, boot=boot,
    )  # fmt: skip
