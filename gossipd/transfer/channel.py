"""One TCP connection of the bulk path: heads and bodies in, heads and files out, unencrypted or under TLS.

What lives here: every system call on a bulk socket. What does not: deadlines (``watchdog`` cuts the connection from its
own thread) and the meaning of heads.

Sockets block without time-outs. So an unencrypted body of any size is one system call without the GIL: ``recv`` with
MSG_WAITALL into the chunk's buffer, or ``sendfile`` from the store's file. Before a piece the thread polls, and
SO_RCVLOWAT keeps it asleep until all of the piece is here; otherwise each burst of packets wakes it. Another thread
ends a transfer by ``cut``: it shuts the socket down, the blocked call returns, and the owner finds the reason in
``cut_by``. Only the owner closes, so no descriptor is reused during a call. Progress is read from the kernel's counters
(TCP_INFO), which costs the transfer nothing and works under TLS too.

Rejected: time-outs on the socket, because Python then polls before every call and single bytes reset them; a selector
loop with worker threads, because each request would switch threads once more; SO_RCVLOWAT without the poll, because
``recv`` takes what is here and then sleeps until as much comes again.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Sequence
from enum import Enum

from gossipd.core.errors import GossipdError
from gossipd.identity.certificates import public_key_of
from gossipd.runtime.bulk_sockets import BULK_SOCKETS
from gossipd.runtime.ports import Span
from gossipd.runtime.rate_limit import RateLimit
from gossipd.runtime.traffic_marks import mark
from gossipd.transfer.settings import BulkSettings
from membership.member import NodeId, node_id

# From include/uapi/linux/tcp.h; Python 3.11 has no name for it.
_TCP_NOTSENT_LOWAT = 25
# tcpi_bytes_acked and tcpi_bytes_received in struct tcp_info, since Linux 4.1; same header.
_TCP_INFO_BYTES = struct.Struct("=120xQQ")
# Keep-alive detects that an idle peer vanished, the user time-out that a receiving one did.
_KEEPALIVE_S = 10
_USER_TIMEOUT_MS = 10_000
# Long enough not to spin, short enough to recover within 5 s, which the fault table asks for (F29).
EXHAUSTED_PAUSE_S = 0.25
# Fewer bytes come in one burst anyway.
_LOW_WATER_MIN = 16 * 1024
# Two records of TLS, with their heads: OpenSSL may hold one that is half read, and one may be on its way to it.
_TLS_AHEAD = 2 * (16 * 1024 + 256)


class Cut(Enum):
    """Why our side shut a connection down."""

    TIMEOUT = "timeout"
    STALLED = "stalled"
    SLOW = "slow"
    GONE = "gone"
    CANCELLED = "cancelled"
    EVICTED = "evicted"
    CLOSING = "closing"


class DisconnectedError(GossipdError):
    """The connection ended under a call. ``refused``: by a TLS alert; ``cut_by``: by our side. Retry: elsewhere."""

    code = "E_GONE"

    def __init__(self, message: str, *, cut_by: Cut | None, refused: bool = False) -> None:
        super().__init__(message)
        self.cut_by = cut_by
        self.refused = refused


class FileReadError(GossipdError):
    """Our own disk failed during a body. Fault: this host; the connection must be closed."""

    code = "E_STORE_READ"


class Channel:
    """Owned by one thread at a time; ``cut`` may be called from any."""

    def __init__(self, sock: socket.socket, settings: BulkSettings, *, sends_bodies: bool) -> None:
        self._socket = sock
        self._bulk_settings = settings
        self._lock = threading.Lock()
        self._closed = False
        self._tls = False
        self._unsent_bytes = 0
        self._low_water = 1
        self._room = _LOW_WATER_MIN  # the largest low water so far
        self._hurried: int | None = None  # no piece of this transfer is awaited any longer
        self._arrived = select.poll()
        self._arrived.register(sock, select.POLLIN)
        if sends_bodies:
            BULK_SOCKETS.add(sock)
        self.sends_bodies = sends_bodies
        self.cut_by: Cut | None = None
        # The owner writes these and the watchdog reads them: the monotonic deadline, and the transfer's number.
        self.deadline: float | None = None
        self.transfer = 0
        self.rate = 0.0
        """Bytes a second of the last chunks that the owner received; 0: of none yet, or a refusal came since."""
        self.is_moving = False
        self.is_waiting = False  # a relay has not sent more of the chunk yet

    def connect(self, endpoint: tuple[str, int], timeout_s: float) -> None:
        self._socket.settimeout(timeout_s)
        self._socket.connect(endpoint)
        BULK_SOCKETS.add(self._socket)
        self._socket.settimeout(None)

    def start_tls(self, context: ssl.SSLContext, *, is_server: bool) -> NodeId:
        """Shake hands. Returns the node of the peer's certificate. Raises DisconnectedError, CertificateError."""
        try:
            with self._lock:
                plain = self._socket
                self._socket = context.wrap_socket(
                    plain, server_side=is_server, do_handshake_on_connect=False, suppress_ragged_eofs=True
                )
                BULK_SOCKETS.add(self._socket, instead_of=plain)
            self._socket.do_handshake()
            der = self._socket.getpeercert(binary_form=True)
        except ssl.SSLError as error:
            refused = not isinstance(error, ssl.SSLEOFError)
            message = f"TLS handshake failed: {error.reason}"
            raise DisconnectedError(message, cut_by=self.cut_by, refused=refused) from None
        except OSError as error:
            raise DisconnectedError(f"TLS handshake failed: {error}", cut_by=self.cut_by) from None
        self._tls = True
        assert der is not None, "the context requires a certificate"
        return node_id(public_key_of(der))

    def begin(self) -> None:
        """A transfer starts: the watchdog expects progress from now on."""
        self.transfer += 1
        self.is_moving = True
        self._hurried = None

    def end(self) -> None:
        """The transfer is over; the connection may be idle."""
        self.is_moving = False

    def receive(self, view: memoryview) -> None:
        """Fill ``view``. Raises DisconnectedError."""
        want = len(view)
        got = 0
        try:
            while got < want:
                flags = self._await_at_least(want - got)
                try:
                    count = self._socket.recv_into(view[got:] if got else view, 0, flags)
                except BlockingIOError:  # nothing is here though poll said so
                    continue
                if count == 0:
                    raise DisconnectedError(f"closed after {got} of {want} bytes", cut_by=self.cut_by)
                got += count
        except OSError as error:
            raise self._disconnected(error) from None

    def expect(self, want: int, patience_s: float) -> None:
        """Sleep until so many bytes are here, or the end, at most ``patience_s``, and less after ``hurry``: one wake-up
        for several heads and bodies. Under TLS, and for what comes in one burst, it returns at once.
        """
        if not self._tls and want >= _LOW_WATER_MIN:
            self._set_low_water(want, is_piece=True)
            self._arrived.poll(1000 * patience_s)

    def _await_at_least(self, want: int, *, is_piece: bool = False) -> int:
        """Sleep until so many bytes are here, or the end; the kernel lowers what its buffer cannot hold, and ``hurry``
        what is asked of a piece. Returns the flags to receive with. Under TLS only OpenSSL sleeps, and may then have
        part of them: it is asked for less.
        """
        if self._tls:
            want -= _TLS_AHEAD
            if not 1 < self._low_water <= want:
                self._set_low_water(want if want >= _LOW_WATER_MIN else 1)
            return 0
        if want < _LOW_WATER_MIN:
            self._set_low_water(1)
            return socket.MSG_WAITALL
        self._set_low_water(want, is_piece=is_piece)
        self._arrived.poll()  # ends early where the window is full
        return socket.MSG_DONTWAIT  # else the call would sleep until as much as the low water came after what is here

    def _set_low_water(self, low_water: int, *, is_piece: bool = False) -> None:
        with self._lock:
            if is_piece and self._hurried is not None:
                low_water = min(low_water, self._hurried)
            if low_water > self._room:
                # The kernel makes its buffer just as large, and then the sender would stand still until we wake.
                self._room = low_water
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 2 * low_water)
            if low_water != self._low_water:
                self._low_water = low_water
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)

    def receive_body(
        self, view: memoryview, throttle: RateLimit, *,
        piece_bytes: Callable[[], int] | None = None, on_piece: Callable[[int], None] | None = None,
    ) -> None:  # fmt: skip
        """Fill ``view`` at the throttle's rate; ``on_piece`` is told the filled bytes after each ``piece_bytes()``."""
        if throttle.rate is None and piece_bytes is None:
            self.receive(view)
            return
        at = paid = 0
        while at < len(view):
            left = len(view) - at
            piece = left if piece_bytes is None else min(left, piece_bytes())
            if not paid:
                paid = throttle.piece(piece)
                throttle.take(paid)
            count = self._receive_piece(view[at : at + min(piece, paid)])
            paid -= count
            at += count
            if on_piece is not None:
                on_piece(at)

    def _receive_piece(self, view: memoryview) -> int:
        """Fill ``view``, or less of it after ``hurry``. Returns the bytes."""
        if self._tls or len(view) < _LOW_WATER_MIN:
            self.receive(view)
            return len(view)
        while True:
            flags = self._await_at_least(len(view), is_piece=True)
            try:
                count = self._socket.recv_into(view, 0, flags)
            except BlockingIOError:  # nothing is here though poll said so
                continue
            except OSError as error:
                raise self._disconnected(error) from None
            if not count:
                raise DisconnectedError(f"closed before {len(view)} bytes had come", cut_by=self.cut_by)
            return count

    def hurry(self, at_least: int) -> None:
        """Let pieces of this transfer end when so many bytes of them are here, also one that is awaited now or whose
        size was settled before. From any thread; not under TLS.
        """
        with self._lock:
            self._hurried = at_least
            if not self._closed and not self._tls and self._low_water > at_least:
                self._low_water = at_least
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, at_least)

    def send(self, data: bytes | memoryview, flags: int = 0) -> None:
        """Send all of it. Raises DisconnectedError."""
        try:
            self._socket.sendall(data, flags)
        except OSError as error:
            raise self._disconnected(error) from None

    @property
    def is_duplex(self) -> bool:
        """Whether another thread may send while the owner receives: not under TLS, whose objects belong to one."""
        return not self._tls

    def try_send(self, data: bytes) -> bool:
        """Send a head of a few bytes from any thread, if the connection is duplex and has room at once."""
        if self._tls:
            return False
        try:
            sent = self._socket.send(data, socket.MSG_DONTWAIT)
            if sent < len(data):
                self._socket.sendall(data[sent:])
        except OSError:  # full, or ended: the owner finds out
            return False
        return True

    def send_memory(
        self, head: bytes, body: bytes | memoryview, throttle: RateLimit, *, whole_bytes: int | None = None
    ) -> None:
        """Send a head and a non-empty body from memory; ``whole_bytes`` if the body is a piece of a longer one."""
        assert body, "a head alone is sent by ``send``"
        self._limit_unsent(whole_bytes or len(body))
        view = memoryview(body)
        at = 0
        if self._tls:
            self.send(head)
            head = b""
        while at < len(view):
            piece = throttle.piece(len(view) - at)
            throttle.take(piece)
            if head:
                self._send_both(head, view[at : at + piece])
                head = b""
            else:
                self.send(view[at : at + piece])
            at += piece

    def _send_both(self, head: bytes, view: memoryview) -> None:
        """Send both in one unencrypted system call; only a signal leaves a rest."""
        try:
            sent = self._socket.sendmsg((head, view))
            if sent < len(head) + len(view):
                self._socket.sendall(b"".join((head, view))[sent:])
        except OSError as error:
            raise self._disconnected(error) from None

    def send_file(self, head: bytes, spans: Sequence[Span], throttle: RateLimit, scratch: memoryview | None) -> None:
        """Send a head, then the spans. ``scratch``: memory to encrypt from, under TLS only. Raises DisconnectedError:
        the connection ended; FileReadError: our own file could not be read.
        """
        self._limit_unsent(sum(span.length for span in spans))
        if self._tls:
            assert scratch is not None, "under TLS files pass through memory"
            self._send_encrypted(head, spans, throttle, scratch)
            return
        self.send(head, socket.MSG_MORE)
        out = self._socket.fileno()
        for span in spans:
            offset, left = span.offset, span.length
            while left:
                piece = throttle.piece(left)
                throttle.take(piece)
                left -= piece
                while piece:
                    sent = self._sendfile(out, span.descriptor, offset, piece)
                    offset += sent
                    piece -= sent

    def _sendfile(self, out: int, descriptor: int, offset: int, count: int) -> int:
        try:
            sent = os.sendfile(out, descriptor, offset, count)
        except OSError as error:
            if error.errno == errno.EIO:
                raise FileReadError(f"reading {count} bytes at {offset} failed: {error}") from None
            raise self._disconnected(error) from None
        if sent == 0:
            raise FileReadError(f"the file ended {count} bytes early")
        return sent

    def _send_encrypted(self, head: bytes, spans: Sequence[Span], throttle: RateLimit, scratch: memoryview) -> None:
        filled = len(head)
        scratch[:filled] = head
        for span in spans:
            offset, left = span.offset, span.length
            while left:
                piece = throttle.piece(min(left, len(scratch) - filled))
                try:
                    count = os.preadv(span.descriptor, [scratch[filled : filled + piece]], offset)
                except OSError as error:
                    raise FileReadError(f"reading {piece} bytes at {offset} failed: {error}") from None
                if count == 0:
                    raise FileReadError(f"the file ended {left} bytes early")
                throttle.take(count)
                filled, offset, left = filled + count, offset + count, left - count
                if filled == len(scratch) or throttle.rate is not None:
                    self.send(scratch[:filled])
                    filled = 0
        if filled:
            self.send(scratch[:filled])

    def is_quiet(self) -> bool:
        """Whether an idle connection is still open and holds no unexpected bytes."""
        try:
            socket.socket.recv(self._socket, 1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return self.cut_by is None
        except OSError:
            return False
        return False

    def is_open(self) -> bool:
        """Whether the peer's side is open, as far as this host knows. Unread requests do not hide its end."""
        ends = select.poll()
        ends.register(self._socket, select.POLLRDHUP)
        return self.cut_by is None and not ends.poll(0)

    def bytes_moved(self) -> int:
        """Bytes that have arrived on this connection: at the peer if we send bodies, else here."""
        with self._lock:
            if self._closed:
                return 0
            raw = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES.size)
        if len(raw) < _TCP_INFO_BYTES.size:
            return 0
        acked, received = _TCP_INFO_BYTES.unpack(raw)
        return int(acked if self.sends_bodies else received)

    def cut(self, reason: Cut) -> None:
        """Shut the connection down from any thread; the owner's call returns at once. The first reason stays."""
        with self._lock:
            if self._closed or self.cut_by is not None:
                return
            self.cut_by = reason
            try:
                # SSLSocket.shutdown would remove the TLS object during the owner's call.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            except OSError:
                return  # not connected: the owner's call fails anyway

    def close(self) -> None:
        """For the owner only; a second call does nothing."""
        with self._lock:
            if not self._closed:
                self._closed = True
                BULK_SOCKETS.close(self._socket)

    def _limit_unsent(self, length: int) -> None:
        unsent = self._bulk_settings.unsent_bytes(length)
        if unsent != self._unsent_bytes:
            self._unsent_bytes = unsent
            self._socket.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, unsent)

    def _disconnected(self, error: OSError) -> DisconnectedError:
        refused = isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError)
        return DisconnectedError(f"connection ended: {error}", cut_by=self.cut_by, refused=refused)


def prepare(sock: socket.socket, settings: BulkSettings) -> None:
    """Set options that must precede connect or listen; accepted sockets inherit them."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)
    if settings.send_buffer_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer_bytes)
    if settings.receive_buffer_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
    if settings.congestion_control is not None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, settings.congestion_control.encode())
    mark(sock, settings.dscp)


def family_of(host: str) -> socket.AddressFamily:
    """IPv6 for an address with a colon, else IPv4 (names included)."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET
