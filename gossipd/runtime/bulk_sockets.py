"""The TCP connections over which model bytes come and go: what they have moved, and how much each may have on its way.

What lives here: the list of them, their counters, their receive windows. What does not: what is sent on them
(``transfer.channel``, ``sources.web_connection``), and what is made of the counters (``daemon.link_sharing``).

There is one list for the process, as the interface that it is compared with is the host's. A connection that nobody
refers to any longer leaves it by itself.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final
from weakref import WeakKeyDictionary

from msgspec import Struct

# Of struct tcp_info in include/uapi/linux/tcp.h: tcpi_bytes_acked, tcpi_bytes_received, tcpi_segs_out, tcpi_segs_in,
# tcpi_bytes_sent; the last since Linux 4.19.
_TCP_INFO = struct.Struct("=120xQQII56xQ")
# Of include/uapi/linux/tcp.h and asm-generic/socket.h, for which Python has no names; the second since Linux 5.15.
_TCP_WINDOW_CLAMP = 10
_SO_BUF_LOCK = 72
_BUFFER_WINDOWS = 4  # what has come and is not read does not narrow a window until the buffer is full
HEAD_BYTES = 66  # of each segment: Ethernet, IPv4, TCP with time stamps
NO_WINDOW_LIMIT = 2**30
_WIDE_BYTES = 4 * 1024 * 1024  # or what net.core.rmem_max grants


class WireBytes(Struct, frozen=True):
    """Of all connections, since the process began. ``sent`` may wait in a queue of this host; ``acknowledged`` was
    received by the peer's kernel."""

    received: int = 0
    sent: int = 0
    acknowledged: int = 0

    def plus(self, now: WireBytes, before: WireBytes) -> WireBytes:
        """With what one connection has moved between two looks."""
        return WireBytes(
            self.received + now.received - before.received,
            self.sent + now.sent - before.sent,
            self.acknowledged + now.acknowledged - before.acknowledged,
        )


class BulkSockets:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: WeakKeyDictionary[socket.socket, WireBytes] = WeakKeyDictionary()
        self._total = WireBytes()
        self._window_bytes: int | None = None
        self._unlisted = 0

    def add(self, sock: socket.socket) -> None:
        """A connection for model bytes, before or after it is made; one that TLS has wrapped is another one. What it
        has moved before counts."""
        with self._lock:
            self._counted[sock] = WireBytes()
            if self._window_bytes is not None:
                _set_window(sock, self._window_bytes)

    def look(self) -> WireBytes:
        """What all have moved until now, with the heads of packets."""
        with self._lock:
            for sock in list(self._counted):
                self._count(sock)
            return self._total

    def ends(self, sock: socket.socket) -> None:
        """It is about to be closed: the last bytes count, too."""
        with self._lock:
            if sock in self._counted:
                self._count(sock)

    def _count(self, sock: socket.socket) -> None:
        now = _moved(sock)
        if now is not None:
            self._total = self._total.plus(now, self._counted[sock])
            self._counted[sock] = now

    @contextmanager
    def unlisted(self) -> Iterator[None]:
        """Model bytes may come over the network by other ways, which are not counted: a library's own connections, or a
        file system's."""
        with self._lock:
            self._unlisted += 1
        try:
            yield
        finally:
            with self._lock:
                self._unlisted -= 1

    @property
    def are_all(self) -> bool:
        """Whether no model bytes come by other ways now."""
        return not self._unlisted

    def limit_windows(self, nbytes: int | None) -> None:
        """How much each peer may have on its way to this host, from now on, and a small multiple of it unread here;
        None: what the kernel grants. The kernel widens a window of a connection that is quick, so a limit is to be
        repeated."""
        with self._lock:
            if nbytes is None and self._window_bytes is None:
                return
            self._window_bytes = nbytes
            for sock in list(self._counted):
                _set_window(sock, nbytes)


def _moved(sock: socket.socket) -> WireBytes | None:
    try:
        raw = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
    except OSError:
        return None
    if len(raw) < _TCP_INFO.size:
        return None  # an older kernel
    acknowledged, received, segments_out, segments_in, sent = _TCP_INFO.unpack(raw)
    heads = HEAD_BYTES * segments_out
    return WireBytes(received + HEAD_BYTES * segments_in, sent + heads, acknowledged + heads)


def _set_window(sock: socket.socket, nbytes: int | None) -> None:
    with suppress(OSError):  # closed, or an older kernel
        sock.setsockopt(socket.IPPROTO_TCP, _TCP_WINDOW_CLAMP, nbytes or NO_WINDOW_LIMIT)
        if nbytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_WINDOWS * nbytes)
            return
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _WIDE_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, _SO_BUF_LOCK, 0)  # the kernel may widen it again


BULK_SOCKETS: Final = BulkSockets()
