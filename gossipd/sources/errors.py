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
    how many times the same request may be repeated at once. ``reason``: for the planner.
    """

    code = "E_SOURCE"
    exit_code = ExitCode.SOURCE_UNREACHABLE
    again: ClassVar[int] = 0
    reason: ClassVar[FailReason] = FailReason.SOURCE

    def __init__(self, what: str, why: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(f"{what}: {why}")
        self.what = what
        self.retry_after_s = retry_after_s


class SourceShortError(SourceError):
    """Fewer bytes came than promised, or the object is shorter than in the manifest. Retry: yes."""

    code = "E_SOURCE_SHORT"
    again = 2


class SourceLongError(SourceError):
    """The object is longer than in the manifest, so it is not the published one. Retry: elsewhere."""

    code = "E_SOURCE_LONG"


class SourceRangeError(SourceError):
    """The answer to a range request was something else: the whole object, another range, a page. Retry: elsewhere."""

    code = "E_SOURCE_RANGE"


class SourceEncodingError(SourceError):
    """The server compressed or otherwise encoded the bytes. Retry: elsewhere."""

    code = "E_SOURCE_ENCODING"


class SourceChangedError(SourceError):
    """The object is not the version first seen; versions are never mixed. Retry: elsewhere."""

    code = "E_SOURCE_CHANGED"


class SourceHashError(SourceError):
    """Bytes of this object do not match the manifest's digest. Retry: once here, then elsewhere."""

    code = "E_SOURCE_HASH"
    exit_code = ExitCode.VERIFICATION
    again = 1
    reason = FailReason.CORRUPT


class SourceAuthError(SourceError):
    """Credentials are missing, wrong or insufficient. Fault: this host's environment. Retry: after the remedy."""

    code = "E_SOURCE_AUTH"
    exit_code = ExitCode.SOURCE_AUTH


class SourceNotFoundError(SourceError):
    """The object or its bucket does not exist. Retry: elsewhere."""

    code = "E_SOURCE_NOT_FOUND"


class SourceRedirectError(SourceError):
    """The server redirects, which is not followed. ``target``: the address that it named. Retry: elsewhere."""

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
    """429 or 503: the source asks us to slow down. Retry: later, at the time that it names. ``status``: which of them,
    where it is known.
    """

    code = "E_SOURCE_BUSY"
    again = 8
    status: int | None = None


class SourceUnreachableError(SourceError):
    """No connection, a broken one, or a server error. Retry: later."""

    code = "E_SOURCE_UNREACHABLE"
    again = 3


class SourceCancelledError(SourceError):
    """We stopped the read. Fault: nobody."""

    code = "E_CANCELLED"
    reason = FailReason.CANCELLED


# The first matching row decides.
_STATUSES: tuple[tuple[Container[int], type[SourceError], str], ...] = (
    ((429, 503), SourceBusyError, "the server is busy"),
    ((401, 403, 407), SourceAuthError, "access refused; see this host's credentials for it"),
    ((404, 410), SourceNotFoundError, "not there"),
    ((412,), SourceChangedError, "the object has changed since it was first seen"),
    ((416,), SourceShortError, "the object ends before the range begins"),
    (range(300, 400), SourceRedirectError, "the server redirects; name the final address as the source"),
    (range(500, 600), SourceUnreachableError, "the server failed"),
)


def from_status(status: int, what: str, *, retry_after_s: float | None = None) -> SourceError:
    """The error for an HTTP status that is neither 200 nor 206."""
    for statuses, kind, why in _STATUSES:
        if status in statuses:
            error = kind(what, f"{why} (status {status})", retry_after_s=retry_after_s)
            if isinstance(error, SourceBusyError):
                error.status = status
            return error
    return SourceRangeError(what, f"the server refused the request (status {status})")


_WHOLE_OBJECT = "the server answered a range request with something else (status 200)"
# obstore's classes, where the text is not needed; the first match decides.
_CLASSES: tuple[tuple[type[Exception], type[SourceError], str], ...] = (
    (FileNotFoundError, SourceNotFoundError, "not there"),
    (exceptions.UnauthenticatedError, SourceAuthError, "access refused; see this host's credentials for it"),
    (exceptions.PermissionDeniedError, SourceAuthError, "access refused; see this host's credentials for it"),
    (exceptions.PreconditionError, SourceChangedError, "the object has changed since it was first seen"),
    (exceptions.NotSupportedError, SourceRangeError, _WHOLE_OBJECT),
)
# Words of obstore's text, where there is nothing better; the first that occurs decides.
_WORDS: tuple[tuple[str, type[SourceError], str], ...] = (
    ("StartTooLarge", SourceShortError, "the object ends before the range begins"),
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
