"""Reads chunks from external storage into the store: what a seed does.

Theory of operation. ``read_chunks`` is called from worker threads, many at once, and blocks. It cuts the chunks into
runs (``ranges``), one request each, streams every run into pooled buffers, and hands each whole chunk to the store,
which hashes before it writes (``assembly``). A request passes the desk first: the policy on schemes, hosts and
addresses, and the pace of its host. The sources of a manifest are mirrors, tried in order for what is still missing.

An error is either about this moment (busy, unreachable, slow, short, one wrong hash), and then the request is repeated
within its host's budget; or about the object (not there, no right, changed, not the range asked for), and then the
object is left alone for half a minute, and the whole source after three such. Nothing is repeated by obstore itself.

Payload bytes are touched by C code only; this module sees lengths.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from gossipd.buffers import BufferPool, PoolExhaustedError
from gossipd.core.errors import GossipdError
from gossipd.core.events import FailReason
from gossipd.core.ids import ChunkIndex, DeploymentId
from gossipd.core.source_policy import SourcePolicy
from gossipd.core.source_url import SourceUrl, parse_source_url
from gossipd.ports import ChunkWriter, NotHeldError, StoreWriteError
from gossipd.sources.assembly import Assembly
from gossipd.sources.clients import Clients, Clock, Stream
from gossipd.sources.desk import Desk, Resolve, SourceStatistics
from gossipd.sources.errors import SourceCancelledError, SourceChangedError, SourceError, SourceHashError
from gossipd.sources.location import Location
from gossipd.sources.ranges import FileRange, Run, next_run
from gossipd.sources.settings import SourceSettings
from gossipd.sources.touch import Addresses, resolve, touch
from gossipd.sources.versions import ObjectVersion, PinnedVersions, check_size
from gossipd.throttle import Throttle

if TYPE_CHECKING:
    from gossipd.core.manifest import Manifest

STREAM_BYTES = 1024 * 1024  # obstore's buffers for one stream: hyper reads up to 400 KiB ahead, and one piece is ours
_STOP_LOOKED_AT_S = 0.1  # how often a wait for another read asks whether its own was stopped
_FIRST_LOOKS = 64  # locks; objects that share one wait for each other's first look


@dataclass(frozen=True, slots=True)
class ReadOutcome:
    """What became of one ``read_chunks``: every chunk is in one of the two.

    ``errors`` are in the order they happened, the last one decided; ``reason`` is None when nothing failed.
    """

    stored: tuple[ChunkIndex, ...]
    failed: tuple[ChunkIndex, ...]
    errors: tuple[GossipdError, ...] = ()

    @property
    def reason(self) -> FailReason | None:
        """For the planner."""
        return _reason(self.errors[-1]) if self.failed and self.errors else None


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """Whether this host can read a manifest's source; ``errors`` say why not, one for each mirror."""

    readable: bool
    errors: tuple[GossipdError, ...] = ()


@dataclass(slots=True, eq=False)
class _Job:
    """One call, while it runs."""

    manifest: Manifest
    stop: threading.Event = field(default_factory=threading.Event)
    stored: list[ChunkIndex] = field(default_factory=list)
    errors: list[GossipdError] = field(default_factory=list)


@dataclass(slots=True)
class _Request:
    """One request, while it runs. ``struggling``: the host failed the last time it was asked."""

    struggling: bool
    received: int = 0


class SourceReader:
    """All of one host's reads from external storage. Thread-safe.

    Args:
        writer: the store.
        pool: where bodies wait for the store; obstore's own buffers are counted in it.
        throttle: the limit of external bytes a second.
        policy: which addresses this host may read.
        rng: jitter.
        on_error: told of every failed request, from worker threads; for logs.
    """

    def __init__(
        self, *, writer: ChunkWriter, pool: BufferPool, throttle: Throttle, policy: SourcePolicy,
        settings: SourceSettings | None = None, rng: Random | None = None, clock: Clock = time.monotonic,
        find: Resolve = resolve, on_error: Callable[[DeploymentId, SourceError], None] | None = None,
    ) -> None:  # fmt: skip
        self._settings = settings or SourceSettings()
        self._writer = writer
        self._pool = pool
        self._throttle = throttle
        self._clock = clock
        self._on_error = on_error
        self._desk = Desk(self._settings, policy=policy, rng=rng or Random(), clock=clock, find=find)
        self._clients = Clients(self._settings)
        self._versions = PinnedVersions()
        self._first_looks = [threading.Lock() for _ in range(_FIRST_LOOKS)]
        quarter = pool.statistics().pool_bytes // 4
        self._stream_bytes = min(STREAM_BYTES, quarter)
        self._streams = threading.BoundedSemaphore(quarter // self._stream_bytes)
        self._lock = threading.Lock()
        self._running: set[_Job] = set()
        self._closed = False

    def read_chunks(self, manifest: Manifest, chunks: Sequence[ChunkIndex]) -> ReadOutcome:
        """Read these chunks and put each into the store; blocks until all are stored or given up.

        Args:
            chunks: adjacent ones in ascending order are read by one request up to ``range_bytes_max``.
        """
        with self._job(manifest) as job:
            missing = list(chunks)
            for url in manifest.sources:
                missing = self._read_from(job, parse_source_url(url), missing)
                if not missing or (job.errors and not _another_mirror_may_help(job.errors[-1])):
                    break
            return ReadOutcome(tuple(job.stored), tuple(missing), tuple(job.errors))

    def probe(self, manifest: Manifest) -> ProbeOutcome:
        """Ask the first object of each source in turn for one byte, until one gives it."""
        index = next(at for at, entry in enumerate(manifest.files) if entry.size)  # a model has at least one byte
        self._desk.forget(manifest.id)
        with self._job(manifest) as job:
            for url in manifest.sources:
                location = Location.of(parse_source_url(url), manifest.files[index].path)
                try:
                    self._read_range(job, location, FileRange(index, 0, 1), lambda _: None)
                except SourceError as error:
                    self._note(job, location, error)
                else:
                    return ProbeOutcome(True, tuple(job.errors))
            return ProbeOutcome(False, tuple(job.errors))

    def set_policy(self, policy: SourcePolicy) -> None:
        """For requests from now on; what is under way goes on."""
        self._desk.set_policy(policy)

    def cancel(self, deployment: DeploymentId) -> None:
        """Stop what is being read for this deployment, at the next piece of each stream."""
        self._stop(lambda job: job.manifest.id == deployment)

    def forget(self, deployment: DeploymentId) -> None:
        """``cancel``, and drop what was remembered of its objects' versions."""
        self.cancel(deployment)
        self._desk.forget(deployment)
        self._versions.forget(deployment)

    def close(self) -> None:
        """Stop everything; reads that begin later end at once as cancelled."""
        with self._lock:
            self._closed = True
        self._stop(lambda _: True)
        self._clients.close()

    def statistics(self) -> SourceStatistics:
        """Counts so far, and what is wrong with which host now."""
        return self._desk.statistics()

    # ---- jobs ----------------------------------------------------------------------------------

    @contextmanager
    def _job(self, manifest: Manifest) -> Iterator[_Job]:
        job = _Job(manifest)
        with self._lock:
            self._running.add(job)
            if self._closed:
                job.stop.set()
        try:
            yield job
        finally:
            with self._lock:
                self._running.discard(job)

    def _stop(self, chosen: Callable[[_Job], bool]) -> None:
        with self._lock:
            for job in self._running:
                if chosen(job):
                    job.stop.set()
        self._pool.wake()

    def _note(self, job: _Job, location: Location, error: GossipdError) -> None:
        """An error that decided something: the object may be left alone for a while."""
        job.errors.append(error)
        if isinstance(error, SourceError) and error.again == 0 and not isinstance(error, SourceCancelledError):
            self._desk.refuse(job.manifest.id, location, error)

    # ---- one source ----------------------------------------------------------------------------

    def _read_from(self, job: _Job, source: SourceUrl, chunks: list[ChunkIndex]) -> list[ChunkIndex]:
        """Reads ``chunks`` from one source; returns those it did not get."""
        pending = chunks
        failed: list[ChunkIndex] = []
        repeats: Counter[ChunkIndex] = Counter()
        while pending:
            run = next_run(job.manifest, pending, range_bytes_max=self._settings.range_bytes_max)
            location = Location.of(source, job.manifest.files[run.ranges[0].file_index].path)
            before = len(job.stored)
            try:
                self._read_run(job, source, run, location)
            except GossipdError as error:
                done = set(job.stored[before:])
                pending = [chunk for chunk in pending if chunk not in done]
                repeats[pending[0]] += 1
                if _may_repeat(error, repeats[pending[0]]) and self._desk.take_retry(source):
                    continue
                self._note(job, location, error)
                if not isinstance(error, SourceHashError):
                    return failed + pending
                failed.append(pending.pop(0))
            else:
                pending = pending[len(run.chunks) :]
        return failed

    def _read_run(self, job: _Job, source: SourceUrl, run: Run, first: Location) -> None:
        """Raises SourceError, StoreWriteError, NotHeldError."""
        assembly = Assembly(
            job.manifest, run.chunks, what=first.shown, writer=self._writer, pool=self._pool, clock=self._clock,
            stopped=job.stop.is_set, on_stored=job.stored.append,
        )  # fmt: skip
        try:
            for part in run.ranges:
                location = Location.of(source, job.manifest.files[part.file_index].path)
                self._read_range(job, location, part, assembly.feed)
        except PoolExhaustedError:
            raise SourceCancelledError(first.shown, "the read was stopped") from None
        finally:
            assembly.close()

    # ---- one request ---------------------------------------------------------------------------

    def _read_range(self, job: _Job, location: Location, part: FileRange, sink: Callable[[memoryview], None]) -> None:
        """The bytes of one range, in pieces, to ``sink``. Raises SourceError, and whatever ``sink`` raises."""
        if (refused := self._desk.refusal(job.manifest.id, location)) is not None:
            raise refused
        addresses = self._desk.admit(location.source, location.shown)
        small = part.length <= self._settings.touch_bytes_max
        if addresses and not small:
            self._look_once(job, location, addresses, part)
        with self._asked(job, location) as request:
            if addresses and (small or request.struggling):
                length = part.length if small else 1
                touched = touch(location, addresses, part.offset, length, self._settings)
                self._check(job, location, part, touched.version)
                if small:
                    self._pour(job, location, request, memoryview(touched.body), sink)
                    return
            self._stream(job, location, part, request, sink)

    @contextmanager
    def _room_for_a_stream(self, job: _Job, location: Location) -> Iterator[None]:
        """Counts obstore's buffers in the pool; a quarter of it at most, so that a chunk always finds room too."""
        _acquire(self._streams, job, location)
        try:
            with self._pool.reserve(self._stream_bytes, gave_up=job.stop.is_set):
                yield
        finally:
            self._streams.release()

    def _name_the_change(self, job: _Job, location: Location, part: FileRange) -> None:
        """If-Match has failed: look at what is there now, for an error that names both versions."""
        if addresses := self._desk.admit(location.source, location.shown):
            self._check(job, location, part, touch(location, addresses, part.offset, 1, self._settings).version)

    def _stream(
        self, job: _Job, location: Location, part: FileRange, request: _Request, sink: Callable[[memoryview], None]
    ) -> None:
        store = self._clients.open(location)
        pinned = self._versions.get(job.manifest.id, location)
        with self._room_for_a_stream(job, location):
            try:
                stream = Stream(
                    store, location, part.offset, part.length, pinned, settings=self._settings, clock=self._clock
                )
            except SourceChangedError:
                self._name_the_change(job, location, part)
                raise
            self._check(job, location, part, stream.version)
            for piece in stream:
                self._pour(job, location, request, piece, sink)

    def _look_once(self, job: _Job, location: Location, addresses: Addresses, part: FileRange) -> None:
        """Touch the object unless it has been seen; when many begin with it at once, one of them does."""
        lock = self._first_looks[hash(location.key) % _FIRST_LOOKS]
        _acquire(lock, job, location)
        try:
            if self._versions.get(job.manifest.id, location) is not None:
                return
            if (refused := self._desk.refusal(job.manifest.id, location)) is not None:
                raise refused
            with self._asked(job, location) as request:
                touched = touch(location, addresses, part.offset, 1, self._settings)
                self._check(job, location, part, touched.version)
                request.received += len(touched.body)
        except SourceError as error:
            if error.again == 0:
                self._desk.refuse(job.manifest.id, location, error)
            raise
        finally:
            lock.release()

    @contextmanager
    def _asked(self, job: _Job, location: Location) -> Iterator[_Request]:
        """One request: from the desk's leave to its report."""
        request = _Request(self._desk.enter(location.source, location.shown, job.stop))
        error: GossipdError | None = None
        try:
            yield request
        except GossipdError as caught:
            error = caught
            if self._on_error is not None and isinstance(caught, SourceError):
                self._on_error(job.manifest.id, caught)
            raise
        finally:
            self._desk.leave(location.source, error, request.received)

    def _check(self, job: _Job, location: Location, part: FileRange, seen: ObjectVersion) -> None:
        expected = job.manifest.files[part.file_index].size
        if self._versions.get(job.manifest.id, location) is None:
            check_size(location.shown, found=seen.size, expected=expected)
        self._versions.check(job.manifest.id, location, seen)

    def _pour(
        self, job: _Job, location: Location, request: _Request, piece: memoryview, sink: Callable[[memoryview], None]
    ) -> None:
        request.received += len(piece)
        if job.stop.is_set():
            raise SourceCancelledError(location.shown, "the read was stopped")
        self._throttle.take(len(piece))
        sink(piece)


def _acquire(lock: threading.Lock | threading.BoundedSemaphore, job: _Job, location: Location) -> None:
    while not lock.acquire(timeout=_STOP_LOOKED_AT_S):
        if job.stop.is_set():
            raise SourceCancelledError(location.shown, "the read was stopped")


def _may_repeat(error: GossipdError, repeats: int) -> bool:
    return isinstance(error, SourceError) and repeats <= error.again


def _another_mirror_may_help(error: GossipdError) -> bool:
    return isinstance(error, SourceError) and not isinstance(error, SourceCancelledError)


def _reason(error: GossipdError) -> FailReason:
    if isinstance(error, SourceError):
        return error.reason
    if isinstance(error, StoreWriteError):
        return FailReason.DISK
    return FailReason.CANCELLED if isinstance(error, NotHeldError | PoolExhaustedError) else FailReason.SOURCE
