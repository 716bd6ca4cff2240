"""Ranges of web objects, read with the standard library: no redirect is followed, and no name is resolved again.

What lives here: kept connections, and the stream of one range. What does not: the head's checks (``first_request``),
making connections (``web_connection``), sources of other schemes (``obstore_clients``).

obstore follows redirects to any host, has no option against that, and resolves names by itself. So ranges of ``http``
and ``https`` sources are read here, from addresses that were checked against ``sources.allow``. Bytes go from the
socket into one buffer without the interpreter's lock. A connection whose range was read to its end is kept for the
next one.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gossipd.runtime.bulk_sockets import BULK_SOCKETS
from gossipd.sources.addresses import Addresses
from gossipd.sources.errors import (
    SourceError,
    SourceShortError,
    SourceSlowError,
)
from gossipd.sources.first_request import check_head, ended_early
from gossipd.sources.location import Location, authority
from gossipd.sources.pieces import Pieces, Wanted, check_rate
from gossipd.sources.request_watch import RequestWatch
from gossipd.sources.settings import SourceSettings
from gossipd.sources.web_connection import Incoming, ask, connect, failure_of, head_of, through

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# How often a request is compared with others, and hands on what has come of a piece: sixteen reads share a link, and a
# relay waits for half a second. More often would wake the thread for little.
_WATCHED_S = 0.25
IDLE_S = 10.0  # servers close later
_END_S = 1.0  # for the end of a body whose bytes are here
_BROKEN = (OSError, http.client.HTTPException)


class WebConnections:
    """Connections that wait for the next range of their server. Thread-safe; at most ``stores_max``."""

    def __init__(self, settings: SourceSettings, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.clock = clock
        self._lock = threading.Lock()
        self._idle: list[tuple[str, str, float, socket.socket]] = []

    def take(self, location: Location, addresses: Addresses) -> socket.socket | None:
        """An open, silent connection to one of these addresses, or None."""
        place, now = _place(location, addresses), self.clock()
        while True:
            with self._lock:
                found = next((one for one in self._idle if one[0] == place), None)
                if found is None:
                    return None
                self._idle.remove(found)
            _, address, since, sock = found
            # Without addresses it goes to the proxy, and so did the kept one: the place says so.
            if (address in addresses or not addresses) and now - since < IDLE_S and _is_quiet(sock):
                return sock
            BULK_SOCKETS.close(sock)

    def give_back(self, location: Location, addresses: Addresses, sock: socket.socket) -> None:
        """Keep a connection whose answer was read to its end."""
        try:
            address = str(sock.getpeername()[0])
        except OSError:
            BULK_SOCKETS.close(sock)
            return
        with self._lock:
            self._idle.append((_place(location, addresses), address, self.clock(), sock))
            dropped = self._idle.pop(0)[3] if len(self._idle) > self.settings.stores_max else None
        if dropped is not None:
            BULK_SOCKETS.close(dropped)

    def close(self) -> None:
        """Close those that wait."""
        with self._lock:
            idle, self._idle = self._idle, []
        for *_, sock in idle:
            BULK_SOCKETS.close(sock)


class WebStream:
    """One range request: ``version`` after the head, then the requested bytes, by iteration or ``pieces`` by
    ``pieces``: all, or the first ``count`` from a server that gives less at once. Each piece is good until the next
    one. Raises SourceError, from the constructor and while iterating.
    """

    def __init__(
        self, connections: WebConnections, location: Location, addresses: Addresses, wanted: Wanted, *, pieces: Pieces
    ) -> None:
        self._connections, self._location, self._addresses = connections, location, addresses
        self._source_settings = settings = pieces.settings or connections.settings
        self._pieces, self._is_given_back = pieces, False
        began = connections.clock()
        self._socket, self._incoming, self._response = self._asked(addresses, wanted.header)
        try:
            head = check_head(self._response, location.shown, wanted, settings)
        except BaseException:
            BULK_SOCKETS.close(self._socket)
            raise
        self.version, self.count, self.lacks_ranges, self._head = head.version, head.count, head.lacks_ranges, head
        self._incoming.waited_s = self._incoming.head_s = connections.clock() - began
        self._incoming.received = 0
        self._incoming.is_body = True
        self.go_on()

    @property
    def waited_s(self) -> float:
        """Time spent waiting for the source: its speed, independent of ours."""
        return self._incoming.waited_s

    def go_on(self) -> None:
        """The time of the body begins again: the next part of one that is read in parts."""
        is_whole, settings = self._pieces.is_whole, self._source_settings
        timeout_s = settings.whole_timeout_s if is_whole else settings.request_timeout_s
        self._incoming.deadline = time.monotonic() + timeout_s

    def __iter__(self) -> Iterator[memoryview]:
        """The wanted bytes, in pieces as they arrive."""
        for _ in self.pieces(self._head.before):
            pass
        yield from self.pieces(self.count)
        is_till_the_end = self._response.length is None and not self._response.chunked
        if not self._head.is_range or self._head.has_rest or is_till_the_end:
            return  # some servers, and proxies that take headers away, do not close it for a while
        if self._response.chunked and not self._has_ended():
            return  # nothing after this answer could be told from it
        if not self._response.will_close:
            self._connections.give_back(self._location, self._addresses, self._socket)
            self._is_given_back = True

    def pieces(self, byte_count: int) -> Iterator[memoryview]:
        """The next bytes of the body, so many in all."""
        what, left = self._location.shown, byte_count
        memory = memoryview(bytearray(min(left, self._pieces.byte_count)))
        while left:
            count = self._read(memory[: min(left, len(memory))])
            left -= count
            if not count and self._response.chunked and not self._head.is_range:
                raise ended_early(self._response, what)
            if not count:
                raise SourceShortError(what, f"{byte_count - left} bytes came, {byte_count} were promised")
            yield memory[:count]

    def _has_ended(self) -> bool:
        """Whether nothing but the mark of its end follows the wanted bytes, and soon: all that matters is here."""
        self._incoming.is_body = False
        self._incoming.deadline = min(self._incoming.deadline, time.monotonic() + _END_S)
        try:
            return self._read(memoryview(bytearray(1))) == 0
        except SourceError:
            return False

    def close(self) -> None:
        """End the connection, unless it is kept for another range."""
        if not self._is_given_back:
            BULK_SOCKETS.close(self._socket)

    def _asked(
        self, addresses: Addresses, headers: dict[str, str]
    ) -> tuple[socket.socket, _RatedIncoming, http.client.HTTPResponse]:
        """Send the request, at most once more when the server has closed a kept connection meanwhile."""
        kept = self._connections.take(self._location, addresses)
        while True:
            sock = kept
            try:
                sock = sock or connect(self._location, addresses, self._source_settings)
                sock.settimeout(self._source_settings.read_timeout_s)
                ask(sock, self._location, addresses, headers)
                incoming = _RatedIncoming(
                    sock, self._source_settings, self._connections.clock, self._pieces.watch, self._location.shown
                )
                response = head_of(incoming, "GET")
            except (*_BROKEN, ValueError) as error:
                if sock is not None:
                    BULK_SOCKETS.close(sock)
                if kept is not None and isinstance(error, ConnectionError):
                    kept = None
                    continue
                raise self._in_our_words(error) from None
            except SourceError:
                if sock is not None:
                    BULK_SOCKETS.close(sock)
                raise
            return sock, incoming, response

    def _read(self, view: memoryview) -> int:
        try:
            return self._response.readinto(view)
        except _BROKEN as error:
            raise self._in_our_words(error) from None

    def _in_our_words(self, error: Exception) -> SourceError:
        what, way = self._location.shown, through(self._location, self._addresses)
        if isinstance(error, TimeoutError):
            return SourceSlowError(what, f"no answer within the time-out{way}")
        if isinstance(error, http.client.IncompleteRead):
            return SourceShortError(what, "the connection ended before the promised bytes had come")
        return failure_of(error, what, way)


class _RatedIncoming(Incoming):
    """A connection's bytes at the least rate or faster; only waiting for the source counts, because our disk and rate
    limit may be slower.
    """

    def __init__(
        self,
        sock: socket.socket,
        settings: SourceSettings,
        clock: Callable[[], float],
        watch: RequestWatch | None,
        what: str,
    ) -> None:
        super().__init__(sock, settings.read_timeout_s)
        self._watch, self._what = watch, what
        self._low_water = 0  # a kept connection has what its last range left
        self._source_settings = settings
        self._clock = clock
        self.is_body = False
        """A head is short, and may take the time-out: no rate follows from it."""
        self.head_s = 0.0
        self.waited_s = 0.0
        self.received = 0

    def readinto(self, buffer: WriteableBuffer) -> int:
        silent_until = time.monotonic() + self._source_settings.read_timeout_s
        while True:
            left_s = min(self.deadline, silent_until) - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            began, asked_s = self._clock(), min(left_s, _WATCHED_S)
            count = self._received(buffer, asked_s)
            self.waited_s += min(self._clock() - began, asked_s)  # the rest is this host's, which was late
            self.received += count or 0
            self._compare()
            if count is not None:
                break
        if count and self.is_body:
            check_rate(self._what, self.received, self.waited_s - self.head_s, self._source_settings)
        return count

    def _compare(self) -> None:
        """End a request that is far slower than others. Not for bytes that are here and wait for this thread."""
        watch = self._watch
        if watch is not None and watch.look(self.received, self.waited_s) and _is_quiet(self._sock):
            raise watch.given_up(self.received, self.waited_s)

    def _received(self, buffer: WriteableBuffer, timeout_s: float) -> int | None:
        """All of ``buffer``, or what has come by the end of the time; None: nothing."""
        self._sleep_until_here(len(memoryview(buffer)))
        self._sock.settimeout(timeout_s)
        try:
            return self._sock.recv_into(buffer)
        except TimeoutError:
            if self._low_water == 1:
                return None
        self._sock.settimeout(0)
        try:
            return self._sock.recv_into(buffer)
        except BlockingIOError:
            return None

    def _sleep_until_here(self, want: int) -> None:
        """SO_RCVLOWAT: otherwise each burst of packets wakes the thread. Only for parts of a body, which are longer
        than the buffer that reads ahead; not under TLS, where more bytes are on the wire than in the body.
        """
        low_water = want if want > io.DEFAULT_BUFFER_SIZE and not isinstance(self._sock, ssl.SSLSocket) else 1
        if low_water != self._low_water:
            if low_water > max(1, self._low_water):
                # The kernel makes its buffer just as large, and then the server would stand still until we wake.
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 2 * low_water)
            self._low_water = low_water
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)


def _place(location: Location, addresses: Addresses) -> str:
    return authority(location.source) if addresses else f"{authority(location.source)} through its proxy"


def _is_quiet(sock: socket.socket) -> bool:
    """Whether a kept connection is open and holds no unexpected bytes."""
    try:
        sock.settimeout(0)
        socket.socket.recv(sock, 1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
