"""Reading versions into the page cache, so that the job that loads one next finds it in memory.

What lives here: which bytes are read next, at which pace, when none are; what is cached. What does not: the thread
(``background``), how much memory there is (``runtime.memory_room``).

With ``StoreSettings.warm`` each version is read once: when it is current here, and again after a start. An order reads
any version that is complete here, before those, also one that was read before; it is told for ``_ORDER_TOLD_S`` more,
and given up after ``_ORDER_S``. What is cached already is not read, so a version that has just arrived costs little.
What the kernel drops within ``_SETTLES_S`` of the end is read again: pages of a version that has just arrived may be
on their way out, and were found cached. What it drops later is not, without an order, because somebody needed the
memory; nor what it drops while it reads a version that takes longer. Nothing is read
while a task of this host waits for memory, or when more than ``_ROOM_SHARE`` of the memory that files may take would
be these versions. Rejected: mlock, because a job would then be killed for want of memory that only a cache holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from mmap import PAGESIZE
from queue import Empty, SimpleQueue
from threading import Event
from typing import Protocol

from msgspec import Struct

from gossipd.core.errors import NotFoundError
from gossipd.runtime.memory_room import MemoryRoom
from gossipd.store.disk.disk import opened
from gossipd.store.models import current_link
from gossipd.store.models.context import Context
from gossipd.store.models.replica import ModelReplica

_LOOK_S = 5.0
_LOOK_SHARE = 50.0  # looking at very much memory takes seconds: then it is done less often
_ROOM_SHARE = 0.75
_WAITS_PERCENT_MAX = 1.0
_READ_BYTES = 1 << 20
_SETTLES_S = 30.0  # the store drops what it has written, and a kernel that saves memory drops what was written long ago
_ORDER_S, _ORDER_TOLD_S = 3600.0, 600.0  # a job that was ordered for has started by then


class WarmState(Enum):
    """How far a version has been read."""

    READING = "reading"
    READ = "read"
    NO_ROOM = "no room"
    PRESSURE = "memory is short"


class Warmth(Struct, frozen=True):
    """One version. ``bytes_cached``: of its files in the page cache at the last look; None where the kernel
    does not tell."""

    label: str
    bytes_total: int
    bytes_cached: int | None
    state: WarmState


class _Reading(Struct):
    chunks: Iterator[int]
    read_bytes: int = 0
    is_done: bool = False
    done_s: float = math.inf  # when all had been read or found cached for the first time
    before_bytes: int = -1  # ``read_bytes`` when the present pass began; below it for the first one


class RoomReader(Protocol):
    """See ``memory_room``."""

    def __call__(self) -> MemoryRoom: ...


class Warmer:
    """Only one thread calls ``step``. ``woken`` is set when there is an order."""

    def __init__(self, context: Context, published: Callable[[], Sequence[ModelReplica]], room: RoomReader) -> None:
        self._context = context
        self._published = published
        self._room = room
        self._orders: SimpleQueue[ModelReplica] = SimpleQueue()
        self._until_s: dict[ModelReplica, float] = {}  # of those that were ordered: when the order ends
        self._readings: dict[ModelReplica, _Reading] = {}
        self._look_s = -math.inf
        self._left_bytes = 0
        self._hindrance: WarmState | None = None
        self._buffer: memoryview | None = None  # while there is something to read
        self._rows: tuple[tuple[ModelReplica, Warmth], ...] = ()
        self.woken = Event()

    @property
    def rows(self) -> tuple[Warmth, ...]:
        """What was found at the last look, of versions that are still here. May be read by any thread."""
        if not (rows := self._rows):
            return ()
        here = set(self._published())
        return tuple(row for one, row in rows if one in here)

    def order(self, name: str, version: int | None) -> Warmth:
        """Have that version read, or the current one, by the thread that calls ``step``. May be called by any thread.
        Raises NotFoundError: it is not complete here; OSError: the disk does not say which one is current."""
        for replica in self._published():
            found = replica.manifest
            if found.name == name and version in (found.version, None):
                if version is None and not current_link.is_current(self._context.disk, name, found.version):
                    continue
                self._orders.put(replica)
                self.woken.set()
                return Warmth(found.label, self._size(replica), None, WarmState.READING)
        other = next((one.manifest for one in self._published() if one.manifest.name == name), None)
        told = str(version) if other is None or version is None else other.label_of(version)
        raise NotFoundError(f"{name if version is None else f'{name}@{told}'} is not complete on this host")

    def step(self) -> float | None:
        """Read one chunk. Returns the seconds until the next step is due; None: when there is an order."""
        clock = self._context.clock
        self._take_orders()
        if not (self._context.settings.warm or self._readings or self._until_s):
            return None
        if clock.monotonic() >= self._look_s:
            began_s = clock.monotonic()
            try:
                self._look()
            except (OSError, ValueError):  # the disk, or no /proc: nothing is known
                self._hindrance = WarmState.NO_ROOM
            self._look_s = clock.monotonic() + max(_LOOK_S, _LOOK_SHARE * (clock.monotonic() - began_s))
        found = next((one for one in self._readings.items() if not one[1].is_done), None)
        if found is None or self._hindrance is not None:
            self._buffer = None
            return self._look_s - clock.monotonic()
        read_bytes = self._read(*found)
        self._left_bytes -= read_bytes
        if self._left_bytes <= 0:
            self._hindrance = WarmState.NO_ROOM
        return read_bytes / self._context.settings.warm_bytes_per_s

    def _take_orders(self) -> None:
        with suppress(Empty):
            while True:
                replica = self._orders.get_nowait()
                self._readings[replica] = _Reading(iter(replica.part.wanted))
                self._until_s[replica] = self._context.clock.monotonic() + _ORDER_S
                self._look_s = -math.inf

    def _chosen(self) -> list[ModelReplica]:
        """What was ordered, then what is current, the newest first."""
        disk, now = self._context.disk, self._context.clock.monotonic()
        published = self._published()
        done = {one for one, reading in self._readings.items() if reading.is_done}
        self._until_s = {
            one: min(until_s, now + _ORDER_TOLD_S) if one in done else until_s
            for one, until_s in self._until_s.items()
            if until_s > now and one in published
        }
        if not self._context.settings.warm:
            return list(self._until_s)
        current = [one for one in published if current_link.is_current(disk, one.manifest.name, one.manifest.version)]
        current.sort(key=lambda one: one.published_s or 0, reverse=True)
        return list(dict.fromkeys((*self._until_s, *current)))

    def _look(self) -> None:
        """Which versions are to be read, what of them is cached, and whether there is memory for more."""
        chosen = self._chosen()
        self._readings = {one: self._readings.get(one) or _Reading(iter(one.part.wanted)) for one in chosen}
        cached = {one: self._cached(one) for one in chosen}
        for one, reading in self._readings.items():
            self._settle(one, reading, cached[one])
        room = self._room()
        held = sum(reading.read_bytes if (told := cached[one]) is None else told
                   for one, reading in self._readings.items())  # fmt: skip
        self._left_bytes = int(room.available_bytes * _ROOM_SHARE) - held
        self._hindrance = None
        if room.waits_percent > _WAITS_PERCENT_MAX:
            self._hindrance = WarmState.PRESSURE
        elif self._left_bytes <= 0:
            self._hindrance = WarmState.NO_ROOM
        self._rows = tuple(
            (one, Warmth(one.manifest.label, self._size(one), cached[one], self._state(reading)))
            for one, reading in self._readings.items()
        )

    def _settle(self, replica: ModelReplica, reading: _Reading, cached: int | None) -> None:
        """Look again at all chunks of a version that was read lately and is not in memory whole."""
        is_late = self._context.clock.monotonic() >= reading.done_s + _SETTLES_S
        if not reading.is_done or is_late or cached is None:
            return
        segments = (part for chunk in replica.part.wanted for part in replica.placement.segments(chunk))
        if cached < sum(part.length for part in segments if not replica.placement.is_kept(part.file_index)):
            reading.chunks, reading.is_done, reading.before_bytes = iter(replica.part.wanted), False, reading.read_bytes

    def _state(self, reading: _Reading) -> WarmState:
        return WarmState.READ if reading.is_done else self._hindrance or WarmState.READING

    @staticmethod
    def _size(replica: ModelReplica) -> int:
        return sum(map(replica.manifest.chunk_length, replica.part.wanted))

    def _cached(self, replica: ModelReplica) -> int | None:
        disk, total = self._context.disk, 0
        for file_index in replica.placement.files():
            if replica.placement.is_kept(file_index):
                continue
            with suppress(FileNotFoundError), opened(disk, replica.path(file_index)) as descriptor:
                found = disk.cached(descriptor, 0, replica.placement.size(file_index))
                if found is None:
                    return None
                total += found
        return total

    def _read(self, replica: ModelReplica, reading: _Reading) -> int:
        """The next chunk, where it is not cached. What cannot be read is left to the scrub."""
        chunk = next(reading.chunks, None)
        if chunk is None or replica.is_closed:
            reading.is_done, reading.done_s = True, min(reading.done_s, self._context.clock.monotonic())
            if reading.before_bytes < reading.read_bytes:
                self._look_s = -math.inf  # tell so
            return 0
        before = reading.read_bytes
        for segment in replica.placement.segments(chunk):
            if not replica.placement.is_kept(segment.file_index):
                with suppress(OSError):
                    self._read_range(replica.path(segment.file_index), segment.offset, segment.length, reading)
        return reading.read_bytes - before

    def _read_range(self, path: str, offset: int, length: int, reading: _Reading) -> None:
        disk, end = self._context.disk, offset + length
        begin = offset - offset % PAGESIZE  # else a page that is missing hides where the range lies in one page more
        with opened(disk, path) as descriptor:
            if disk.cached(descriptor, begin, end - begin) == end - begin:
                return
            if self._buffer is None:
                self._buffer = memoryview(bytearray(_READ_BYTES))
            while offset < end and (found := disk.read_some(descriptor, self._buffer[: end - offset], offset)):
                offset += found
                reading.read_bytes += found
