"""Failures of external storage, one class for each.

What lives here: the classes, and what a bare HTTP status means. What does not: what a storage says in the document of
its refusal (``refusal_documents``), obstore's exceptions (``obstore_errors``), repeats (``host_pace``, ``reader``).

Every error names the object, or the bucket when the bucket is at fault, by its address without userinfo, query or
fragment. From the server it quotes only a status number, a region, the plain name of an error, two version tags and
lengths, because an error page may hold anything.
"""

from __future__ import annotations

from collections.abc import Container
from typing import ClassVar, TypeVar

from gossipd.core.errors import ExitCode, RemoteError
from gossipd.core.events import FailReason


class SourceError(RemoteError):
    """A read from external storage failed. Fault: the source or the way to it. State: nothing was written. ``again``:
    how many times the same request may be repeated at once. ``reason``: for the planner. ``heals``: whether time alone
    may cure it; otherwise a person has to act, as the sentence says. ``is_permanent``: only another object, server or
    manifest helps, and the sentence says which. It is asked for again all the same, as that may come.
    """

    code = "E_SOURCE"
    exit_code = ExitCode.SOURCE_UNREACHABLE
    again: ClassVar[int] = 0
    reason: ClassVar[FailReason] = FailReason.SOURCE
    heals: ClassVar[bool] = False
    is_permanent: ClassVar[bool] = False
    cure: ClassVar[str] = ""
    """What helps, where trying again does not."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}" + (f"; cure: {self.cure}" if self.is_permanent else ""))
        self.what = what
        self.path = ""
        """Of the file in the manifest, where the error is about one; set by the reader."""
        self.said = ""
        """A word of the hub for what is wrong (``X-Error-Code``); compared, never shown."""
        self.is_page = False
        """Something came in place of the range, which may be a page."""
        self.is_of_connection = False
        """None came about to a bucket's servers; a proxy that leads there may be why."""
        self.retry_after_s: float | None = None
        """For how long the server asks to be left alone."""
        self.is_too_many = False
        """Status 429: the number of requests in a time, not of those at once, is too high."""

    def about(self, what: str) -> SourceError:
        """The same of another object that is read."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__, what=what)
        other.args = (str(self.args[0]).replace(f"{self.what}: ", f"{what}: ", 1),)
        return other

    def came_through(self, way: str) -> None:
        """Name what stands between, which may be to blame."""
        self.args = (f"{self}; it came through {way}",)


_Kept = TypeVar("_Kept", bound=BaseException)


def without_frames(error: _Kept) -> _Kept:
    """The error, to be kept: its frames would keep the buffers of the read that it has ended."""
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)


class SourceShortError(SourceError):
    """Fewer bytes came than promised. Retry: yes."""

    code = "E_SOURCE_SHORT"
    again = 2
    heals = True


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


class SourceWholeOnlyError(SourceError):
    """The server has no ranges, and the object is too large to be taken whole for each of them. Retry: as a read that
    goes through the object from its beginning."""

    code = "E_SOURCE_WHOLE_ONLY"
    reason = FailReason.WHOLE_ONLY
    heals = True
    version = ""
    """Of the object, as it is shown."""


class SourceEncodingError(SourceError):
    """The server compressed or otherwise encoded the bytes. Retry: elsewhere."""

    code = "E_SOURCE_ENCODING"
    is_permanent = True
    cure = "switch compression off for these files"


class SourceHashError(SourceError):
    """Bytes of this object do not match the manifest's digest. Retry: once here, then elsewhere."""

    code = "E_SOURCE_HASH"
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


class SourceNoCredentialsError(SourceAuthError):
    """This host has no credentials for the storage. Fault: this host's environment. Retry: after the remedy."""

    code = "E_SOURCE_NO_CREDENTIALS"


class SourceKeyError(SourceAuthError):
    """The storage does not know the key, or the secret is not the key's. Fault: this host's environment. Retry: after
    the remedy."""

    code = "E_SOURCE_KEY"


class SourceTokenExpiredError(SourceAuthError):
    """A session token is past its time. Fault: this host's environment. Retry: when it has been renewed; files of
    credentials are read again by themselves."""

    code = "E_SOURCE_TOKEN_EXPIRED"


class SourceClockError(SourceAuthError):
    """The storage finds this host's clock wrong. Fault: this host. Retry: when the clock has been set, by itself."""

    code = "E_SOURCE_CLOCK"
    heals = True


class SourceRegionError(SourceAuthError):
    """The bucket is in another region than was asked. Fault: this host's environment. Retry: after the remedy."""

    code = "E_SOURCE_REGION"

    @property
    def is_named(self) -> bool:
        """Whether the sentence says which region."""
        return "AWS_REGION=" in str(self)


class SourcePayerError(SourceAuthError):
    """The bucket is read only by those who say that they pay. Fault: this host's environment. Retry: after the
    remedy."""

    code = "E_SOURCE_PAYER"


class SourceAccountError(SourceAuthError):
    """The account behind the bucket is closed, unpaid or not set up. Fault: the account. Retry: after the remedy."""

    code = "E_SOURCE_ACCOUNT"


class SourceEncryptedError(SourceAuthError):
    """The storage may not, or cannot, decrypt the object. Fault: its key's settings. Retry: after the remedy."""

    code = "E_SOURCE_ENCRYPTED"


class SourceNotFoundError(SourceError):
    """The object or its bucket does not exist. Retry: elsewhere."""

    code = "E_SOURCE_NOT_FOUND"
    is_permanent = True
    cure = SourceTruncatedError.cure


class SourceNoBucketError(SourceNotFoundError):
    """The bucket or container does not exist. Fault: the manifest, or the endpoint in this host's environment. Retry:
    elsewhere."""

    code = "E_SOURCE_NO_BUCKET"
    is_permanent = False


class SourceArchivedError(SourceNotFoundError):
    """The object lies in an archive and must be restored before it is read. Fault: its storage class. Retry: after
    that, or elsewhere."""

    code = "E_SOURCE_ARCHIVED"
    is_permanent = False


class SourceRedirectError(SourceError):
    """The server redirects, which is followed for hubs only. ``target``: the address that it named, which may be as
    good as a password. Retry: elsewhere.
    """

    code = "E_SOURCE_REDIRECT"
    target = ""


class SourceForbiddenError(SourceError):
    """``sources.allow`` does not list the scheme and host, or it must list the host's address. Retry: no."""

    code = "E_SOURCE_FORBIDDEN"


class SourceBudgetError(SourceError):
    """The cluster has read as much of the deployment as the operator allows. Fault: nobody. Retry: when the budget is
    raised."""

    code = "E_SOURCE_BUDGET"


class SourceSlowError(SourceError):
    """No byte within the read time-out, or below the least rate. Retry: once here, on another connection."""

    code = "E_SOURCE_SLOW"
    again = 1
    heals = True
    reason = FailReason.SLOW


class SourceBusyError(SourceError):
    """429 or 503: the source asks us to slow down. Retry: later, at the time that it names."""

    code = "E_SOURCE_BUSY"
    again = 8
    heals = True


class SourceUnreachableError(SourceError):
    """No connection, a broken one, or a server error. Retry: later."""

    code = "E_SOURCE_UNREACHABLE"
    again = 3
    heals = True


class SourceTlsError(SourceError):
    """The server's certificate is not accepted here, or it does not set TLS up. Fault: the server's certificate, the
    address in the manifest, or this host's authorities. Retry: after the remedy.
    """

    code = "E_SOURCE_TLS"


class SourceProxyError(SourceError):
    """The proxy of this host's environment is none that gossipd can use, or refuses this host. Retry: after the
    remedy.
    """

    code = "E_SOURCE_PROXY"


class SourceCancelledError(SourceError):
    """We stopped the read. Fault: nobody."""

    code = "E_CANCELLED"
    reason = FailReason.CANCELLED


TOO_MANY = 429
PROXY_CREDENTIALS = 407
# The first matching row decides.
_STATUSES: tuple[tuple[Container[int], type[SourceError], str], ...] = (
    ((429, 498, 503, 509, 529), SourceBusyError, "the server is busy"),  # Swift's 498; 509, 529: too much was asked
    ((PROXY_CREDENTIALS,), SourceProxyError, "the proxy of this host's environment asks for other credentials"),
    ((401, 403), SourceAuthError, "access refused; see this host's credentials for it"),
    ((511,), SourceProxyError, "the network asks to sign in"),
    ((404, 410), SourceNotFoundError, "not there"),
    ((416,), SourceTruncatedError, "the object ends before the range begins"),
    ((301, 302, 303, 307, 308), SourceRedirectError, "the server redirects; name the final address as the source"),
    ((202,), SourceUnreachableError, "the server has it not ready yet, or asks a browser to prove itself"),
    ((402,), SourceAccountError, "the server asks to be paid; the account's owner must act"),
    ((408, 421, 425), SourceUnreachableError, "the server asks for the request once more"),  # as their RFCs say
    ((451,), SourceAuthError, "the server withholds it for legal reasons"),
    (range(200, 300), SourceError, "the server answered without the object"),
    (range(500, 600), SourceUnreachableError, "the server failed"),
)


def from_status(status: int, what: str) -> SourceError:
    """The error for an HTTP status that is neither 200 nor 206."""
    for statuses, kind, why in _STATUSES:
        if status in statuses:
            error = kind(what, f"{why} (status {status})")
            error.is_too_many = status == TOO_MANY
            return error
    return SourceError(what, f"the server refused the request (status {status})")
