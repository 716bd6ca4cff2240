"""One request for one range: admission, the first request, the stream, and what is learnt from it.

What lives here: the way from a range of an object to its pieces. What does not: choosing ranges and mirrors, and
repeats (``reader``); the request itself (``obstore_clients``, ``web_stream``, ``file_stream``). Used by many threads at
once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from gossipd.core.errors import GossipdError
from gossipd.core.ids import ChunkIndex, DeploymentId
from gossipd.manifest.chunk_layout import Segment
from gossipd.manifest.manifest import Manifest
from gossipd.manifest.source_url import SourceUrl
from gossipd.runtime.buffer_pool import BufferPool
from gossipd.runtime.bulk_sockets import BULK_SOCKETS
from gossipd.runtime.rate_limit import RateLimit
from gossipd.sources.addresses import Addresses
from gossipd.sources.admission import SourceAdmission
from gossipd.sources.errors import (
    SourceCancelledError,
    SourceError,
    SourceForbiddenError,
    SourceProxyError,
    SourceRedirectError,
    SourceShortError,
    SourceWholeOnlyError,
)
from gossipd.sources.file_stream import FileStream
from gossipd.sources.host_pace import Turn
from gossipd.sources.hub import HubRoutes
from gossipd.sources.location import Location
from gossipd.sources.pieces import PIECE_BYTES, Pieces, Wanted, readable, readable_pieces
from gossipd.sources.proxies import answering_proxy
from gossipd.sources.request_watch import RequestWatch
from gossipd.sources.settings import Clock, SourceSettings
from gossipd.sources.versions import ObjectVersion, SeenVersions, check_size
from gossipd.sources.whole_objects import WholeObjects

if TYPE_CHECKING:
    from gossipd.sources.first_request import Touched
    from gossipd.sources.obstore_clients import Clients, Stream
    from gossipd.sources.web_stream import WebConnections, WebStream

STREAM_BYTES = 1024 * 1024  # obstore's buffers for one stream: up to 400 KiB read ahead, and one piece
_STOP_LOOKED_AT_S = 0.1  # how often a wait for another read checks its own stop flag
_PIECE_BYTES_MIN = 16 * 1024  # less, under a low limit, costs more than it smooths
BROKEN_PIECE_BYTES = 32 * 1024  # at a host whose answers break off: what is lost with the connection is less
_OURS = (SourceCancelledError, SourceForbiddenError, SourceWholeOnlyError)  # no answer is to blame
_FIRST_LOOKS = 64  # locks; objects that share one wait for each other's first request

Sink = Callable[[memoryview], None]
Attempt = Callable[[Location, Addresses], None]
_AnyStream: TypeAlias = "Stream | FileStream | WebStream"


class Job(Struct, eq=False):
    """One call of the reader, during its run."""

    manifest: Manifest
    mirror: str = ""  # the source that is read now
    is_awaited: bool = False  # peers wait for the chunks and are sent each part at once
    from_start: bool = False  # objects of servers without ranges are read from their beginning
    stop: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)  # no further request begins; those under way go on
    stored: list[ChunkIndex] = field(default_factory=list)
    errors: list[GossipdError] = field(default_factory=list)

    def is_set(self) -> bool:
        """Whether no further request may begin."""
        return self.stop.is_set() or self.over.is_set()


class _Asked(Struct):
    """One request in progress, to one of ``addresses`` if there are any."""

    turn: Turn
    addresses: Addresses
    received: int = 0


class _Buckets:
    """Clients that are made for the first read of a bucket: obstore takes memory and threads, which most hosts
    never need."""

    def __init__(self, settings: SourceSettings) -> None:
        self._source_settings = settings
        self._lock = threading.Lock()
        self._clients: Clients | None = None

    def clients(self) -> Clients:
        """Raises SourceError."""
        with self._lock:
            if self._clients is None:
                from gossipd.sources.obstore_clients import Clients, start_runtime

                start_runtime()
                self._clients = Clients(self._source_settings)
            return self._clients

    def close(self) -> None:
        if self._clients is not None:
            self._clients.close()


class _Web:
    """Connections to web servers, which are made for the first read of one. Only then ``http.client`` and what belongs
    to it are imported, in the thread of that read: a megabyte that no other daemon needs."""

    def __init__(self, settings: SourceSettings, clock: Clock) -> None:
        self._source_settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._connections: WebConnections | None = None

    def connections(self) -> WebConnections:
        """Those that wait for the next range."""
        from gossipd.sources.web_stream import WebConnections  # see the class

        with self._lock:
            if self._connections is None:
                self._connections = WebConnections(self._source_settings, self._clock)
            return self._connections

    def touch(self, location: Location, addresses: Addresses, wanted: Wanted) -> Touched:
        """The first request to an object, or all of a small one. Raises SourceError."""
        from gossipd.sources.first_request import Touched  # see the class

        with closing(self.stream(location, addresses, wanted, Pieces())) as stream:
            body = b"".join(bytes(piece) for piece in stream)  # each is good until the next one
        if len(body) != wanted.length:
            raise SourceShortError(location.shown, f"{len(body)} bytes came of the {wanted.length} asked for")
        return Touched(stream.version, body, stream.lacks_ranges)

    def stream(self, location: Location, addresses: Addresses, wanted: Wanted, pieces: Pieces) -> WebStream:
        """Raises SourceError."""
        from gossipd.sources.web_stream import WebStream  # see the class

        return WebStream(self.connections(), location, addresses, wanted, pieces=pieces)

    def close(self) -> None:
        """Close the connections that wait for the next range."""
        if self._connections is not None:
            self._connections.close()


class SourceRequests:
    """Makes requests. ``admission`` and ``pool`` are shared with the reader, which reads ``versions``."""

    def __init__(
        self, admission: SourceAdmission, *, pool: BufferPool, throttle: RateLimit, settings: SourceSettings,
        clock: Clock,
    ) -> None:  # fmt: skip
        self._admission = admission
        self._pool = pool
        self._throttle = throttle
        self._source_settings = settings
        self._patient = replace(settings, rate_bytes_min=settings.rate_alone_bytes_min)
        self._clock = clock
        self._buckets = _Buckets(settings)
        self._web = _Web(settings, clock)
        self.versions = SeenVersions()
        self._wholes = WholeObjects()
        self._hub = HubRoutes(os.environ, admission)
        self._first_looks = [threading.Lock() for _ in range(_FIRST_LOOKS)]
        self._pool_bytes = pool.statistics().pool_bytes
        quarter = self._pool_bytes // 4
        self._stream_bytes = min(STREAM_BYTES, quarter)
        self._streams = threading.BoundedSemaphore(quarter // self._stream_bytes)

    def forget(self, deployment: DeploymentId) -> None:
        self.versions.forget(deployment)
        self._hub.forget()
        self._wholes.forget(deployment)
        self._web.close()

    def lacks_ranges(self, location: Location) -> bool:
        """Whether the server was seen to send the whole object for a part of it."""
        return self._wholes.lacks_ranges(location.shown)

    def reads_whole(self, source: SourceUrl) -> bool:
        """Whether the host is fast and no rate limit demands pieces."""
        return self._throttle.rate is None and self._admission.is_fast(source)

    def close(self) -> None:
        self._buckets.close()
        self._wholes.close()
        self._web.close()

    def read(self, job: Job, location: Location, part: Segment, sink: Sink) -> None:
        """Pass the bytes of one range to ``sink``, in pieces. Raises SourceError, and the exceptions of ``sink``."""
        if (refused := self._admission.refusal(job.manifest.id, location)) is not None:
            raise refused
        if _is_looked_at_first(job, location, part, self._source_settings):
            self._look_once(job, location, part)
            if job.from_start and location.is_on_web and self.lacks_ranges(location):
                self._read_on(job, location, part, sink)
                return
        self._read_to_end(job, location, part, sink)

    def _led(self, location: Location, attempt: Attempt) -> None:
        """Call ``attempt`` with the place where the object is asked for, and its addresses."""
        if location.is_on_hub:
            self._hub.lead(location, attempt)
            return
        attempt(location, self._admission.admit(location.source, location.shown))

    def _read_to_end(self, job: Job, location: Location, part: Segment, sink: Sink) -> None:
        """In several requests to a server that gives less than it is asked for."""
        position, end = part.offset, part.offset + part.length

        def attempt(at: Location, addresses: Addresses) -> None:
            nonlocal position
            position += self._read_at(job, at, addresses, Segment(part.file_index, position, end - position), sink)

        while position < end:
            self._led(location, attempt)

    def _read_at(self, job: Job, location: Location, addresses: Addresses, part: Segment, sink: Sink) -> int:
        """How many bytes have come; at least one."""
        small = part.length <= self._source_settings.touch_bytes_max
        with self._asked(job, location, addresses) as request:
            if location.is_on_web and (small or request.turn.is_struggling):
                touched = self._touch(location, request, _wanted(job, part) if small else _first_byte(job, part))
                self._check(job, location, part, touched.version)
                self._admission.answered(location.source, request.turn)
                if small:
                    self._pour(job, location, request, memoryview(touched.body), sink)
                    return part.length
            self._stream(job, location, part, request, sink)
            return request.received

    def _touch(self, location: Location, request: _Asked, wanted: Wanted) -> Touched:
        try:
            with readable(location.shown):
                touched = self._web.touch(location, request.addresses, wanted)
        except SourceWholeOnlyError:
            self._wholes.note(location.shown)
            self._admission.answered(location.source, request.turn)
            raise
        if touched.lacks_ranges:
            self._wholes.note(location.shown)
        return touched

    def _read_on(self, job: Job, location: Location, part: Segment, sink: Sink) -> None:
        """A part of an object that comes only whole, from where the last part ended."""
        size = job.manifest.files[part.file_index].size
        with self._asked(job, location, ()) as request, self._room(job, location, part, whole=False):

            def begin() -> WebStream:
                addresses = self._admission.admit(location.source, location.shown)
                with readable(location.shown):
                    return self._web.stream(location, addresses, Wanted(0, size, size), Pieces())

            with self._wholes.stream((job.manifest.id, location.shown), part.offset, begin) as stream:
                self._check(job, location, part, stream.version)
                self._admission.answered(location.source, request.turn)
                before_s = stream.waited_s
                for piece in readable_pieces(location.shown, stream.until(part.offset)):
                    self._pour(job, location, request, piece, lambda _: None)
                for piece in readable_pieces(location.shown, stream.until(part.offset + part.length)):
                    self._pour(job, location, request, piece, sink)
                waited_s = stream.waited_s - before_s
                if stream.position == size:
                    stream.end()
            mirror = job.mirror or location.source.text
            self._admission.note_rate(mirror, location.source, request.turn, request.received, waited_s)

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

    def _open(
        self, job: Job, location: Location, request: _Asked, part: Segment, watch: RequestWatch, *, whole: bool
    ) -> _AnyStream:
        is_patient = self._admission.is_let_go_on(job.mirror or location.source.text, location.source)
        settings = self._patient if is_patient else self._source_settings
        if location.is_on_web:
            small = BROKEN_PIECE_BYTES if self._admission.is_breaking(location.source) else PIECE_BYTES
            byte_count = job.manifest.chunk_bytes if whole else _at_once(small, self._throttle)
            pieces = Pieces(byte_count, is_whole=whole, watch=watch, settings=settings)
            return self._web.stream(location, request.addresses, _wanted(job, part), pieces)
        if location.source.scheme == "file":
            return FileStream(location, part, whole=whole, settings=settings, clock=self._clock)
        return self._buckets.clients().stream(location, part, whole=whole, settings=settings, clock=self._clock)

    def _stream(self, job: Job, location: Location, part: Segment, request: _Asked, sink: Sink) -> None:
        whole = self._may_read_whole(job, location, part)
        mirror = job.mirror or location.source.text
        watch = RequestWatch(self._admission, mirror, location, part.length)
        with self._room(job, location, part, whole=whole), _unlisted(location):
            with readable(location.shown):
                opened = self._open(job, location, request, part, watch, whole=whole)
            with closing(opened) as stream:
                self._check(job, location, part, stream.version)
                self._admission.answered(location.source, request.turn)
                for piece in readable_pieces(location.shown, iter(stream)):
                    self._pour(job, location, request, piece, sink)
                    if location.is_on_web or request.received >= part.length:
                        continue
                    if watch.look(request.received, stream.waited_s):
                        raise watch.given_up(request.received, stream.waited_s)
            self._admission.note_rate(mirror, location.source, request.turn, request.received, stream.waited_s)

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

    def _look_once(self, job: Job, location: Location, part: Segment) -> None:
        """Make the first request to an object; of many threads that begin together, one makes it."""
        lock = self._first_looks[hash(location.key) % _FIRST_LOOKS]
        _acquire(lock, job, location)
        try:
            if self.versions.is_known(job.manifest.id, location):
                return
            if job.from_start and self.lacks_ranges(location):
                return
            if (refused := self._admission.refusal(job.manifest.id, location)) is not None:
                raise refused
            self._led(location, lambda at, addresses: self._look(job, at, addresses, part))
        except SourceWholeOnlyError:
            if not job.from_start:
                raise
        except SourceError as error:
            if error.again == 0:
                self._admission.refuse(job.manifest.id, location, error)
            raise
        finally:
            lock.release()

    def _look(self, job: Job, location: Location, addresses: Addresses, part: Segment) -> None:
        with self._asked(job, location, addresses) as request:
            touched = self._touch(location, request, _first_byte(job, part))
            self._check(job, location, part, touched.version)
            request.received += len(touched.body)

    @contextmanager
    def _asked(self, job: Job, location: Location, addresses: Addresses) -> Iterator[_Asked]:
        """One request, from ``enter`` to ``leave`` of the admission."""
        request = _Asked(self._admission.enter(location.source, location.shown, job), addresses)
        error: GossipdError | None = None
        try:
            yield request
        except SourceRedirectError as caught:
            if location.is_on_hub:
                self._admission.answered(location.source, request.turn)
                raise  # it is followed
            error = _from_way(location, self._admission.judge_redirect(location.source, caught))
            raise error from None
        except SourceError as caught:
            error = caught if isinstance(caught, _OURS) else _from_way(location, caught)
            raise error from None
        except GossipdError as caught:
            error = caught
            raise
        finally:
            self._admission.leave(location.source, request.turn, error, request.received)

    def _check(self, job: Job, location: Location, part: Segment, seen: ObjectVersion) -> None:
        """The size decides, and then the hashes; tag and date are only noted."""
        self.versions.note(job.manifest.id, location, seen)
        check_size(location.shown, found=seen.size, expected=job.manifest.files[part.file_index].size)

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


def _is_looked_at_first(job: Job, location: Location, part: Segment, settings: SourceSettings) -> bool:
    """Whether the object is asked for one byte first, which tells its size; of many threads one meets an object that is
    not there. What is read at once needs none."""
    size = job.manifest.files[part.file_index].size
    if not (location.is_on_web or location.is_on_hub):
        return False
    if job.from_start:
        return size > settings.touch_bytes_max
    return settings.touch_bytes_max < part.length < size


def _at_once(byte_count: int, throttle: RateLimit) -> int:
    """How many of so many bytes to receive together: they come as fast as the link can, whatever the limit."""
    return max(_PIECE_BYTES_MIN, throttle.piece(byte_count))


def _unlisted(location: Location) -> AbstractContextManager[None]:
    """What obstore and file systems read, no connection of ours counts."""
    return nullcontext() if location.is_on_web else BULK_SOCKETS.unlisted()


def _wanted(job: Job, part: Segment) -> Wanted:
    return Wanted(part.offset, part.length, job.manifest.files[part.file_index].size)


def _first_byte(job: Job, part: Segment) -> Wanted:
    return Wanted(0, 1, job.manifest.files[part.file_index].size)


def _from_way(location: Location, error: SourceError) -> SourceError:
    """The same error, with the proxy that may have given the answer, as a page that asks to sign in."""
    if (proxy := answering_proxy(location.source, os.environ, is_connecting=error.is_of_connection)) is None:
        return error
    if error.is_page:
        return SourceProxyError(location.shown, f"a page came in its place, from {proxy.shown} or from the storage")
    if proxy.shown not in str(error):
        error.came_through(proxy.shown)
    return error


def _acquire(lock: threading.Lock | threading.BoundedSemaphore, job: Job, location: Location) -> None:
    while not lock.acquire(timeout=_STOP_LOOKED_AT_S):
        if job.stop.is_set():
            raise SourceCancelledError(location.shown, "the read was stopped")
