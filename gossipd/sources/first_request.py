"""The first request to an object on a web server: a small range, with access to every header.

obstore follows redirects to any host, and shows neither the status of a reply nor its Retry-After. So the standard
library asks for each object of an ``http`` or ``https`` source once before obstore reads it: it refuses redirects,
connects to the very address that was checked against ``sources.allow`` (no second name resolution), and learns the
version to which later reads are pinned. A range of up to 64 KiB is read by this request, so that small files cost one.
After a 429 or 503 the next request to that host is made here too, to read Retry-After.

Remaining risk: obstore follows a redirect that an allowed server sends only after the first request. The reply must
still carry the pinned tag and match the manifest's digest, and none of it is shown.

There is no first request through a proxy (``HTTP_PROXY``, ``HTTPS_PROXY``): addresses are then the proxy's concern.
"""

from __future__ import annotations

import http.client
import io
import re
import socket
import ssl
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, cast
from urllib.request import getproxies, proxy_bypass

from gossipd.manifest.source_url import SourceUrl
from gossipd.sources import errors
from gossipd.sources.location import Location
from gossipd.sources.settings import SourceSettings
from gossipd.sources.versions import ObjectVersion

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})")
_PROXIES = ("http", "https")

Addresses = tuple[str, ...]


def uses_proxy(source: SourceUrl) -> bool:
    """Whether this host's environment sends requests for ``source`` through a proxy."""
    return source.scheme in _PROXIES and source.scheme in getproxies() and not proxy_bypass(source.host)


def resolve(source: SourceUrl, what: str) -> Addresses:
    """The addresses of the source's host. Raises SourceUnreachableError."""
    try:
        found = socket.getaddrinfo(source.host, source.port, type=socket.SOCK_STREAM)
    except OSError:
        raise errors.SourceUnreachableError(what, f"host name '{source.host}' does not resolve") from None
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def touch(
    location: Location, addresses: Addresses, start: int, length: int, settings: SourceSettings
) -> tuple[ObjectVersion, bytes]:
    """Read ``length`` bytes, at least one, at ``start`` of a web object, without following redirects. Returns its
    version and the bytes. Raises a SourceError for any answer except a 206 with exactly these bytes.
    """
    what = location.shown
    connection = http.client.HTTPConnection(location.source.host, location.source.port)
    try:
        connection.sock = _connect(location, addresses, settings)
        headers = {"Range": f"bytes={start}-{start + length - 1}", "Accept-Encoding": "identity"}
        connection.request("GET", location.target, headers=headers | {"User-Agent": "gossipd"})
        response = _answer(connection.sock, settings)
        version = _check_head(response, what, start, length)
        body = _read_body(response, length, settings, what)
    except TimeoutError:
        raise errors.SourceSlowError(what, f"no answer for {settings.read_timeout_s:g} s") from None
    except (OSError, http.client.HTTPException) as error:
        raise errors.SourceUnreachableError(what, _reason(error)) from None
    finally:
        connection.close()
    if len(body) != length:
        raise errors.SourceShortError(what, f"{len(body)} bytes came, {length} were promised")
    return version, body


class _Incoming(io.RawIOBase):
    """A connection's bytes, with a ``deadline`` for all of them that raises TimeoutError. A socket's own time-out
    starts again at each byte, so a slow drip could hold a thread.
    """

    def __init__(self, sock: socket.socket, timeout_s: float) -> None:
        self._sock = sock
        self.deadline: float | None = time.monotonic() + timeout_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        if self.deadline is not None:
            left_s = self.deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self._sock.settimeout(left_s)
        return self._sock.recv_into(buffer)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)


def _answer(sock: socket.socket, settings: SourceSettings) -> http.client.HTTPResponse:
    """The response, its head within the time-out. Its body must keep the least rate."""
    incoming = _Incoming(sock, settings.read_timeout_s)
    response = http.client.HTTPResponse(cast(socket.socket, incoming), method="GET")
    response.begin()
    incoming.deadline = None
    sock.settimeout(settings.read_timeout_s)
    return response


def _read_body(response: http.client.HTTPResponse, length: int, settings: SourceSettings, what: str) -> bytes:
    """At most ``length`` bytes, at the least rate or faster."""
    body = bytearray()
    began = time.monotonic()
    while len(body) < length and (piece := response.read1(length - len(body))):
        body += piece
        check_rate(what, len(body), time.monotonic() - began, settings)
    return bytes(body)


def check_rate(what: str, received: int, waited_s: float, settings: SourceSettings) -> None:
    """Raises SourceSlowError when a source gave less than the least rate."""
    if waited_s > settings.rate_grace_s and received < settings.rate_bytes_min * waited_s:
        least = f"the least is {settings.rate_bytes_min} a second"
        raise errors.SourceSlowError(what, f"{received} bytes in {waited_s:.1f} s; {least}")


def _connect(location: Location, addresses: Addresses, settings: SourceSettings) -> socket.socket:
    source = location.source
    last: OSError = OSError("no address")
    for address in addresses:
        try:
            plain = socket.create_connection((address, source.port), timeout=settings.connect_timeout_s)
        except OSError as error:
            last = error
            continue
        plain.settimeout(settings.read_timeout_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if source.scheme == "http":
            return plain
        try:
            return ssl.create_default_context().wrap_socket(plain, server_hostname=source.host)
        except OSError as error:
            plain.close()
            last = error
    raise last


def _check_head(response: http.client.HTTPResponse, what: str, start: int, length: int) -> ObjectVersion:
    if response.status == 200:
        raise errors.SourceRangeError(
            what, "the server answered a range request with the whole object or a page (status 200)"
        )
    if response.status != 206:
        raise errors.from_status(response.status, what, retry_after_s=_retry_after(response.getheader("Retry-After")))
    encoding = (response.getheader("Content-Encoding") or "identity").strip().lower()
    if encoding != "identity":
        raise errors.SourceEncodingError(what, "the server encodes the object; it must send it unchanged")
    found = _CONTENT_RANGE.fullmatch((response.getheader("Content-Range") or "").strip())
    if not found:
        raise errors.SourceRangeError(what, "the server sent part of the object without saying which (Content-Range)")
    first, last, size = (int(part) for part in found.groups())
    if (first, last) != (start, start + length - 1):
        if first == start and last < start + length - 1:
            raise errors.SourceShortError(what, f"the server sent {last - first + 1} bytes of the {length} asked for")
        raise errors.SourceRangeError(what, f"asked for bytes {start}-{start + length - 1}, was sent {first}-{last}")
    if response.length is not None and response.length != length:
        raise errors.SourceRangeError(what, f"the server announced {response.length} bytes for a range of {length}")
    return ObjectVersion(response.getheader("ETag"), size, _modified(response.getheader("Last-Modified")))


def _modified(text: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(text) if text else None
    except (ValueError, OverflowError):  # no date, or a number beyond every calendar
        return None


def _retry_after(text: str | None) -> float | None:
    """Seconds, from a header with a number or a date."""
    if not text:
        return None
    if text.strip().isascii() and text.strip().isdigit():
        return float(text)
    at = _modified(text)
    return None if at is None or at.tzinfo is None else max(0.0, (at - datetime.now(UTC)).total_seconds())


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its TLS certificate is not valid: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return "TLS could not be set up"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return "the connection ended before an answer had come"
