"""obstore clients, one for each base address, and the stream of one range.

obstore's own retries are off and its time-outs are set: its default is ten retries and 30 s for a whole body, which
would repeat a slow range in full, again and again. Credentials, endpoints and regions come from this host's
environment (``AWS_*``, ``GOOGLE_*``, ``AZURE_*``), which obstore reads itself; none passes through here.

Two ways to read a range. In pieces as they arrive (``min_chunk_size=1``, some 370 KiB each, copied into our buffer): a
slow, lying or endless body is seen while it comes, and a limit of bytes a second works. Whole (``bytes()``, which
obstore collects outside the GIL, handed on without a copy in Python): a fifth of the CPU time less (nginx on loopback,
two cores, user time 0.50 s a GB against 0.29). So a host is read in pieces until it has shown that it is fast, and
again when it no longer is; a whole range has a short time-out instead of the least rate.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import obstore
from obstore.store import MemoryStore, from_url

from gossipd.runtime.thread_priority import lower_priority
from gossipd.sources.errors import (
    SourceEncodingError,
    SourceLongError,
    SourceRangeError,
    SourceShortError,
    SourceSlowError,
    in_our_words,
)
from gossipd.sources.location import Location, allows_clear_text
from gossipd.sources.ranges import FileRange
from gossipd.sources.settings import SourceSettings
from gossipd.sources.versions import ObjectVersion

Clock = Callable[[], float]

_NO_DATE = datetime.fromtimestamp(0, UTC)  # what obstore says where the server sends no Last-Modified


def start_runtime() -> None:
    """Have obstore start its threads now, giving way to the event loop as all that move bytes do.

    Its first use starts them. When the system has no thread to give at that moment, obstore panics, and so does
    every later use in the process's life: what it has half made stays broken (seen under ``ulimit -u``). What remains:
    a read of a ``file://`` source that begins while there is no thread ends only when a later one finds one.

    Raises:
        SourceError: no threads. Retry: by a new process.
    """
    with ThreadPoolExecutor(1, initializer=lower_priority) as pool:
        pool.submit(_use_once).result()


def _use_once() -> None:
    with in_our_words("obstore's first use"):
        obstore.put(MemoryStore(), "nothing", b"")


class Clients:
    """The least recently used is dropped past ``stores_max``. Thread-safe."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[str, bool], Any] = OrderedDict()

    def open(self, location: Location, *, whole: bool) -> Any:
        """The obstore store for the object's base; ``whole`` has the shorter time-out. Raises SourceError."""
        key = (location.base, whole)
        with self._lock:  # all the while: making one takes 30 ms of a core, and threads that begin together each did
            found = self._open.get(key)
            if found is not None:
                self._open.move_to_end(key)
                return found
            with in_our_words(location.shown):
                store = from_url(location.base, **self._options(location, whole=whole))
            self._open[key] = store
            while len(self._open) > self._settings.stores_max:
                self._open.popitem(last=False)
        return store

    def close(self) -> None:
        """Drops every client; streams that are under way keep theirs."""
        with self._lock:
            self._open.clear()

    def _options(self, location: Location, *, whole: bool) -> dict[str, Any]:
        if location.source.scheme == "file":
            return {}
        settings = self._settings
        timeout_s = settings.whole_timeout_s if whole else settings.request_timeout_s
        client: dict[str, Any] = {
            "connect_timeout": f"{settings.connect_timeout_s * 1000:.0f}ms",
            "read_timeout": f"{settings.read_timeout_s * 1000:.0f}ms",
            "timeout": f"{timeout_s * 1000:.0f}ms",
            "user_agent": "gossipd",
        }
        if allows_clear_text(location.source):
            client["allow_http"] = True
        return {"client_options": client, "retry_config": {"max_retries": 0}}


class Stream:
    """One range request: ``version`` when it has been answered, then the bytes, exactly as many as asked for.

    Raises: SourceError, from the constructor and while iterating.
    """

    def __init__(
        self, store: Any, location: Location, part: FileRange, pinned: ObjectVersion | None, *,
        whole: bool, settings: SourceSettings, clock: Clock,
    ) -> None:  # fmt: skip
        self._whole = whole
        self._what = location.shown
        self._length = part.length
        self._settings = settings
        self._clock = clock
        self.waited_s = 0.0
        """Spent waiting for the source, which says how fast it is whatever we do with the bytes."""
        options: Any = {"range": (part.offset, part.offset + part.length)}
        if pinned is not None and pinned.if_match is not None:
            options["if_match"] = pinned.if_match
        began = clock()
        with in_our_words(self._what):
            self._result = obstore.get(store, location.path, options=options)
            meta = self._result.meta
        self.waited_s += clock() - began
        modified = meta["last_modified"]
        self.version = ObjectVersion(meta["e_tag"], meta["size"], None if modified == _NO_DATE else modified)
        self._check_head(part.offset)

    def __iter__(self) -> Iterator[memoryview]:
        """The body in pieces as they arrive, or in one."""
        received = 0
        pieces = self._collected() if self._whole else iter(self._result.stream(min_chunk_size=1))
        while (piece := self._next(pieces)) is not None:
            received += len(piece)
            if self._whole and received < self._length:
                break
            if received > self._length:
                raise SourceLongError(self._what, f"more than the {self._length} bytes asked for came")
            self._check_rate(received)
            yield piece
        if received < self._length:
            raise SourceShortError(self._what, f"{received} bytes came, {self._length} were promised")

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
            raise SourceEncodingError(self._what, "the server sends the object encoded; it must send it as it is")
        if tuple(self._result.range) != (start, start + self._length):
            first, stop = self._result.range
            if first == start and stop < start + self._length:
                raise SourceShortError(self._what, f"the object ends {start + self._length - stop} bytes early")
            raise SourceRangeError(self._what, "the server sent another range than was asked for")

    def _check_rate(self, received: int) -> None:
        """Only waiting for the source counts: our own disk and rate limit may be slower than the least rate."""
        limit = self._settings
        if self.waited_s > limit.rate_grace_s and received < limit.rate_bytes_min * self.waited_s:
            raise SourceSlowError(
                self._what, f"{received} bytes in {self.waited_s:.1f} s; the least is {limit.rate_bytes_min} a second"
            )
