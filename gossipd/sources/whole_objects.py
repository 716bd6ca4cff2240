"""Objects of servers without ranges, which come only whole: each is read once, from its beginning, in parts.

What lives here: the streams that wait for the next part. What does not: finding out that a server has no ranges
(``first_request``), and that one reader of the cluster reads at a time and in order (``swarm.reading_turn``).

A part goes on where the last one ended; what lies between two parts is dropped. A part that lies further back, or one
after a break, begins a new request, whose first bytes are dropped: what the store has is not stored twice. Between two
parts the connection waits, and the kernel's buffers fill.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct, field

from gossipd.core.ids import DeploymentId
from gossipd.sources.errors import SourceError
from gossipd.sources.versions import ObjectVersion

if TYPE_CHECKING:
    from gossipd.sources.web_stream import WebStream

STREAMS_MAX = 8  # a reader has one under way; others are of a deployment that another reader has taken over
_KNOWN_MAX = 10_000

Key = tuple[DeploymentId, str]


class WholeStream(Struct):
    """One object on its way here. For the one that ``WholeObjects.stream`` gave it to."""

    position: int = 0
    stream: WebStream | None = None
    is_over: bool = False
    in_use: threading.Lock = field(default_factory=threading.Lock)

    @property
    def version(self) -> ObjectVersion:
        """The version of the object."""
        assert self.stream is not None
        return self.stream.version

    @property
    def waited_s(self) -> float:
        """Time spent waiting for the source, since the stream began."""
        assert self.stream is not None
        return self.stream.waited_s

    def until(self, end: int) -> Iterator[memoryview]:
        """The bytes up to ``end``, as they arrive. Their time is bounded by the least rate alone, because a break near
        the end of an object has hours of bytes before it."""
        assert self.stream is not None
        for piece in self.stream.pieces(end - self.position):
            self.position += len(piece)
            self.stream.go_on()
            yield piece

    def end(self) -> None:
        """Close the connection."""
        if self.stream is not None:
            self.stream.close()
            self.stream = None


class WholeObjects:
    """By deployment and address. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: dict[Key, WholeStream] = {}
        self._lack_ranges: dict[str, None] = {}

    def note(self, address: str) -> None:
        """The server has sent the whole object for a part of it."""
        with self._lock:
            while len(self._lack_ranges) >= _KNOWN_MAX:
                del self._lack_ranges[next(iter(self._lack_ranges))]
            self._lack_ranges[address] = None

    def lacks_ranges(self, address: str) -> bool:
        """Whether that was seen."""
        with self._lock:
            return address in self._lack_ranges

    @contextmanager
    def stream(self, key: Key, offset: int, begin: Callable[[], WebStream]) -> Iterator[WholeStream]:
        """A stream that is at ``offset`` or before it. Any failure inside ends it. ``begin``: makes one at the
        beginning of the object. One user at a time: raises SourceError where there is another, which only a planner
        that has lost its order can cause.
        """
        one = self._of(key)
        if not one.in_use.acquire(blocking=False):
            raise SourceError(key[1], "it is being read from its beginning already")
        try:
            if one.stream is None or one.position > offset:
                one.end()
                one.stream, one.position = begin(), 0
            one.stream.go_on()
            yield one
        except BaseException:
            one.end()
            raise
        finally:
            one.in_use.release()
            if one.is_over:  # after the release, or one that is given up in between would stay open
                _end(one)

    def forget(self, deployment: DeploymentId) -> None:
        """End the streams of a deployment. One in use ends with its part."""
        with self._lock:
            gone = [self._streams.pop(key) for key in list(self._streams) if key[0] == deployment]
        for one in gone:
            _end(one)

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            gone, self._streams = list(self._streams.values()), {}
        for one in gone:
            _end(one)

    def _of(self, key: Key) -> WholeStream:
        with self._lock:
            one = self._streams.get(key)
            if one is None:
                one = self._streams[key] = WholeStream()
            gone = [self._streams.pop(old) for old in list(self._streams)[: len(self._streams) - STREAMS_MAX]]
        for old in gone:
            _end(old)
        return one


def _end(one: WholeStream) -> None:
    """Now, or when its part has ended."""
    one.is_over = True
    if one.in_use.acquire(blocking=False):
        one.end()
        one.in_use.release()
