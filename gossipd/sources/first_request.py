"""The answers of web servers: whether one is the range that was asked for, and a trial of one byte.

What lives here: judging a head, without following redirects, and a request on a connection of its own, for trials. What
does not: reading (``web_stream``), and which objects are asked for one byte first (``range_request``).
"""

from __future__ import annotations

import http.client
import re
import socket
import time
from datetime import UTC, datetime

from msgspec import Struct

from gossipd.runtime.bulk_sockets import BULK_SOCKETS
from gossipd.sources import errors
from gossipd.sources.addresses import Addresses
from gossipd.sources.asked_pause import asked_pause_s, http_date
from gossipd.sources.location import Location
from gossipd.sources.pieces import Wanted, check_rate, longest_s
from gossipd.sources.refusal_documents import DOCUMENT_CHARS_MAX, from_refusal, region_in
from gossipd.sources.settings import SourceSettings
from gossipd.sources.versions import ObjectVersion
from gossipd.sources.web_connection import Incoming, ask, connect, failure_of, head_of, through

_PIECE_BYTES = 64 * 1024
MORE_BYTES_MAX = 8 * 1024 * 1024  # before the wanted ones, as of a cache that keeps and sends segments of a fixed size
LESS_BYTES_MIN = 64 * 1024  # from a server that gives less than it is asked for; fewer are not worth their request
RANGE_REFUSED = 416
_ACCESS_REFUSED = (401, 403)
_BAD_REQUEST = 400  # nginx says so in a page where https is meant
# As some servers write it, too: ``bytes=0-9/10``, ``0 - 9``. The hash of what comes decides.
_CONTENT_RANGE = re.compile(
    r"(?:bytes)?[\s:=]*(\d{1,19})\s*-\s*(\d{1,19})(?:\s*/\s*(\d{1,19}|\*))?", re.IGNORECASE | re.ASCII
)
_REFUSED_RANGE = re.compile(r"bytes \*/(\d{1,19})", re.IGNORECASE | re.ASCII)
_UNCHANGED = frozenset({"", "identity", "aws-chunked"})  # the last is a mark that some storages keep of an upload
# What a document may say more exactly than its status. It speaks of credentials as if this host had shown some.
_TOLD = (
    errors.SourceAccountError, errors.SourceArchivedError, errors.SourceBusyError, errors.SourceEncryptedError,
    errors.SourceNoBucketError, errors.SourceNotFoundError, errors.SourcePayerError, errors.SourceUnreachableError,
)  # fmt: skip


class Head(Struct, frozen=True):
    """A good answer. ``count``: how many of the wanted bytes come, from the first on; fewer than all where the server
    gives less at once. ``before``: bytes of the body that precede them, as where the whole object comes though a part
    was asked for (``lacks_ranges``). ``is_range``: it is no whole object. ``has_rest``: more bytes follow them."""

    version: ObjectVersion
    count: int
    before: int = 0
    lacks_ranges: bool = False
    is_range: bool = True
    has_rest: bool = False


class Touched(Struct, frozen=True):
    """What the first request brought."""

    version: ObjectVersion
    body: bytes
    lacks_ranges: bool


def touch(location: Location, addresses: Addresses, wanted: Wanted, settings: SourceSettings) -> Touched:
    """Read a range of at least one byte of a web object, without following redirects. Raises a SourceError for any
    answer except one with exactly these bytes.
    """
    what = location.shown
    sock: socket.socket | None = None
    try:
        sock = connect(location, addresses, settings)
        ask(sock, location, addresses, wanted.header)
        incoming = Incoming(sock, settings.read_timeout_s)
        response = head_of(incoming, "GET")
        head = check_head(response, what, wanted, settings)
        incoming.deadline += longest_s(head.before + wanted.length, settings)
        body = _read_body(response, head.before, wanted.length, settings, what)
    except TimeoutError:
        way = through(location, addresses)
        raise errors.SourceSlowError(what, f"no answer for {settings.read_timeout_s:g} s{way}") from None
    except (OSError, http.client.HTTPException) as error:
        raise failure_of(error, what, through(location, addresses)) from None
    finally:
        if sock is not None:
            BULK_SOCKETS.close(sock)
    if len(body) != wanted.length:
        if response.chunked and not head.is_range:  # it has come to its end
            raise ended_early(response, what)
        raise errors.SourceShortError(what, f"{len(body)} bytes came, {wanted.length} were promised")
    return Touched(head.version, body, head.lacks_ranges)


def _read_body(
    response: http.client.HTTPResponse, before: int, length: int, settings: SourceSettings, what: str
) -> bytes:
    """At most ``length`` bytes after the first ``before``, at the least rate or faster."""
    body = bytearray()
    began, received = time.monotonic(), 0
    while received < before + length and (piece := response.read1(min(_PIECE_BYTES, before + length - received))):
        body += piece[max(0, before - received) :]
        received += len(piece)
        check_rate(what, received, time.monotonic() - began, settings)
    return bytes(body)


def ended_early(response: http.client.HTTPResponse, what: str) -> errors.SourceError:
    """The error for a whole object that ends too soon, by a server that told no length before."""
    if not _is_page(response, what):
        return errors.SourceTruncatedError(what, "the object ends before the published bytes do")
    return _page(what)


def _page(what: str) -> errors.SourceError:
    page = errors.SourceRangeError(what, "the server sent a page in its place")
    page.is_page = True
    return page


def _is_page(response: http.client.HTTPResponse, what: str) -> bool:
    is_labelled = (response.getheader("Content-Type") or "").lower().startswith("text/html")
    return is_labelled and not what.endswith((".html", ".htm"))


def check_head(response: http.client.HTTPResponse, what: str, wanted: Wanted, settings: SourceSettings) -> Head:
    """Raises a SourceError for any answer but the wanted range, or the whole of an object that is small enough."""
    if response.getheader("X-Squid-Error") and response.status != errors.PROXY_CREDENTIALS:
        if response.status < 500:
            raise errors.SourceProxyError(what, f"the proxy on the way refuses it (status {response.status})")
        raise errors.SourceUnreachableError(what, f"the proxy on the way cannot reach it (status {response.status})")
    if response.status not in (200, 206):
        raise _refused(response, what, wanted)
    encoding = (response.getheader("Content-Encoding") or "").strip(" ,").lower()
    is_whole = _is_all(response, wanted) if response.status == 206 else not _is_slice(response, wanted)
    sent = wanted.object_bytes if is_whole else wanted.length
    # Apache calls a file of the name *.gz encoded, and object stores whatever the upload said of it; then the bytes
    # are as many as were published, and their hashes decide.
    if encoding not in _UNCHANGED and response.length != sent:
        raise errors.SourceEncodingError(what, "the server encodes the object; it must send it unchanged")
    if (response.getheader("Transfer-Encoding") or "chunked").strip().lower() not in ("chunked", "identity"):
        raise errors.SourceEncodingError(what, "the server encodes what it sends; it must send it unchanged")
    tag, modified = response.getheader("ETag"), http_date(response.getheader("Last-Modified"))
    if is_whole:
        version = ObjectVersion(tag, wanted.object_bytes, modified)
        try:
            _check_whole(response, what, wanted, settings)
        except errors.SourceWholeOnlyError as error:
            error.version = version.shown
            raise
        is_part = wanted.length < wanted.object_bytes  # some servers answer 200 where a range is all there is
        return Head(version, wanted.length, wanted.start, is_part, is_range=False)
    if response.status == 200 and response.getheader("Content-Range") is None:
        return Head(ObjectVersion(tag, wanted.object_bytes, modified), wanted.length)
    found = _check_part(response, what, wanted)
    first, count = max(found.first, wanted.start), min(found.last, wanted.last) - wanted.start + 1
    version = ObjectVersion(tag, found.size, modified)
    return Head(version, count, first - found.first, has_rest=found.last > wanted.last)


def _is_slice(response: http.client.HTTPResponse, wanted: Wanted) -> bool:
    """Whether an answer with status 200 is the wanted part all the same, by its label or its length, as from servers
    that put a status of their own before what a storage sent."""
    found = _CONTENT_RANGE.fullmatch((response.getheader("Content-Range") or "").strip())
    if found is None:
        return response.length == wanted.length < wanted.object_bytes
    return (int(found[1]), int(found[2])) == (wanted.start, wanted.start + wanted.length - 1)


def _refused(response: http.client.HTTPResponse, what: str, wanted: Wanted) -> errors.SourceError:
    """The error for a status that is neither 200 nor 206, in what its document says where that is more exact."""
    error = errors.from_status(response.status, what)
    if response.status in _ACCESS_REFUSED:
        cure = "web servers are shown no credentials; let this host read there without"
        error = errors.SourceAuthError(what, f"access refused (status {response.status}): {cure}")
    if isinstance(error, errors.SourceRedirectError):
        error.target = response.getheader("Location") or ""
        if not error.target:
            error = _elsewhere(response, what) or error
    elif response.status == RANGE_REFUSED:
        found = _REFUSED_RANGE.fullmatch((response.getheader("Content-Range") or "").strip())
        if found is not None and int(found[1]) >= wanted.start + wanted.length:
            error = errors.SourceRangeError(what, "the server refuses a range that its object has (status 416)")
    elif response.status != errors.PROXY_CREDENTIALS and (document := _document(response)):
        told = from_refusal(document, response.status, what)
        error = told if isinstance(told, _TOLD) or type(told) is errors.SourceError else error
    error.said = response.getheader("X-Error-Code") or ""
    error.retry_after_s = asked_pause_s(response.getheader, datetime.now(UTC))
    return error


def _elsewhere(response: http.client.HTTPResponse, what: str) -> errors.SourceError | None:
    """Of a redirect to no address, as S3 answers where the bucket is in another region."""
    region = region_in(f"<Region>{response.getheader('x-amz-bucket-region') or ''}</Region>{_document(response)}")
    if region is None:
        return None
    said = f"the bucket is in region {region}; name its address there as the source (status {response.status})"
    return errors.SourceRedirectError(what, said)


def _document(response: http.client.HTTPResponse) -> str:
    """What has come of a document beside a refusal, of the kinds that storages write."""
    kind = (response.getheader("Content-Type") or "").lower()
    if "xml" not in kind and "json" not in kind and response.status != _BAD_REQUEST:
        return ""
    try:
        return response.read1(DOCUMENT_CHARS_MAX).decode(errors="replace")
    except (OSError, ValueError, http.client.HTTPException, errors.SourceError):
        return ""


def _check_whole(response: http.client.HTTPResponse, what: str, wanted: Wanted, settings: SourceSettings) -> None:
    """A server without ranges. Its small objects are taken whole, and so is one that is wanted whole."""
    length = response.length
    if length is not None and length != wanted.object_bytes:
        said = f"the server answered a range request with {length} bytes (status {response.status}), the object has "
        if _is_page(response, what):
            page = errors.SourceRangeError(what, f"{said}{wanted.object_bytes}: a page")
            page.is_page = True
            raise page
        kind = errors.SourceTruncatedError if length < wanted.object_bytes else errors.SourceLongError
        raise kind(what, f"{said}{wanted.object_bytes}: another object, or a page")
    is_wanted_whole = wanted.length == wanted.object_bytes
    if not is_wanted_whole and (length is None or wanted.object_bytes > settings.whole_file_bytes_max):
        raise errors.SourceWholeOnlyError(what, "the server has no ranges; the object is read from its beginning")


class _Place(Struct, frozen=True):
    """What an answer says it is: bytes ``first`` to ``last`` of an object of ``size``."""

    first: int
    last: int
    size: int


def _place(response: http.client.HTTPResponse, wanted: Wanted) -> _Place | None:
    found = _CONTENT_RANGE.fullmatch((response.getheader("Content-Range") or "").strip())
    if found is None:
        return None
    size = wanted.object_bytes if found[3] in (None, "*") else int(found[3])  # a server need not know it
    return _Place(int(found[1]), int(found[2]), size)


def _is_all(response: http.client.HTTPResponse, wanted: Wanted) -> bool:
    """Whether the label of a part says that it is the whole of an object, of which no more than a small part is wanted:
    such a server has no ranges, whatever its status says."""
    found = _place(response, wanted)
    if found is None or found.size != wanted.object_bytes or found.size <= MORE_BYTES_MAX:
        return False
    return (found.first, found.last) == (0, found.size - 1) and wanted.length < wanted.object_bytes


def _check_part(response: http.client.HTTPResponse, what: str, wanted: Wanted) -> _Place:
    """Where the part lies. It may begin earlier and end later than what was asked for, or end earlier: a client looks
    at the label, and asks for the rest (RFC 9110, 15.3.7)."""
    found = _place(response, wanted)
    if found is None:
        raise errors.SourceRangeError(what, "the server sent part of the object without saying which (Content-Range)")
    if found.size != wanted.object_bytes and _is_page(response, what):  # as where all that is absent is a start page
        raise _page(what)
    if found.last < wanted.last and found.size <= wanted.last:
        raise errors.SourceTruncatedError(what, f"the object has {found.size} bytes, and more are published")
    if not found.first <= wanted.start <= found.last or wanted.start - found.first > MORE_BYTES_MAX:
        said = f"asked for bytes {wanted.start}-{wanted.last}, was sent {found.first}-{found.last}"
        raise errors.SourceRangeError(what, said)
    count = min(found.last, wanted.last) - wanted.start + 1
    if count < min(wanted.length, LESS_BYTES_MIN):
        raise errors.SourceShortError(what, f"the server sent {count} bytes of the {wanted.length} asked for")
    length = found.last - found.first + 1
    if response.length is not None and response.length != length:
        raise errors.SourceRangeError(what, f"the server announced {response.length} bytes for a range of {length}")
    return found
