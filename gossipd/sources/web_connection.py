"""Connections to web servers, direct or through a proxy, and the request on one of them.

What lives here: TCP, ``CONNECT``, TLS, sending a request. What does not: looking names up
(``addresses``), which proxy (``proxies``), answers (``first_request``), connections that are kept (``web_stream``).

Without a proxy a connection goes to one of the addresses that were checked against ``sources.allow``, and no name is
looked up again. Through a proxy the addresses of sources are the proxy's concern. Certificates are checked against the
system's authorities, or those of ``SSL_CERT_FILE`` and ``SSL_CERT_DIR``.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from typing import TYPE_CHECKING, cast

from gossipd.manifest.source_url import SourceUrl
from gossipd.runtime.bulk_sockets import BULK_SOCKETS
from gossipd.sources import errors
from gossipd.sources.addresses import Addresses, proxy_of
from gossipd.sources.location import Location
from gossipd.sources.pieces import UNREADABLE
from gossipd.sources.proxies import Proxy
from gossipd.sources.settings import SourceSettings
from gossipd.sources.tls_failures import SEE_ADDRESS, is_of_tls, words_of_openssl

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_INTERIM_MOST = 8  # answers such as 103 Early Hints before the one; CDNs send one
_USUAL_PORTS = {"http": 80, "https": 443}


class Incoming(io.RawIOBase):
    """A connection's bytes, with a ``deadline`` for all of them and a time-out for the next, which raise TimeoutError.
    A socket's own time-out starts again at each byte, so a slow drip could hold a thread.
    """

    def __init__(self, sock: socket.socket, timeout_s: float) -> None:
        self._sock, self._timeout_s = sock, timeout_s
        self.deadline = time.monotonic() + timeout_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        left_s = self.deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._sock.settimeout(min(left_s, self._timeout_s))
        return self._sock.recv_into(buffer)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)


class _Head(http.client.HTTPResponse):
    """An answer of which interim ones were skipped: the standard library skips 100 only, and takes 103 for the last."""

    def begin(self) -> None:
        super().begin()
        for _ in range(_INTERIM_MOST):
            if not 101 < self.status < 200:
                return
            self.headers = self.msg = None  # type: ignore[assignment]  # as before its beginning
            super().begin()
        raise http.client.BadStatusLine(str(self.status))


def head_of(incoming: Incoming, method: str) -> http.client.HTTPResponse:
    """The answer on a connection, after its head. Raises OSError, HTTPException."""
    response = _Head(cast(socket.socket, incoming), method=method)
    try:
        response.begin()
    except UNREADABLE:
        raise http.client.BadStatusLine("a head that cannot be read") from None
    return response


def connect(location: Location, addresses: Addresses, settings: SourceSettings) -> socket.socket:
    """An open connection, after TLS. Raises OSError about the source, SourceError about its proxy."""
    source = location.source
    if not addresses:
        return _connect_through_proxy(location, settings)
    last: OSError = OSError("no address")
    for address in addresses:
        try:
            plain = _open((address, source.port), settings)
        except OSError as error:
            last = error
            continue
        try:
            return _secured(plain, source)
        except OSError as error:
            plain.close()
            last = error
    raise last


def ask(sock: socket.socket, location: Location, addresses: Addresses, headers: dict[str, str]) -> None:
    """Send one GET for the object. Raises OSError, ValueError, SourceProxyError."""
    source = location.source
    host = _host_header(source)
    target = location.target
    sent = {"Host": host, "Accept-Encoding": "identity", "User-Agent": "gossipd", **headers}
    if location.authorization:
        sent["Authorization"] = location.authorization
    if source.scheme == "http" and not addresses and (proxy := proxy_of(source, location.shown)) is not None:
        target = f"http://{host}{target}"
        if proxy.authorization:
            sent["Proxy-Authorization"] = proxy.authorization
    request = http.client.HTTPConnection(source.host, source.port)
    request.sock = sock
    request.request("GET", target, headers=sent)


def through(location: Location, addresses: Addresses) -> str:
    """The proxy that stands between, as the end of a sentence about a failure that may be its own; or nothing."""
    proxy = None if addresses else proxy_of(location.source, location.shown)
    return f", through {proxy.shown}" if proxy is not None else ""


def failure_of(error: Exception, what: str, way: str) -> errors.SourceError:
    """The error for a connection that failed. ``way``: what stands between, as the end of a sentence."""
    kind = errors.SourceTlsError if is_of_tls(error) else errors.SourceUnreachableError
    return kind(what, reason_of(error) + way)


def reason_of(error: Exception) -> str:
    """A failed connection in words, with what helps where it is not time."""
    if isinstance(error, ssl.SSLError):
        return words_of_openssl(error) if is_of_tls(error) else "TLS could not be set up"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return _reason_of_answer(error)


def _reason_of_answer(error: Exception) -> str:
    is_other = isinstance(error, http.client.BadStatusLine | http.client.UnknownProtocol)
    if is_other and not isinstance(error, ConnectionError):
        return f"what came is no answer of HTTP; {SEE_ADDRESS}"
    if isinstance(error, http.client.LineTooLong) or "headers" in str(error):
        return "the head of the answer is longer than 100 lines of 64 KiB"
    return "the connection ended before an answer had come"


def _connect_through_proxy(location: Location, settings: SourceSettings) -> socket.socket:
    source, what = location.source, location.shown
    proxy = proxy_of(source, what)
    if proxy is None:
        raise OSError("no address")
    try:
        plain = _open((proxy.host, proxy.port), settings)
    except (OSError, UnicodeError) as error:
        raise errors.SourceUnreachableError(what, f"{proxy.shown}: {reason_of(error)}") from None
    try:
        if source.scheme == "https":
            _tunnel(plain, proxy, location, settings)
        return _secured(plain, source)
    except BaseException:
        plain.close()
        raise


def _tunnel(plain: socket.socket, proxy: Proxy, location: Location, settings: SourceSettings) -> None:
    """Have the proxy connect to the source's host. Raises SourceError, OSError."""
    host = f"{location.source.bracketed}:{location.source.port}"
    lines = [f"CONNECT {host} HTTP/1.1", f"Host: {host}", "User-Agent: gossipd"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    plain.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode())
    # A server says nothing before TLS begins, so what is read ahead here is the proxy's own.
    incoming = Incoming(plain, settings.read_timeout_s)
    try:
        response = head_of(incoming, "CONNECT")
    except http.client.HTTPException:
        raise errors.SourceUnreachableError(location.shown, f"{proxy.shown} gave no answer in HTTP") from None
    plain.settimeout(settings.read_timeout_s)
    if response.status == 407:
        raise errors.SourceProxyError(location.shown, f"{proxy.shown} asks for credentials, or other ones")
    if response.status != 200:
        raise errors.SourceUnreachableError(
            location.shown, f"{proxy.shown} does not connect to {host} (status {response.status})"
        )


def _open(address: tuple[str, int], settings: SourceSettings) -> socket.socket:
    plain = socket.create_connection(address, timeout=settings.connect_timeout_s)
    BULK_SOCKETS.add(plain)
    plain.settimeout(settings.read_timeout_s)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return plain


def _secured(plain: socket.socket, source: SourceUrl) -> socket.socket:
    if source.scheme == "http":
        return plain
    secured = ssl.create_default_context().wrap_socket(plain, server_hostname=source.host)
    BULK_SOCKETS.add(secured, instead_of=plain)
    return secured


def _host_header(source: SourceUrl) -> str:
    """Without the usual port: signatures of object stores cover this header."""
    host = source.bracketed
    return host if source.port == _USUAL_PORTS[source.scheme] else f"{host}:{source.port}"
