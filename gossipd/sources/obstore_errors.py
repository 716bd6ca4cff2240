"""The translation of obstore's exceptions into SourceErrors.

What lives here: reading obstore's texts. What does not: the documents that these quote (``refusal_documents``).

Only obstore's text tells the status number, the storage's document and the kind of a connection failure; the tests in
``tests/gossipd/sources`` detect changes of that text. Every call that may end in obstore's code is inside
``in_our_words``, so that no answer looks like our bug.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore import exceptions

from gossipd.sources import errors
from gossipd.sources.credential_places import none_found, where_looked
from gossipd.sources.errors import SourceError
from gossipd.sources.refusal_documents import from_refusal
from gossipd.sources.tls_failures import words_of_rustls

# obstore writes the address (percent-encoded, so without spaces) before this, and a reply's body only after it.
_STATUS = re.compile(r"Server returned non-2xx status code: (\d{3})\b[^:\n]{0,64}:? ?")
_DOCUMENT_ENDS = "\n\nDebug source:"
_OTHER_RANGE = re.compile(r"Requested (\d{1,19})\.\.(\d{1,19}), got (\d{1,19})\.\.(\d{1,19})")
_ASKED_ADDRESS = re.compile(r"Error performing [A-Z]{3,8} https?://(\[[0-9a-f:]+\]|[^/:\s]+)(?::\d+)?(/\S*)")
# Services of the machine itself that give credentials; where none answers well, there are none.
_MACHINE_SERVICES = frozenset(
    {"169.254.169.254", "169.254.170.2", "169.254.170.23", "metadata.google.internal", "metadata", "[fd00:ec2::254]"}
)
_MACHINE_PATHS = ("/latest/api/token", "/latest/meta-data/iam/", "/computeMetadata/", "/metadata/identity/")
# Reads of storage are no POST, so what is one asks a service for a token (AWS' STS, whose address obstore hides).
_TOKEN_SERVICES = ("Error performing token request", "Error performing POST ")
_OF_TOKENS = "the service that gives tokens for it"
# obstore's words for a file with a token that it cannot read, and the variable that names it.
_TOKEN_FILES = (
    ("Failed to read token file '", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    ("Error reading federated token file", "AZURE_FEDERATED_TOKEN_FILE"),
)
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
# Before anything was sent: words of obstore's text, and what is missing then.
_UNPREPARED: tuple[tuple[str, str], ...] = (
    ("Account must be specified", "AZURE_STORAGE_ACCOUNT_NAME is not set"),
    ("MissingSecretAccessKey", "AWS_SECRET_ACCESS_KEY is not set beside AWS_ACCESS_KEY_ID"),
    ("MissingAccessKeyId", "AWS_ACCESS_KEY_ID is not set beside AWS_SECRET_ACCESS_KEY"),
    ("ServiceAccountPathAndKeyProvided", "both GOOGLE_SERVICE_ACCOUNT and GOOGLE_SERVICE_ACCOUNT_KEY are set"),
    ("OpenCredentials", "the file of GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT cannot be read"),
    ("DecodeCredentials", "the Google credentials file is none that obstore reads (service_account, authorized_user)"),
    ("External AWS credential provider", "the credentials could not be renewed"),
)


class OtherRangeError(errors.SourceRangeError):
    """The storage sent another range. ``start``, ``stop``: which. Retry: for that one, where it is of use."""

    def __init__(self, what: str, why: str, *, start: int, stop: int) -> None:
        super().__init__(what, why)
        self.start, self.stop = start, stop


def from_obstore(error: Exception, what: str) -> SourceError:
    """Translate an exception of obstore about one object."""
    text = str(error)
    if (found := _about_credentials(text, what)) is not None:
        return found
    if status := _STATUS.search(text):
        return from_refusal(_document(text, status.end()), int(status[1]), what)
    for known, kind, why in _CLASSES:
        if isinstance(error, known):
            return kind(what, why)
    return _by_words(text, what)


def _about_credentials(text: str, what: str) -> SourceError | None:
    """The error when it was not the storage that answered, but nothing or a service that gives credentials."""
    head, scheme = text.partition(_DOCUMENT_ENDS)[0], what.partition("://")[0]
    for word, why in _UNPREPARED:
        if word in text and not _STATUS.search(head):
            return errors.SourceNoCredentialsError(what, f"{why}; looked in {where_looked(scheme, os.environ)}")
    asked = _ASKED_ADDRESS.search(head)
    if asked is not None and (asked[1] in _MACHINE_SERVICES or asked[2].startswith(_MACHINE_PATHS)):
        return errors.SourceNoCredentialsError(what, none_found(scheme, os.environ))
    for word, variable in _TOKEN_FILES:
        if word in head and not _STATUS.search(head):
            return errors.SourceNoCredentialsError(
                what, f"{variable} names a file that cannot be read: {_named(variable)}"
            )
    return _of_token_service(text, head, what) if any(word in head for word in _TOKEN_SERVICES) else None


def _named(variable: str) -> str:
    """The file that it names, or that it names none any more."""
    return os.environ.get(variable) or "it is not set now"


def _of_token_service(text: str, head: str, what: str) -> SourceError:
    if status := _STATUS.search(head):
        return from_refusal(head[status.end() :], int(status[1]), what)
    if "BadScheme" in text:
        return errors.SourceNoCredentialsError(what, f"the address of {_OF_TOKENS} must begin with https://")
    if (refused := words_of_rustls(text.rpartition(_DOCUMENT_ENDS)[2])) is not None:
        return errors.SourceTlsError(what, f"{_OF_TOKENS}: {refused}")
    return errors.SourceUnreachableError(what, f"{_OF_TOKENS} did not answer")


def _document(text: str, start: int) -> str:
    end = text.rfind(_DOCUMENT_ENDS)
    return text[start : end if end > start else len(text)]


def _by_words(text: str, what: str) -> SourceError:
    if found := _OTHER_RANGE.search(text):
        asked_start, asked_stop, start, stop = (int(part) for part in found.groups())
        said = f"asked for bytes {asked_start}-{asked_stop - 1}, was sent {start}-{stop - 1}"
        return OtherRangeError(what, said, start=start, stop=stop)
    if (refused := words_of_rustls(text.rpartition(_DOCUMENT_ENDS)[2])) is not None:
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
