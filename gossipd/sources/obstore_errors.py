"""The translation of obstore's exceptions into SourceErrors.

What lives here: reading obstore's texts. What does not: the documents that these quote (``refusal_documents``), and
texts about credentials (``token_services``).

Only obstore's text tells the status number, the storage's document and the kind of a connection failure; the tests in
``tests/gossipd/sources`` detect changes of that text. Every call that may end in obstore's code is inside
``in_our_words``, so that no answer looks like our bug.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore import exceptions

from gossipd.sources import errors
from gossipd.sources.errors import SourceError
from gossipd.sources.refusal_documents import from_refusal
from gossipd.sources.tls_failures import words_of_rustls
from gossipd.sources.token_services import DOCUMENT_ENDS, STATUS, about_credentials

_OTHER_RANGE = re.compile(r"Requested (\d{1,19})\.\.(\d{1,19}), got (\d{1,19})\.\.(\d{1,19})")
_WHOLE_OBJECT = "the server answered a range request with the whole object or a page (status 200)"
# obstore's classes, where the text is not needed; the first match decides.
_CLASSES: tuple[tuple[type[Exception], type[SourceError], str], ...] = (
    (FileNotFoundError, errors.SourceNotFoundError, "not there"),
    (exceptions.UnauthenticatedError, errors.SourceAuthError, "access refused; see this host's credentials for it"),
    (exceptions.PermissionDeniedError, errors.SourceAuthError, "access refused; see this host's credentials for it"),
)
# Words of obstore's text, where there is nothing better; the first that occurs decides.
_WORDS: tuple[tuple[str, type[SourceError], str], ...] = (
    ("Received redirect without LOCATION", errors.SourceRegionError, "the bucket is in another region; set AWS_REGION"),
    ("NotPartial", errors.SourceNoRangesError, _WHOLE_OBJECT),
    ("StartTooLarge", errors.SourceTruncatedError, "the object ends before the range begins"),
    ("TimedOut", errors.SourceSlowError, "no answer within the time-out"),
    ("kind: Timeout", errors.SourceSlowError, "no answer within the time-out"),
    ("IncompleteBody", errors.SourceShortError, "the connection ended before the promised bytes had come"),
    ("UnexpectedEof", errors.SourceShortError, "the connection ended before the promised bytes had come"),
    ("ProxyAuthRequired", errors.SourceProxyError, "the proxy asks for credentials, or other ones"),
    ("TunnelUnsuccessful", errors.SourceUnreachableError, "the proxy does not connect to it"),
    ("dns error", errors.SourceUnreachableError, "its host name does not resolve"),
    ("tcp connect error", errors.SourceUnreachableError, "no connection"),
)
_OF_CONNECTION = ("ProxyAuthRequired", "TunnelUnsuccessful", "dns error", "tcp connect error")


class OtherRangeError(errors.SourceRangeError):
    """The storage sent another range. ``start``, ``stop``: which. Retry: for that one, where it is of use."""

    def __init__(self, what: str, why: str, *, start: int, stop: int) -> None:
        super().__init__(what, why)
        self.start, self.stop = start, stop


def from_obstore(error: Exception, what: str) -> SourceError:
    """Translate an exception of obstore about one object."""
    text = str(error)
    if (found := about_credentials(text, what)) is not None:
        return found
    if status := STATUS.search(text):
        return from_refusal(_document(text, status.end()), int(status[1]), what)
    for known, kind, why in _CLASSES:
        if isinstance(error, known):
            return kind(what, why)
    return _by_words(text, what)


def _document(text: str, start: int) -> str:
    end = text.rfind(DOCUMENT_ENDS)
    return text[start : end if end > start else len(text)]


def _by_words(text: str, what: str) -> SourceError:
    if found := _OTHER_RANGE.search(text):
        asked_start, asked_stop, start, stop = (int(part) for part in found.groups())
        said = f"asked for bytes {asked_start}-{asked_stop - 1}, was sent {start}-{stop - 1}"
        return OtherRangeError(what, said, start=start, stop=stop)
    if (refused := words_of_rustls(text.rpartition(DOCUMENT_ENDS)[2])) is not None:
        return errors.SourceTlsError(what, refused)
    for word, kind, why in _WORDS:
        if word in text:
            error = kind(what, why)
            error.is_page = why == _WHOLE_OBJECT
            error.is_of_connection = word in _OF_CONNECTION
            return error
    return errors.SourceUnreachableError(what, "the read failed")


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
