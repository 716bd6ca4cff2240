"""Failures of external storage, one class for each, and the translation of obstore's exceptions.

What lives here: the classes and sentences. What does not: repeats (``pace``, ``reader``).

Every error names the object by its address without userinfo, query or fragment. From the server it quotes only a status
number, two version tags and lengths, because an error page may hold anything, and obstore puts it into its exceptions.
Only obstore's text tells the status number and the kind of a connection failure; the tests in ``tests/gossipd/sources``
detect changes of that text.

Every call that may end in obstore's code is inside ``in_our_words``, so that no answer looks like our bug.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import ClassVar

from obstore import exceptions

from gossipd.core.errors import ExitCode, RemoteError
from gossipd.core.events import FailReason

# obstore writes the address (percent-encoded, so without spaces) before this, and a reply's body only after it.
_STATUS = re.compile(r"Server returned non-2xx status code: (\d{3})\b")
_OTHER_RANGE = re.compile(r"Requested (\d{1,19})\.\.(\d{1,19}), got (\d{1,19})\.\.(\d{1,19})")


class SourceError(RemoteError):
    """A read from external storage failed. Fault: the source or the way to it. State: nothing was written. ``again``:
    how many times the same request may be repeated at once. ``reason``: for the planner. ``is_permanent``: only another
    object, server or manifest helps; then the sentence says so.
    """

    code = "E_SOURCE"
    exit_code = ExitCode.SOURCE_UNREACHABLE
    again: ClassVar[int] = 0
    reason: ClassVar[FailReason] = FailReason.SOURCE
    is_permanent: ClassVar[bool] = False
    cure: ClassVar[str] = ""
    """What helps, where trying again does not."""

    def __init__(self, what: str, why: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(f"{what}: {why}" + (f"; permanent: {self.cure}" if self.is_permanent else ""))
        self.what = what
        self.said = ""
        """A word of the hub for what is wrong (``X-Error-Code``); compared, never shown."""
        self.retry_after_s = retry_after_s


class SourceShortError(SourceError):
    """Fewer bytes came than promised. Retry: yes."""

    code = "E_SOURCE_SHORT"
    again = 2


class SourceTruncatedError(SourceError):
    """The object is shorter than in the manifest, so it is not the published one. Retry: elsewhere."""

    code = "E_SOURCE_TRUNCATED"
    is_permanent = True
    cure = "put the published file there, or publish again"


class SourceLongError(SourceError):
    """The object is longer than in the manifest, so it is not the published one. Retry: elsewhere."""

    code = "E_SOURCE_LONG"
    is_permanent = True
    cure = SourceTruncatedError.cure


class SourceRangeError(SourceError):
    """The answer to a range request was something else: the whole object, another range, a page. Retry: elsewhere."""

    code = "E_SOURCE_RANGE"
    is_permanent = True
    cure = "name a server that answers range requests"


class SourceNoRangesError(SourceError):
    """The server has no ranges, and the file is too large to be taken whole for each of them. Retry: elsewhere."""

    code = "E_SOURCE_NO_RANGES"
    is_permanent = True
    cure = "serve the files with a server that answers range requests, such as nginx"


class SourceEncodingError(SourceError):
    """The server compressed or otherwise encoded the bytes. Retry: elsewhere."""

    code = "E_SOURCE_ENCODING"
    is_permanent = True
    cure = "switch compression off for these files"


class SourceHashError(SourceError):
    """Bytes of this object do not match the manifest's digest. Retry: once here, then elsewhere."""

    code = "E_SOURCE_HASH"
    exit_code = ExitCode.VERIFICATION
    again = 1
    reason = FailReason.CORRUPT
    is_permanent = True
    cure = SourceTruncatedError.cure


class SourceChangedError(SourceHashError):
    """The same, and the object's tag or date says that it was replaced while it was read. Retry: elsewhere."""

    code = "E_SOURCE_CHANGED"
    again = 0


class SourceAuthError(SourceError):
    """Credentials are missing, wrong or insufficient. Fault: this host's environment. Retry: after the remedy."""

    code = "E_SOURCE_AUTH"
    exit_code = ExitCode.SOURCE_AUTH


class SourceNotFoundError(SourceError):
    """The object or its bucket does not exist. Retry: elsewhere."""

    code = "E_SOURCE_NOT_FOUND"
    is_permanent = True
    cure = SourceTruncatedError.cure


class SourceRedirectError(SourceError):
    """The server redirects, which is followed for hubs only. ``target``: the address that it named, which may be as
    good as a password. Retry: elsewhere.
    """

    code = "E_SOURCE_REDIRECT"
    target = ""


class SourceForbiddenError(SourceError):
    """``sources.allow`` does not list the scheme and host, or those of a redirect, or it must list the host's address.
    Retry: no.
    """

    code = "E_SOURCE_FORBIDDEN"


class SourceSlowError(SourceError):
    """No byte within the read time-out, or below the least rate. Retry: once here, on another connection."""

    code = "E_SOURCE_SLOW"
    again = 1
    reason = FailReason.SLOW


class SourceBusyError(SourceError):
    """429 or 503: the source asks us to slow down. Retry: later, at the time that it names."""

    code = "E_SOURCE_BUSY"
    again = 8


class SourceUnreachableError(SourceError):
    """No connection, a broken one, or a server error. Retry: later."""

    code = "E_SOURCE_UNREACHABLE"
    again = 3


class SourceProxyError(SourceError):
    """The proxy of this host's environment is none that gossipd can use, or refuses this host. Retry: after the
    remedy.
    """

    code = "E_SOURCE_PROXY"


class SourceCancelledError(SourceError):
    """We stopped the read. Fault: nobody."""

    code = "E_CANCELLED"
    reason = FailReason.CANCELLED


# The first matching row decides.
_STATUSES: tuple[tuple[Container[int], type[SourceError], str], ...] = (
    ((429, 503), SourceBusyError, "the server is busy"),
    ((407,), SourceProxyError, "the proxy of this host's environment asks for credentials, or other ones"),
    ((401, 403), SourceAuthError, "access refused; see this host's credentials for it"),
    ((404, 410), SourceNotFoundError, "not there"),
    ((416,), SourceTruncatedError, "the object ends before the range begins"),
    (range(300, 400), SourceRedirectError, "the server redirects; name the final address as the source"),
    (range(500, 600), SourceUnreachableError, "the server failed"),
)


def from_status(status: int, what: str, *, retry_after_s: float | None = None) -> SourceError:
    """The error for an HTTP status that is neither 200 nor 206."""
    for statuses, kind, why in _STATUSES:
        if status in statuses:
            return kind(what, f"{why} (status {status})", retry_after_s=retry_after_s)
    return SourceError(what, f"the server refused the request (status {status})", retry_after_s=retry_after_s)


_WHOLE_OBJECT = "the server answered a range request with the whole object or a page (status 200)"
# obstore's classes, where the text is not needed; the first match decides.
_CLASSES: tuple[tuple[type[Exception], type[SourceError], str], ...] = (
    (FileNotFoundError, SourceNotFoundError, "not there"),
    (exceptions.UnauthenticatedError, SourceAuthError, "access refused; see this host's credentials for it"),
    (exceptions.PermissionDeniedError, SourceAuthError, "access refused; see this host's credentials for it"),
    (exceptions.NotSupportedError, SourceNoRangesError, _WHOLE_OBJECT),
)
# Words of obstore's text, where there is nothing better; the first that occurs decides.
_WORDS: tuple[tuple[str, type[SourceError], str], ...] = (
    ("StartTooLarge", SourceTruncatedError, "the object ends before the range begins"),
    ("TimedOut", SourceSlowError, "no answer within the time-out"),
    ("kind: Timeout", SourceSlowError, "no answer within the time-out"),
    ("IncompleteBody", SourceShortError, "the connection ended before the promised bytes had come"),
    ("UnexpectedEof", SourceShortError, "the connection ended before the promised bytes had come"),
    ("dns error", SourceUnreachableError, "its host name does not resolve"),
    ("certificate", SourceUnreachableError, "its TLS certificate is not valid"),
    ("UnableToCanonicalize", SourceNotFoundError, "the directory is not there"),
    ("PermissionDenied", SourceAuthError, "this host's user may not read it"),
    ("tcp connect error", SourceUnreachableError, "no connection"),
)


def from_obstore(error: Exception, what: str) -> SourceError:
    """Translate an exception of obstore about one object."""
    for known, kind, why in _CLASSES:
        if isinstance(error, known):
            return kind(what, why)
    text = str(error)
    if found := _STATUS.search(text):
        return from_status(int(found.group(1)), what)
    if found := _OTHER_RANGE.search(text):
        asked_start, asked_stop, start, stop = (int(part) for part in found.groups())
        if start == asked_start and stop < asked_stop:
            return SourceShortError(what, f"the server sent {stop - start} bytes of the {asked_stop - start} asked for")
        return SourceRangeError(what, "the server sent another range than was asked for")
    for word, kind, why in _WORDS:
        if word in text:
            return kind(what, why)
    return SourceUnreachableError(what, "the read failed")


@contextmanager
def in_our_words(what: str) -> Iterator[None]:
    """Around calls into obstore: its exceptions about the object ``what`` become SourceErrors."""
    try:
        yield
    # Also FileNotFoundError, and ValueError for addresses and dates that cannot be parsed or represented.
    except (exceptions.BaseError, OSError, ValueError) as error:
        raise from_obstore(error, what) from None
    except BaseException as error:
        if _is_panic(error):
            raise SourceError(what, "obstore panicked") from None
        raise


def _is_panic(error: BaseException) -> bool:
    """A Rust panic. PyO3 creates its class, a BaseException, at the first panic, so it cannot be imported."""
    return (type(error).__module__, type(error).__name__) == ("pyo3_runtime", "PanicException")
