"""Reads runs of chunks from external storage, and again or from another mirror after a failure: the work of a seed.

Theory of operation. Many worker threads call ``read_chunks``, which blocks. It cuts the chunks into runs of one request
each (``ranges``), streams every run into pooled buffers, and hands each whole chunk to the store, which hashes before
it writes (``assembly``). A chunk of small files takes a request for each, several at a time (``packed_read``). A
request (``range_request``) first passes the admission: the policy on schemes, hosts and addresses, and the pace of its
host. The sources of a manifest are mirrors; each is asked for what others did not give.

An error is either momentary (busy, unreachable, slow, short, one wrong hash): then the request is repeated within its
host's budget. Or it is about the object (missing, no access, changed, no ranges): then the object is left alone for
half a minute, and the whole source after three such objects. Bytes that stay wrong are left alone for longer each time
(``wrong_bytes``). obstore repeats nothing by itself. Only C code touches payload bytes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from random import Random

from msgspec import Struct

from gossipd.core.errors import GossipdError
from gossipd.core.events import FailReason
from gossipd.core.ids import ChunkIndex, DeploymentId
from gossipd.manifest.chunk_layout import Segment
from gossipd.manifest.manifest import Manifest
from gossipd.manifest.source_policy import SourcePolicy
from gossipd.manifest.source_url import SourceUrl, parse_source_url
from gossipd.runtime.buffer_pool import PoolExhaustedError
from gossipd.runtime.ports import NotHeldError, StoreWriteError
from gossipd.runtime.rate_limit import RateLimit
from gossipd.sources.addresses import resolve
from gossipd.sources.admission import GOOD_BYTES_MIN, Resolve, SourceAdmission, SourceStatistics
from gossipd.sources.assembly import Assembly, Delivery
from gossipd.sources.attempts import Attempts
from gossipd.sources.errors import (
    SourceCancelledError,
    SourceChangedError,
    SourceError,
    SourceHashError,
    SourceShortError,
    SourceSlowError,
    SourceUnreachableError,
    SourceWholeOnlyError,
    without_frames,
)
from gossipd.sources.location import Location
from gossipd.sources.packed_read import OF_ONE_OBJECT, PackedReader
from gossipd.sources.range_request import Job, SourceRequests
from gossipd.sources.ranges import ReadExtent, next_extent, ranges_after
from gossipd.sources.settings import Clock, SourceSettings
from gossipd.sources.wrong_bytes import WrongBytes


class ReadOutcome(Struct, frozen=True):
    """The result of one ``read_chunks``: every chunk is in ``stored`` or in ``failed``. ``errors`` are in the order of
    their occurrence; the last one decides ``reason``.
    """

    stored: tuple[ChunkIndex, ...]
    failed: tuple[ChunkIndex, ...]
    errors: tuple[GossipdError, ...] = ()

    @property
    def reason(self) -> FailReason | None:
        """The reason for the planner; None when nothing failed."""
        if self.failed and any(isinstance(error, SourceWholeOnlyError) for error in self.errors):
            return FailReason.WHOLE_ONLY
        return _reason(self.errors[-1]) if self.failed and self.errors else None


class ProbeOutcome(Struct, frozen=True):
    """Whether this host can read a manifest's source; ``errors`` has the cause for each mirror. ``is_whole_only``: no
    mirror has ranges."""

    readable: bool
    errors: tuple[GossipdError, ...] = ()
    is_whole_only: bool = False


class SourceReader:
    """All reads of one host from external storage. Thread-safe. ``delivery``: where chunks go; its pool also counts
    obstore's own buffers. ``throttle``: the limit of external bytes per second. ``rng``: for pauses.
    """

    def __init__(
        self, delivery: Delivery, *, throttle: RateLimit, policy: SourcePolicy, settings: SourceSettings | None = None,
        rng: Random | None = None, clock: Clock = time.monotonic, find: Resolve = resolve,
    ) -> None:  # fmt: skip
        self._source_settings = settings or SourceSettings()
        self._delivery = delivery
        self._clock = clock
        self._admission = SourceAdmission(
            self._source_settings, policy=policy, rng=rng or Random(), clock=clock, find=find
        )
        self._requests = SourceRequests(
            self._admission, pool=delivery.pool, throttle=throttle, settings=self._source_settings, clock=clock
        )
        self._wrong = WrongBytes(self._source_settings, clock)
        self._lock = threading.Lock()
        self._running: set[Job] = set()
        self._packed = PackedReader(
            self._requests, delivery, self._source_settings, clock, reads=lambda: len(self._running)
        )
        self._closed = False

    def read_chunks(
        self, manifest: Manifest, chunks: Sequence[ChunkIndex], *, is_awaited: bool = False, from_start: bool = False
    ) -> ReadOutcome:
        """Read these chunks and put each into the store; blocks until all are stored or given up. Adjacent chunks in
        ascending order share a request of up to ``range_bytes_max``. ``is_awaited``: peers want them during their
        arrival, so read in pieces although whole ranges are cheaper. ``from_start``: reads come in order and one at a
        time, so objects of servers without ranges are read from their beginning; else those fail as ``WHOLE_ONLY``.
        """
        with self._job(manifest, is_awaited=is_awaited, from_start=from_start) as job:
            missing = self._read_all(job, list(chunks))
            return ReadOutcome(tuple(job.stored), tuple(missing), tuple(job.errors))

    def probe(self, manifest: Manifest) -> ProbeOutcome:
        """Ask the first object of each source for one byte, until one source with ranges gives it. Objects whose bytes
        were wrong are looked at, too: one that was replaced meanwhile may be read again."""
        index = next(at for at, entry in enumerate(manifest.files) if entry.size)  # a model has at least one byte
        self._admission.forget(manifest.id)
        is_whole_only = False
        with self._job(manifest) as job:
            self._look_at_wrong(job)
            for url in manifest.sources:
                location = Location.of(parse_source_url(url), manifest.files[index].path)
                try:
                    self._requests.read(job, location, Segment(index, 0, 1), lambda _: None)
                except PoolExhaustedError:
                    self._note(job, location, SourceCancelledError(location.shown, "the read was stopped"))
                except SourceWholeOnlyError:
                    is_whole_only = True
                except SourceError as error:
                    self._note(job, location, without_frames(error))
                else:
                    if not self._requests.lacks_ranges(location):
                        return ProbeOutcome(True, tuple(job.errors))
                    is_whole_only = True
            return ProbeOutcome(is_whole_only, tuple(job.errors), is_whole_only)

    def set_policy(self, policy: SourcePolicy) -> None:
        """For requests from now on; reads in progress continue."""
        self._admission.set_policy(policy)

    def look_again(self) -> None:
        """The operator says so: nothing that was refused or wrong is left alone any longer."""
        self._wrong.clear()
        self._admission.forget_all()

    def cancel(self, deployment: DeploymentId) -> None:
        """Stop the reads of this deployment, at the next piece of each stream."""
        self._stop(lambda job: job.manifest.id == deployment)

    def forget(self, deployment: DeploymentId) -> None:
        """``cancel``, and drop the remembered versions of its objects."""
        self.cancel(deployment)
        self._admission.forget(deployment)
        self._requests.forget(deployment)
        self._wrong.forget(deployment)

    def close(self) -> None:
        """Stop everything; later reads end at once as cancelled."""
        with self._lock:
            self._closed = True
        self._stop(lambda _: True)
        self._requests.close()

    def reads_whole(self, manifest: Manifest) -> bool:
        """Whether the first source is read in whole ranges now, because it is fast and no rate limit is set."""
        return self._requests.reads_whole(parse_source_url(manifest.sources[0]))

    def statistics(self) -> SourceStatistics:
        """Counters, and the present trouble of each host."""
        return self._admission.statistics()

    @contextmanager
    def _job(self, manifest: Manifest, *, is_awaited: bool = False, from_start: bool = False) -> Iterator[Job]:
        job = Job(manifest, is_awaited=is_awaited, from_start=from_start)
        with self._lock:
            self._running.add(job)
            if self._closed:
                job.stop.set()
        try:
            yield job
        finally:
            with self._lock:
                self._running.discard(job)

    def _stop(self, chosen: Callable[[Job], bool]) -> None:
        with self._lock:
            for job in self._running:
                if chosen(job):
                    job.stop.set()
        self._delivery.pool.wake()

    def _note(self, job: Job, location: Location, error: GossipdError) -> None:
        """Record an error that decided something; its object may be left alone for a while."""
        job.errors.append(error)
        if isinstance(error, SourceError) and (error.is_permanent or isinstance(error, OF_ONE_OBJECT)):
            error.path = location.path
        if not isinstance(error, SourceError) or isinstance(error, SourceCancelledError | SourceWholeOnlyError):
            return
        if error.again == 0:
            self._admission.refuse(job.manifest.id, location, error)

    def _note_wrong(self, job: Job, location: Location, error: SourceHashError, lost: ChunkIndex) -> SourceHashError:
        """The bytes of a chunk are wrong. Returns the error to record."""
        change = self._requests.versions.change(job.manifest.id, location)
        if change is not None:
            error = SourceChangedError(location.shown, f"the object has changed: {change}")
        # Of an object that comes only whole, each further chunk would be looked for from its beginning again.
        is_whole = job.from_start and self._requests.lacks_ranges(location)
        version = self._requests.versions.last(job.manifest.id, location)
        self._wrong.came_wrong(job.manifest.id, location, lost, error, version=version, is_whole=is_whole)
        return error

    def _look_at_wrong(self, job: Job) -> None:
        files = {entry.path: index for index, entry in enumerate(job.manifest.files)}
        for location in self._wrong.take_looks(job.manifest.id):
            try:
                self._requests.read(job, location, Segment(files[location.path], 0, 1), lambda _: None)
                version = self._requests.versions.last(job.manifest.id, location)
            except SourceWholeOnlyError as error:
                version = error.version
            except (SourceError, PoolExhaustedError):
                continue
            self._wrong.look(job.manifest.id, location, version)

    def _read_all(self, job: Job, pending: list[ChunkIndex]) -> list[ChunkIndex]:
        """Read ``pending`` from the mirrors. Returns the chunks that none of them gave."""
        mirrors = [parse_source_url(url) for url in job.manifest.sources]
        failed: list[ChunkIndex] = []
        with closing(Attempts(job, mirrors, self._wrong)) as attempts:
            while pending:
                usable = attempts.usable(pending[0])
                if not usable:
                    if not attempts.are_left:
                        return failed + pending
                    failed.append(pending.pop(0))
                    continue
                alike = attempts.alike(pending)
                run = next_extent(job.manifest, alike, range_bytes_max=self._source_settings.range_bytes_max)
                before = len(job.stored)
                error = self._read_run(job, usable, run, attempts)
                done = set(job.stored[before:])
                pending = [chunk for chunk in pending if chunk not in done]
                if error is not None and pending and not _another_mirror_may_help(error):
                    return failed + pending
        return failed

    def _read_run(
        self, job: Job, usable: Sequence[SourceUrl], run: ReadExtent, attempts: Attempts
    ) -> GossipdError | None:
        """Read one run from the mirror that suits best. Returns the error that ended it, if it was not to the end."""
        path = job.manifest.files[run.ranges[0].file_index].path
        what = Location.of(usable[0], path).shown
        try:
            source = self._admission.choose(usable, what, job.stop)
        except SourceError as error:
            self._note(job, Location.of(usable[0], path), without_frames(error))
            return error
        location = Location.of(source, path)
        job.mirror = source.text
        try:
            if len(run.ranges) == 1:
                self._read_extent(job, source, run, location, is_only=len(usable) == 1)
            elif missed := self._packed.read(job, source, run.chunks[0], attempts):
                for other in missed[:-1]:
                    self._note(job, other.location, without_frames(other.error))
                location = missed[-1].location
                raise missed[-1].error
        except GossipdError as error:
            without_frames(error)
            lost = [chunk for chunk in run.chunks if chunk not in job.stored]
            if lost and not self._will_repeat(job, source, error, attempts, lost[0], is_only=len(usable) == 1):
                if isinstance(error, SourceHashError):
                    error = self._note_wrong(job, location, error, lost[0])
                self._note(job, location, error)
            return error
        finally:
            self._admission.release(source)
            self._wrong.came_right(job.manifest, source, [chunk for chunk in run.chunks if chunk in job.stored])
        return None

    def _will_repeat(
        self, job: Job, source: SourceUrl, error: GossipdError, attempts: Attempts, chunk: ChunkIndex, *, is_only: bool
    ) -> bool:
        """Whether the mirror may be asked for ``chunk`` again. Waits before a repeat."""
        if not isinstance(error, SourceError) or isinstance(error, SourceCancelledError):
            return False
        self._admission.blame(source, error)
        is_wrong = isinstance(error, SourceHashError)
        repeats = attempts.count(source, chunk)
        was_wrong = is_wrong and self._wrong.was_wrong(job.manifest, source, chunk)
        pause_s = (
            None if is_wrong and (was_wrong or not is_only) else self._admission.take_retry(source, error, repeats)
        )
        if pause_s is None:
            lacks = isinstance(error, OF_ONE_OBJECT) and len(job.manifest.segments(chunk)) > 1
            attempts.give_up(source, chunk if is_wrong or lacks else None)
            return False
        if is_only:
            job.stop.wait(pause_s)
        return True

    def _read_extent(self, job: Job, source: SourceUrl, run: ReadExtent, first: Location, *, is_only: bool) -> None:
        """Raises SourceError, StoreWriteError, NotHeldError. A request that breaks off when it has brought a good part
        is gone on with where it broke.
        """
        assembly = Assembly(job, run.chunks, self._delivery, what=first.shown, clock=self._clock)
        try:
            while left := ranges_after(run.ranges, assembly.received):
                before = assembly.received
                try:
                    for part in left:
                        location = Location.of(source, job.manifest.files[part.file_index].path)
                        self._requests.read(job, location, part, assembly.feed)
                except SourceError as error:
                    goes_on = isinstance(error, _BREAKS) or (is_only and isinstance(error, SourceSlowError))
                    if not goes_on or assembly.received - before < GOOD_BYTES_MIN:
                        raise
                    self._admission.went_on()
        except PoolExhaustedError:
            raise SourceCancelledError(first.shown, "the read was stopped") from None
        finally:
            assembly.close()


_BREAKS = (SourceShortError, SourceUnreachableError)


def _another_mirror_may_help(error: GossipdError) -> bool:
    return isinstance(error, SourceError) and not isinstance(error, SourceCancelledError)


def _reason(error: GossipdError) -> FailReason:
    if isinstance(error, SourceError):
        return error.reason
    if isinstance(error, StoreWriteError):
        return FailReason.DISK
    return FailReason.CANCELLED if isinstance(error, NotHeldError | PoolExhaustedError) else FailReason.SOURCE
