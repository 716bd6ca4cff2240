"""What external storage can do wrong, one class for each, and how obstore's exceptions become these.

What lives here: the words. What does not: when to try again (``pace.py``, ``reader.py``).

Every error names the object by its address without userinfo, query or fragment, and never quotes anything the
server sent except a status number, two version tags and lengths: an error page may hold anything, and obstore puts
it into its exceptions. Two facts can only be had from obstore's text: the status number and the kind of a
connection failure. The tests in ``tests/gossipd/sources`` hold that text still.

Every call that may end in obstore's code stands inside ``in_our_words``, so that nothing a server can send is taken
for a bug of ours.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import ClassVar

from obstore.exceptions import (
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from gossipd.core.errors import ExitCode, RemoteError
from gossipd.core.events import FailReason

# obstore writes the address (percent-encoded, so without spaces) and then this; a reply's body only follows it.
_STATUS = re.compile(r"Server returned non-2xx status code: (\d{3})\b")

_OTHER_RANGE = re.compile(r"Requested (\d{1,19})\.\.(\d{1,19}), got (\d{1,19})\.\.(\d{1,19})")


class SourceError(RemoteError):
    """A read from external storage failed. Fault: the source or the way to it. State: nothing was written.

    ``again`` is how many times the same request may be sent again at once; ``reason`` is what the planner is told.
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
    """Fewer bytes came than were promised, or the object is shorter than the manifest says. Retry: yes."""

    code = "E_SOURCE_SHORT"
    again = 2


class SourceLongError(SourceError):
    """The object is longer than the manifest says: it is not the one that was published. Retry: elsewhere."""

    code = "E_SOURCE_LONG"


class SourceRangeError(SourceError):
    """A range was asked for and something else came: all of it, another range, a page. Retry: elsewhere."""

    code = "E_SOURCE_RANGE"


class SourceEncodingError(SourceError):
    """The server compressed or otherwise encoded the bytes. Retry: elsewhere."""

    code = "E_SOURCE_ENCODING"


class SourceChangedError(SourceError):
    """The object is not the version that was first seen; versions are never mixed. Retry: elsewhere."""

    code = "E_SOURCE_CHANGED"


class SourceHashError(SourceError):
    """Bytes of this object do not hash to the manifest's digest. Retry: once here, then elsewhere."""

    code = "E_SOURCE_HASH"
    exit_code = ExitCode.VERIFICATION
    again = 1
    reason = FailReason.CORRUPT


class SourceAuthError(SourceError):
    """Credentials are missing, wrong or not enough. Fault: this host's environment. Retry: after the cure."""

    code = "E_SOURCE_AUTH"
    exit_code = ExitCode.SOURCE_AUTH


class SourceNotFoundError(SourceError):
    """The object or its bucket is not there. Retry: elsewhere."""

    code = "E_SOURCE_NOT_FOUND"


class SourceRedirectError(SourceError):
    """The server sends us elsewhere. Redirects are not followed: they lead past ``sources.allow``. Retry: elsewhere."""

    code = "E_SOURCE_REDIRECT"


class SourceForbiddenError(SourceError):
    """``sources.allow`` does not list the scheme and host, or the host is at an address it must list. Retry: no."""

    code = "E_SOURCE_FORBIDDEN"


class SourceSlowError(SourceError):
    """No byte for the read time-out, or fewer than the least rate. Retry: once here, on another connection."""

    code = "E_SOURCE_SLOW"
    again = 1
    reason = FailReason.SLOW


class SourceBusyError(SourceError):
    """429 or 503: the source asks us to slow down. Retry: yes, later, as it says."""

    code = "E_SOURCE_BUSY"
    again = 8


class SourceUnreachableError(SourceError):
    """No connection, a broken one, or a server error. Retry: yes, later."""

    code = "E_SOURCE_UNREACHABLE"
    again = 3


class SourceCancelledError(SourceError):
    """We stopped the read. Fault: nobody."""

    code = "E_CANCELLED"
    reason = FailReason.CANCELLED


# The first row that fits decides.
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
            return kind(what, f"{why} (status {status})", retry_after_s=retry_after_s)
    return SourceRangeError(what, f"the server refused the request (status {status})")


# obstore's classes, which need no look at the text; the first that fits decides.
_CLASSES: tuple[tuple[type[Exception], type[SourceError], str], ...] = (
    (FileNotFoundError, SourceNotFoundError, "not there"),
    (UnauthenticatedError, SourceAuthError, "access refused; see this host's credentials for it"),
    (PermissionDeniedError, SourceAuthError, "access refused; see this host's credentials for it"),
    (PreconditionError, SourceChangedError, "the object has changed since it was first seen"),
    (NotSupportedError, SourceRangeError, "the server answered a range request with something else (status 200)"),
)
# Words of obstore's text, where it has nothing better; the first that is there decides.
_WORDS: tuple[tuple[str, type[SourceError], str], ...] = (
    ("StartTooLarge", SourceShortError, "the object ends before the range begins"),
    ("TimedOut", SourceSlowError, "no answer within the time-out"),
    ("kind: Timeout", SourceSlowError, "no answer within the time-out"),
    ("IncompleteBody", SourceShortError, "the connection ended before the promised bytes had come"),
    ("UnexpectedEof", SourceShortError, "the connection ended before the promised bytes had come"),
    ("dns error", SourceUnreachableError, "its host name does not resolve"),
    ("certificate", SourceUnreachableError, "its TLS certificate is not valid for us"),
    ("UnableToCanonicalize", SourceNotFoundError, "the directory is not there"),
    ("PermissionDenied", SourceAuthError, "this host's user may not read it"),
    ("tcp connect error", SourceUnreachableError, "no connection"),
)


def from_obstore(error: Exception, what: str) -> SourceError:
    """Whatever obstore raised for one object, in our words."""
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


OBSTORE_ERRORS = (BaseError, OSError, ValueError)
"""What obstore raises: its own family, FileNotFoundError, and ValueError for what it cannot parse or Python cannot hold
(an address, a date in the year 10000)."""


@contextmanager
def in_our_words(what: str) -> Iterator[None]:
    """Around calls into obstore: whatever it raises about the object ``what`` comes out as a SourceError."""
    try:
        yield
    except OBSTORE_ERRORS as error:
        raise from_obstore(error, what) from None
    except BaseException as error:
        if _is_panic(error):
            raise SourceError(what, "obstore panicked over it") from None
        raise


def _is_panic(error: BaseException) -> bool:
    """A Rust panic. PyO3 makes its class, a BaseException, when the first one happens: it cannot be imported."""
    return (type(error).__module__, type(error).__name__) == ("pyo3_runtime", "PanicException")
