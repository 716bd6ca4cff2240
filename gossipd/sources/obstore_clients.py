"""obstore clients of buckets, one for each base address, and the stream of one range.

obstore's retries are off and its time-outs are set: by default it repeats a slow range in full up to ten times. obstore
itself reads credentials, endpoints and regions from this host's environment (``AWS_*``, ``GOOGLE_*``, ``AZURE_*``);
AWS' profiles come from ``aws_credentials``, Google's federated identities from ``google_credentials``.

There are two ways to read a range. In pieces as they arrive (``min_chunk_size=1``, copied into our buffer): a slow,
wrong or endless body is noticed at once, and a rate limit works. Whole (``bytes()``, which obstore collects outside the
GIL, without a copy in Python): it takes less CPU time. obstore gives nothing of an answer with another range than was
asked for, as of a cache that sends segments of its own; so that range is asked for then, once, and its part of use is
taken (RFC 9110, 15.3.7). So a host is read in pieces until it has shown that it is fast,
and again when it no longer is. A whole range has a short time-out instead of the least rate.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import obstore
from obstore.store import MemoryStore, from_url

from gossipd.manifest.chunk_layout import Segment
from gossipd.runtime.named_thread import NamedThread
from gossipd.runtime.system_refusals import NoThreadError
from gossipd.runtime.thread_priority import lower_priority
from gossipd.sources import errors
from gossipd.sources.aws_credentials import AwsCredentials
from gossipd.sources.bucket_region import with_region
from gossipd.sources.credential_places import file_stamp, google_key_file
from gossipd.sources.first_request import LESS_BYTES_MIN, MORE_BYTES_MAX
from gossipd.sources.google_credentials import GoogleCredentials
from gossipd.sources.location import Location, allows_clear_text
from gossipd.sources.obstore_errors import OtherRangeError, in_our_words
from gossipd.sources.pieces import check_rate
from gossipd.sources.proxies import ProxyError, client_options
from gossipd.sources.settings import Clock, SourceSettings
from gossipd.sources.versions import ObjectVersion

_RUNTIME_THREADS = 2  # besides one for each processor: what makes the runtime, and its first blocking call
_NO_DATE = datetime.fromtimestamp(0, UTC)  # obstore's date when the server sends no Last-Modified


def start_runtime() -> None:
    """Start obstore's threads, with lower priority than the event loop. If the system had no thread to give for them,
    obstore would panic, and every later use in this process fail too; so as many are started and ended before.
    Raises SourceUnreachableError: no threads. Retry: yes.
    """
    with ExitStack() as stack:
        try:
            for _ in range(_RUNTIME_THREADS + len(os.sched_getaffinity(0))):
                held = threading.Event()
                thread = NamedThread(target=held.wait, name="obstore-room", daemon=True)
                thread.start()
                stack.callback(thread.join)
                stack.callback(held.set)
        except NoThreadError:
            raise errors.SourceUnreachableError("obstore", "the system refuses new threads") from None
    with ThreadPoolExecutor(1, initializer=lower_priority) as pool:
        pool.submit(_use_once).result()


def _use_once() -> None:
    with in_our_words("obstore's first use"):
        obstore.put(MemoryStore(), "nothing", b"")


class Clients:
    """Drops the least recently used client beyond ``stores_max``. Thread-safe."""

    def __init__(self, settings: SourceSettings) -> None:
        self._source_settings = settings
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[str, bool, tuple[int, ...]], Any] = OrderedDict()
        self._aws = AwsCredentials()
        self._google = GoogleCredentials()

    def open(self, location: Location, *, whole: bool) -> Any:
        """The obstore store for the object's base. ``whole``: with the shorter time-out. Raises SourceError."""
        scheme = location.source.scheme
        # obstore reads a file of Google's keys once, when it makes a client.
        key = (location.base, whole, file_stamp(google_key_file(os.environ)) if scheme == "gs" else ())
        profile = self._aws.options(scheme, location.shown) or self._google.options(scheme, location.shown)
        with self._lock:  # held for the creation too, which costs CPU time that threads would spend in parallel
            found = self._open.get(key)
            if found is not None:
                self._open.move_to_end(key)
                return found
            with in_our_words(location.shown):
                store = from_url(location.base, **self._options(location, profile, whole=whole))
            self._open[key] = store
            while len(self._open) > self._source_settings.stores_max:
                self._open.popitem(last=False)
        return store

    def stream(
        self, location: Location, part: Segment, *, whole: bool, settings: SourceSettings | None = None, clock: Clock
    ) -> Stream:  # fmt: skip
        """One range of an object, begun. ``settings``: where others hold for it. Raises SourceError."""
        store = self.open(location, whole=whole)
        return Stream(store, location, part, whole=whole, settings=settings or self._source_settings, clock=clock)

    def close(self) -> None:
        """Drop every client; streams in progress keep theirs. Nobody waits for credentials any longer."""
        self._aws.close()
        self._google.close()
        with self._lock:
            self._open.clear()

    def _options(self, location: Location, profile: dict[str, Any], *, whole: bool) -> dict[str, Any]:
        settings = self._source_settings
        timeout_s = settings.whole_timeout_s if whole else settings.request_timeout_s
        client = {
            "connect_timeout": f"{settings.connect_timeout_s * 1000:.0f}ms",
            "read_timeout": f"{settings.read_timeout_s * 1000:.0f}ms",
            "timeout": f"{timeout_s * 1000:.0f}ms",
            "user_agent": "gossipd",
            "allow_http": allows_clear_text(location.source, profile.get("endpoint", "")),
            **_proxy_options(location, profile),
        }
        return {"client_options": client, "retry_config": {"max_retries": 0}, **profile}


def _proxy_options(location: Location, profile: dict[str, Any]) -> dict[str, str]:
    try:
        return client_options(location.source.scheme, location.source.host, os.environ, profile)
    except ProxyError as error:
        raise errors.SourceProxyError(location.shown, f"{error}, in this daemon's environment") from None


class Stream:
    """One range: ``version`` after the head, then exactly its bytes, or fewer from a storage that gives less at once.
    Constructor and iteration raise SourceErrors."""

    def __init__(
        self, store: Any, location: Location, part: Segment, *, whole: bool, settings: SourceSettings, clock: Clock,
    ) -> None:  # fmt: skip
        self._whole = whole
        self._what = location.shown
        self._length = part.length
        self._before = self._rest = 0
        """Bytes of the answer before and after the wanted ones."""
        self._source_settings = settings
        self._clock = clock
        self.waited_s = 0.0
        """Time spent waiting for the source: its speed, independent of ours."""
        began = clock()
        try:
            meta = self._begun(store, location.path, part)
        except errors.SourceRegionError as error:
            raise with_region(error, location.source.host) from None
        self.waited_s += clock() - began
        self._head_s = self.waited_s  # a head may take the time-out: no rate follows from it
        modified = meta["last_modified"]
        self.version = ObjectVersion(meta["e_tag"], meta["size"], None if modified == _NO_DATE else modified)
        self._check_head(part.offset - self._before)

    def _begun(self, store: Any, path: str, part: Segment) -> Any:
        """What the head of the answer says, which is to this range or to one that the storage gives in its place."""
        try:
            return self._asked(store, path, part.offset, part.offset + part.length)
        except OtherRangeError as other:
            first, count = part.offset - other.start, min(part.offset + part.length, other.stop) - part.offset
            is_more = other.stop - other.start > part.length + MORE_BYTES_MAX
            if first == 0 and count < min(part.length, LESS_BYTES_MIN):
                said = f"the server sent {count} bytes of the {part.length} asked for"
                raise errors.SourceShortError(self._what, said) from None
            if first < 0 or is_more or count < min(part.length, LESS_BYTES_MIN):
                raise
            self._before, self._length = first, count
            self._rest = other.stop - part.offset - count
            return self._asked(store, path, other.start, other.stop)

    def _asked(self, store: Any, path: str, start: int, stop: int) -> Any:
        options: Any = {"range": (start, stop)}
        with in_our_words(self._what):
            self._result = obstore.get(store, path, options=options)
            return self._result.meta

    def __iter__(self) -> Iterator[memoryview]:
        """The body, in pieces as they arrive or in one."""
        received, before, promised = 0, self._before, self._before + self._length + self._rest
        pieces = self._collected() if self._whole else iter(self._result.stream(min_chunk_size=1))
        while (piece := self._next(pieces)) is not None:
            received += len(piece)
            if self._whole and received < promised:
                break
            if received > promised:
                raise errors.SourceRangeError(self._what, f"more than the {promised} bytes asked for came")
            # Only waiting for the source counts, because our disk and rate limit may be slower than the least rate.
            check_rate(self._what, received, self.waited_s - self._head_s, self._source_settings)
            begin = received - len(piece)
            if wanted := piece[max(0, before - begin) : max(0, before + self._length - begin)]:
                yield wanted
        if received < promised:
            raise errors.SourceShortError(self._what, f"{received} bytes came, {promised} were promised")

    def close(self) -> None:
        """Drop the answer; obstore ends its connection."""
        del self._result

    def _collected(self) -> Iterator[Any]:
        yield self._result.bytes()

    def _next(self, pieces: Iterator[Any]) -> memoryview | None:
        began = self._clock()
        with in_our_words(self._what):
            piece = next(pieces, None)
        self.waited_s += self._clock() - began
        return None if piece is None else memoryview(piece)

    def _check_head(self, start: int) -> None:
        encoding = str(self._result.attributes.get("Content-Encoding", "identity")).lower()
        if encoding != "identity":
            raise errors.SourceEncodingError(self._what, "the server encodes the object; it must send it unchanged")
        length = self._before + self._length + self._rest
        if tuple(self._result.range) != (start, start + length):
            first, stop = self._result.range
            if first == start and stop < start + length:
                raise errors.SourceShortError(self._what, f"the object ends {start + length - stop} bytes early")
            raise errors.SourceRangeError(self._what, "the server sent another range than was asked for")
