"""Reads what is left of a packed chunk from one mirror: small segments over several requests at a time.

What lives here: the threads beside the reading one, and which segment each asks for next. What does not: the memory of
the chunk (``packed_chunk``), repeats and the choice of mirrors (``reader``), how many requests a host of storage gets
(``connection_limit``, ``request_rate``).

A chunk may pack thousands of small files. Over distance each costs a round trip, so several are asked for side by side,
within ``SourceSettings.connections`` for all reads of this host together. After a failure no further request begins,
and those under way end as they may: what they bring is kept. Where other mirrors are left, a file that this one lacks
does not end the pass, so that mirrors of which each lacks another file have the chunk between them.

Rejected: each segment as a read of its own for the planner, because a chunk is hashed and stored whole.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from msgspec import Struct, field

from gossipd.core.errors import GossipdError
from gossipd.core.ids import ChunkIndex
from gossipd.manifest.source_url import SourceUrl
from gossipd.runtime.buffer_pool import PoolExhaustedError
from gossipd.runtime.named_thread import NamedThread
from gossipd.runtime.system_refusals import NoThreadError
from gossipd.sources.admission import REFUSALS_MAX
from gossipd.sources.assembly import Delivery
from gossipd.sources.attempts import Attempts
from gossipd.sources.errors import (
    SourceAuthError,
    SourceCancelledError,
    SourceHashError,
    SourceNotFoundError,
    SourceRedirectError,
)
from gossipd.sources.location import Location
from gossipd.sources.packed_chunk import PackedChunk
from gossipd.sources.range_request import Job, SourceRequests
from gossipd.sources.settings import Clock, SourceSettings
from gossipd.sources.wrong_bytes import place_of

OF_ONE_OBJECT = (SourceAuthError, SourceNotFoundError, SourceRedirectError)
_SEGMENTS_PER_THREAD = 4  # fewer are over sooner than a thread begins


class Missed(Struct):
    """An object that did not come, and why."""

    location: Location
    error: GossipdError


class SegmentTurns(Struct):
    """Which segments of one pass are still to be asked for, and what has failed. Thread-safe. ``small``: those that a
    thread at the side may ask for. ``is_only``: no other mirror is left."""

    left: deque[int]
    small: frozenset[int]
    is_only: bool
    over: threading.Event = field(default_factory=threading.Event)
    missed: list[Missed] = field(default_factory=list)
    bug: BaseException | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, *, is_side: bool) -> int | None:
        """The next segment to ask for; None when none is left for this thread."""
        with self._lock:
            if self.over.is_set() or not self.left or (is_side and self.left[0] not in self.small):
                return None
            return self.left.popleft()

    def has_work_for(self, threads: int) -> bool:
        """Whether so many threads at the side have some segments each, and may ask for the next one."""
        with self._lock:
            few = len(self.left) < _SEGMENTS_PER_THREAD * threads
            return not few and not self.over.is_set() and self.left[0] in self.small

    def failed(self, location: Location, error: GossipdError) -> None:
        """A segment did not come. What happens to the others after the end of the pass says nothing new."""
        with self._lock:
            if self.over.is_set():
                return
            self.missed.append(Missed(location, error))
            if self.is_only or not isinstance(error, OF_ONE_OBJECT) or len(self.missed) >= REFUSALS_MAX:
                self.over.set()

    def broke(self, bug: BaseException) -> None:
        """A thread has met what no reader expects."""
        self.bug = bug
        self.over.set()


class PackedReader:
    """For all reads of one host. Thread-safe. ``reads``: how many are under way now."""

    def __init__(
        self, requests: SourceRequests, delivery: Delivery, settings: SourceSettings, clock: Clock,
        *, reads: Callable[[], int],
    ) -> None:  # fmt: skip
        self._requests = requests
        self._delivery = delivery
        self._source_settings = settings
        self._clock = clock
        self._reads = reads
        self._lock = threading.Lock()
        self._side_threads = 0

    def read(self, job: Job, source: SourceUrl, chunk: ChunkIndex, attempts: Attempts) -> list[Missed]:
        """Ask the mirror for what is left of a chunk, and give the chunk to the store when all has come. Returns what
        did not come, the last of which decides. Raises SourceHashError, StoreWriteError, NotHeldError."""
        packed = attempts.packed
        if packed is None or packed.chunk != chunk:
            attempts.close()
            packed = attempts.packed = PackedChunk(job, chunk, self._delivery, clock=self._clock)
        if attempts.is_alone(chunk) and packed.mirrors - {source.text}:
            packed.close()
        if missed := self._read_segments(job, source, packed, is_only=len(attempts.usable(chunk)) == 1):
            return missed
        is_mixed = len(packed.mirrors) > 1
        try:
            packed.deliver(place_of(job.manifest, source, chunk).shown)
        except SourceHashError:
            if not is_mixed or not attempts.read_alone(chunk):
                raise
        return []

    def _read_segments(self, job: Job, source: SourceUrl, chunk: PackedChunk, *, is_only: bool) -> list[Missed]:
        left = chunk.left()
        small = frozenset(at for at in left if chunk.rest(at).length <= self._source_settings.touch_bytes_max)
        turns = SegmentTurns(deque(left), small, is_only)
        asking = Job(
            job.manifest, mirror=job.mirror, is_awaited=job.is_awaited, from_start=job.from_start, stop=job.stop,
            over=turns.over,
        )  # fmt: skip
        work = partial(self._ask, asking, source, chunk, turns)
        threads: list[NamedThread] = []

        def begin_beside() -> None:
            """More threads, as far as other reads leave room now; an object without ranges comes one at a time."""
            while not job.from_start and turns.has_work_for(sum(one.is_alive() for one in threads) + 1):
                if not self._may_begin():
                    return
                thread = NamedThread(target=self._ask_beside, args=(work,), name="read-beside", daemon=True)
                try:
                    thread.start()
                except NoThreadError:
                    self._side_ended()
                    return
                threads.append(thread)

        try:
            work(is_side=False, before_each=begin_beside)
        finally:
            for thread in threads:
                thread.join()
        if turns.bug is not None:
            raise turns.bug
        return turns.missed

    def _may_begin(self) -> bool:
        with self._lock:
            may = self._reads() + self._side_threads < self._source_settings.connections
            self._side_threads += may
            return may

    def _side_ended(self) -> None:
        with self._lock:
            self._side_threads -= 1

    def _has_place(self) -> bool:
        """Whether the reads that began meanwhile leave room for the threads at the side."""
        return self._reads() + self._side_threads <= self._source_settings.connections

    def _ask_beside(self, work: Callable[..., None]) -> None:
        try:
            work(is_side=True)
        finally:
            self._side_ended()

    def _ask(
        self, asking: Job, source: SourceUrl, chunk: PackedChunk, turns: SegmentTurns, *, is_side: bool,
        before_each: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        while (not is_side or self._has_place()) and (at := turns.take(is_side=is_side)) is not None:
            before_each()
            part = chunk.rest(at)
            location = Location.of(source, asking.manifest.files[part.file_index].path)
            try:
                self._requests.read(asking, location, part, partial(chunk.feed, at, source.text))
            except PoolExhaustedError:
                turns.failed(location, SourceCancelledError(location.shown, "the read was stopped"))
            except GossipdError as error:
                turns.failed(location, error)
            except BaseException as bug:
                turns.broke(bug)
                raise
