"""One request for one range: admission, the first request, the stream, and what is learnt from it.

What lives here: the way from a range of an object to its pieces. What does not: choosing ranges and mirrors, and
repeats (``reader``). Used by many threads at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from gossipd.core.errors import GossipdError
from gossipd.core.ids import ChunkIndex, DeploymentId
from gossipd.manifest.chunk_layout import Segment
from gossipd.manifest.manifest import Manifest
from gossipd.manifest.source_url import SourceUrl
from gossipd.runtime.buffer_pool import BufferPool
from gossipd.runtime.rate_limit import RateLimit
from gossipd.sources.admission import SourceAdmission
from gossipd.sources.clients import Clients, Clock, Stream
from gossipd.sources.errors import SourceCancelledError, SourceChangedError, SourceError, SourceRedirectError
from gossipd.sources.first_request import Addresses, touch
from gossipd.sources.location import Location
from gossipd.sources.settings import SourceSettings
from gossipd.sources.versions import ObjectVersion, PinnedVersions, check_size
from gossipd.sources.web_stream import WebConnections, WebStream

STREAM_BYTES = 1024 * 1024  # obstore's buffers for one stream: up to 400 KiB read ahead, and one piece
_STOP_LOOKED_AT_S = 0.1  # how often a wait for another read checks its own stop flag
_FIRST_LOOKS = 64  # locks; objects that share one wait for each other's first request

Sink = Callable[[memoryview], None]


@dataclass(slots=True, eq=False)
class Job:
    """One call of the reader, during its run."""

    manifest: Manifest
    is_awaited: bool = False  # peers wait for the chunks and are sent each part at once
    stop: threading.Event = field(default_factory=threading.Event)
    stored: list[ChunkIndex] = field(default_factory=list)
    errors: list[GossipdError] = field(default_factory=list)


@dataclass(slots=True)
class _Asked:
    """One request in progress, to one of ``addresses`` if there are any. ``struggling``: the last one failed."""

    struggling: bool
    addresses: Addresses
    received: int = 0


class SourceRequests:
    """Makes requests. ``admission`` and ``pool`` are shared with the reader."""

    def __init__(
        self,
        admission: SourceAdmission,
        *,
        pool: BufferPool,
        throttle: RateLimit,
        settings: SourceSettings,
        clock: Clock,
    ) -> None:
        self._admission = admission
        self._pool = pool
        self._throttle = throttle
        self._settings = settings
        self._clock = clock
        self._clients = Clients(settings)
        self._connections = WebConnections(settings, clock)
        self._versions = PinnedVersions()
        self._first_looks = [threading.Lock() for _ in range(_FIRST_LOOKS)]
        self._pool_bytes = pool.statistics().pool_bytes
        quarter = self._pool_bytes // 4
        self._stream_bytes = min(STREAM_BYTES, quarter)
        self._streams = threading.BoundedSemaphore(quarter // self._stream_bytes)

    def forget(self, deployment: DeploymentId) -> None:
        self._versions.forget(deployment)
        self._connections.close()

    def reads_whole(self, source: SourceUrl) -> bool:
        """Whether the host is fast and no rate limit demands pieces."""
        return self._throttle.rate is None and self._admission.is_fast(source)

    def close(self) -> None:
        self._clients.close()
        self._connections.close()

    def read(self, job: Job, location: Location, part: Segment, sink: Sink) -> None:
        """Pass the bytes of one range to ``sink``, in pieces. Raises SourceError, and the exceptions of ``sink``."""
        if (refused := self._admission.refusal(job.manifest.id, location)) is not None:
            raise refused
        addresses = self._admission.admit(location.source, location.shown)
        small = part.length <= self._settings.touch_bytes_max
        if addresses and not small:
            self._look_once(job, location, addresses, part)
        with self._asked(job, location, addresses) as request:
            if addresses and (small or request.struggling):
                length = part.length if small else 1
                version, body = touch(location, addresses, part.offset, length, self._settings)
                self._check(job, location, part, version)
                if small:
                    self._pour(job, location, request, memoryview(body), sink)
                    return
            self._stream(job, location, part, request, sink)

    @contextmanager
    def _room(self, job: Job, location: Location, part: Segment, *, whole: bool) -> Iterator[None]:
        """Count obstore's buffers in the pool. A whole range exists twice while obstore joins its pieces, and needs no
        lease of ours. Streams together hold at most a quarter of the pool, so that their chunks always have room.
        """
        if whole:
            with self._pool.reserve(2 * part.length, gave_up=job.stop.is_set):
                yield
            return
        _acquire(self._streams, job, location)
        try:
            with self._pool.reserve(self._stream_bytes, gave_up=job.stop.is_set):
                yield
        finally:
            self._streams.release()

    def _name_the_change(self, job: Job, location: Location, part: Segment) -> None:
        """If-Match failed: ask for the present version, for an error that names both."""
        if addresses := self._admission.admit(location.source, location.shown):
            self._check(job, location, part, touch(location, addresses, part.offset, 1, self._settings)[0])

    def _open(
        self, location: Location, addresses: Addresses, part: Segment, pinned: ObjectVersion | None, *, whole: bool
    ) -> Stream | WebStream:
        if addresses:
            return WebStream(self._connections, location, addresses, part, pinned, whole=whole)
        store = self._clients.open(location, whole=whole)
        return Stream(store, location, part, pinned, whole=whole, settings=self._settings, clock=self._clock)

    def _stream(self, job: Job, location: Location, part: Segment, request: _Asked, sink: Sink) -> None:
        whole = self._may_read_whole(job, location, part)
        pinned = self._versions.get(job.manifest.id, location)
        with self._room(job, location, part, whole=whole):
            try:
                stream = self._open(location, request.addresses, part, pinned, whole=whole)
            except SourceChangedError:
                self._name_the_change(job, location, part)
                raise
            with closing(stream):
                self._check(job, location, part, stream.version)
                for piece in stream:
                    self._pour(job, location, request, piece, sink)
            self._admission.note_rate(location.source, part.length, stream.waited_s)

    def _may_read_whole(self, job: Job, location: Location, part: Segment) -> bool:
        """Whole chunks only, from a fast host without a rate limit: a part of a packed chunk needs our buffer. Not for
        awaited chunks, because a whole range can be relayed only when all of it is here.
        """
        return (
            not job.is_awaited
            and job.manifest.files[part.file_index].size >= job.manifest.chunk_bytes
            and 2 * part.length <= self._pool_bytes
            and self.reads_whole(location.source)
        )

    def _look_once(self, job: Job, location: Location, addresses: Addresses, part: Segment) -> None:
        """Make the first request to an object; of many threads that begin together, one makes it."""
        lock = self._first_looks[hash(location.key) % _FIRST_LOOKS]
        _acquire(lock, job, location)
        try:
            if self._versions.get(job.manifest.id, location) is not None:
                return
            if (refused := self._admission.refusal(job.manifest.id, location)) is not None:
                raise refused
            with self._asked(job, location, addresses) as request:
                version, body = touch(location, addresses, part.offset, 1, self._settings)
                self._check(job, location, part, version)
                request.received += len(body)
        except SourceError as error:
            if error.again == 0:
                self._admission.refuse(job.manifest.id, location, error)
            raise
        finally:
            lock.release()

    @contextmanager
    def _asked(self, job: Job, location: Location, addresses: Addresses) -> Iterator[_Asked]:
        """One request, from ``enter`` to ``leave`` of the admission."""
        request = _Asked(self._admission.enter(location.source, location.shown, job.stop), addresses)
        error: GossipdError | None = None
        try:
            yield request
        except SourceRedirectError as caught:
            error = self._admission.judge_redirect(location.source, caught)
            raise error from None
        except GossipdError as caught:
            error = caught
            raise
        finally:
            self._admission.leave(location.source, error, request.received)

    def _check(self, job: Job, location: Location, part: Segment, seen: ObjectVersion) -> None:
        expected = job.manifest.files[part.file_index].size
        if self._versions.get(job.manifest.id, location) is None:
            check_size(location.shown, found=seen.size, expected=expected)
        self._versions.check(job.manifest.id, location, seen)

    def _pour(self, job: Job, location: Location, request: _Asked, piece: memoryview, sink: Sink) -> None:
        request.received += len(piece)
        left = len(piece)
        while left:
            if job.stop.is_set():
                raise SourceCancelledError(location.shown, "the read was stopped")
            # In small steps: otherwise peer fetches under the same limit would wait for all of it and be cut, and a
            # changed limit would take effect late.
            step = self._throttle.piece(left)
            self._throttle.take(step)
            left -= step
        sink(piece)


def _acquire(lock: threading.Lock | threading.BoundedSemaphore, job: Job, location: Location) -> None:
    while not lock.acquire(timeout=_STOP_LOOKED_AT_S):
        if job.stop.is_set():
            raise SourceCancelledError(location.shown, "the read was stopped")
