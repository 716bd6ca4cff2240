"""The TCP connections over which model bytes come and go: what they have moved, and how much each may have on its way.

What lives here: the list of them, their counters, their receive windows. What does not: what is sent on them
(``transfer.channel``, ``sources.web_connection``), and what is made of the counters (``daemon.link_sharing``).

There is one list for the process, as the interface that it is compared with is the host's. A connection that nobody
refers to any longer leaves it by itself. One over another interface than the watched one is neither counted nor held.
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

from gossipd.runtime.network_interface import interface_with

# Of struct tcp_info in include/uapi/linux/tcp.h: tcpi_advmss, tcpi_bytes_acked, tcpi_bytes_received, tcpi_segs_out,
# tcpi_segs_in, tcpi_min_rtt, tcpi_bytes_sent, tcpi_bytes_retrans; the last since Linux 4.19.
_TCP_INFO = struct.Struct("=84xI32xQQII4xI48xQQ")
_NO_RTT_US = 2**32 - 1
_UNTOLD = (1460, 0, 0, 0, 0, _NO_RTT_US, 0, 0)
# Of include/uapi/linux/tcp.h and asm-generic/socket.h, for which Python has no names; the second since Linux 5.15.
_TCP_WINDOW_CLAMP = 10
_SO_BUF_LOCK = 72
HEAD_BYTES = 66  # of each segment: Ethernet, IPv4, TCP with time stamps
NO_WINDOW_LIMIT = 2**30
_ADDRESSES_MAX = 64  # remembered with their interfaces
_WIDE_BYTES = 4 * 1024 * 1024  # or what net.core.rmem_max grants


class WireBytes(Struct, frozen=True):
    """Of all connections, since the process began. Of ``sent`` some may wait in a queue of this host; what is
    ``acknowledged`` a peer has, or it was sent again, or its connection has ended."""

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


class WindowLimit(Struct, frozen=True):
    """So many bytes, or two packets where those are large, and beyond them what ``bytes_per_s`` brings in ``seconds``
    and in two of the shortest round trips. Through a window below one packet TCP sends next to nothing."""

    least_bytes: int
    bytes_per_s: float = 0.0
    seconds: float = 0.0

    def window_bytes(self, round_trip_s: float, packet_bytes: int) -> int:
        """Of a connection."""
        brought_bytes = int(self.bytes_per_s * (self.seconds + 2 * round_trip_s))
        return min(NO_WINDOW_LIMIT, max(self.least_bytes, 2 * packet_bytes) + brought_bytes)


class BulkSockets:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: WeakKeyDictionary[socket.socket, WireBytes] = WeakKeyDictionary()
        self._total = WireBytes()
        self._limit: WindowLimit | None = None
        self._unlisted = 0
        self._was_unlisted = False
        self._watched = ""
        self._elsewhere: WeakKeyDictionary[socket.socket, bool] = WeakKeyDictionary()
        self._interfaces: dict[str, str | None] = {}  # by local address

    def watch(self, interface: str) -> None:
        """Model bytes are compared with those of this interface from now on; empty: with none's."""
        with self._lock:
            if interface == self._watched:
                return
            self._watched = interface
            self._interfaces.clear()
            for sock in list(self._counted):
                self._place(sock)
                if self._limit is not None and self._elsewhere[sock]:
                    _set_window(sock, None)

    def _place(self, sock: socket.socket) -> None:
        if (address := _local_address(sock)) not in self._interfaces:
            if len(self._interfaces) >= _ADDRESSES_MAX:
                self._interfaces.clear()
            self._interfaces[address] = interface_with(address)
        interface = self._interfaces[address]
        self._elsewhere[sock] = bool(self._watched) and interface not in (None, self._watched)

    def add(self, sock: socket.socket, *, instead_of: socket.socket | None = None) -> None:
        """A connection for model bytes that was made; ``instead_of`` the object that TLS has wrapped. What it has moved
        before counts. Before it is made a small window would leave it a small one for its life (RFC 7323, section 2.2).
        """
        with self._lock:
            before = None if instead_of is None else self._counted.pop(instead_of, None)
            self._counted[sock] = before or WireBytes()
            self._place(sock)
            if self._limit is not None and not self._elsewhere[sock]:
                _set_window(sock, self._limit)

    def look(self) -> WireBytes:
        """What all have moved until now, with the heads of packets."""
        with self._lock:
            for sock in list(self._counted):
                self._count(sock)
            return self._total

    def close(self, sock: socket.socket) -> None:
        """Close it: the last bytes count, too, and none is under way any longer."""
        with self._lock:
            if sock in self._counted:
                self._count(sock)
                last = self._counted.pop(sock)
                under_way = last.sent - last.acknowledged
                if not self._elsewhere[sock]:
                    self._total = self._total.plus(WireBytes(0, 0, under_way), WireBytes())
        sock.close()

    def _count(self, sock: socket.socket) -> None:
        now = _moved(sock)
        if now is None or now == self._counted[sock]:
            return
        if self._elsewhere[sock]:
            self._was_unlisted = True
        else:
            self._total = self._total.plus(now, self._counted[sock])
        self._counted[sock] = now

    @contextmanager
    def unlisted(self) -> Iterator[None]:
        """Model bytes may come over the network by other ways, which are not counted: a library's own connections, or a
        file system's. Those over another interface are known without."""
        with self._lock:
            self._unlisted += 1
            self._was_unlisted = True
        try:
            yield
        finally:
            with self._lock:
                self._unlisted -= 1

    def were_all(self) -> bool:
        """Whether no model bytes have come by other ways since the last call."""
        with self._lock:
            was_unlisted, self._was_unlisted = self._was_unlisted, self._unlisted > 0
            return not was_unlisted

    def limit_windows(self, limit: WindowLimit | None) -> None:
        """How much each peer may have on its way to this host, from now on, and as much unread here; None: what the
        kernel grants. The kernel widens a window of a connection that is quick, so a limit is to be repeated."""
        with self._lock:
            if limit is None and self._limit is None:
                return
            self._limit = limit
            for sock in list(self._counted):
                if not self._elsewhere[sock]:
                    _set_window(sock, limit)


def _local_address(sock: socket.socket) -> str:
    """Empty: it has none, or none of IP."""
    try:
        name = sock.getsockname()
    except OSError:  # closed
        return ""
    return str(name[0]) if isinstance(name, tuple) else ""


def _tcp_info(sock: socket.socket) -> tuple[int, ...] | None:
    """None: closed, or an older kernel."""
    try:
        raw = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
    except OSError:
        return None
    return None if len(raw) < _TCP_INFO.size else _TCP_INFO.unpack(raw)


def _moved(sock: socket.socket) -> WireBytes | None:
    if (told := _tcp_info(sock)) is None:
        return None
    _, acknowledged, received, segments_out, segments_in, _, sent, sent_again = told
    heads = HEAD_BYTES * segments_out
    return WireBytes(received + HEAD_BYTES * segments_in, sent + heads, acknowledged + sent_again + heads)


def _set_window(sock: socket.socket, limit: WindowLimit | None) -> None:
    with suppress(OSError):  # closed, or an older kernel
        if limit is not None:
            packet_bytes, *_, rtt_us, _, _ = _tcp_info(sock) or _UNTOLD
            nbytes = limit.window_bytes(0.0 if rtt_us == _NO_RTT_US else rtt_us / 1e6, packet_bytes)
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_WINDOW_CLAMP, nbytes)
            # What has come and is not read fills it, and then narrows the window: a larger one would be filled at the
            # link's rate by each connection that begins.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, nbytes)
            return
        sock.setsockopt(socket.IPPROTO_TCP, _TCP_WINDOW_CLAMP, NO_WINDOW_LIMIT)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _WIDE_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, _SO_BUF_LOCK, 0)  # the kernel may widen it again


BULK_SOCKETS: Final = BulkSockets()
