"""obstore's texts about credentials: none were found, or a service that gives them refused or did not answer.

What lives here: telling that it was not the storage that answered. What does not: obstore's texts about storage
(``obstore_errors``), and credentials that other libraries fetch (``aws_credentials``, ``google_credentials``).

A service that gives tokens has statuses and documents of its own, so that its 404 is no object that is not there. The
machine's own one, and the one whose address the environment gives (a pod's identity), means by any refusal that there
are none for this host.
"""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

from gossipd.sources import errors
from gossipd.sources.credential_places import none_found, where_looked
from gossipd.sources.errors import SourceError
from gossipd.sources.refusal_documents import from_refusal
from gossipd.sources.tls_failures import words_of_rustls

# obstore writes the address (percent-encoded, so without spaces) before this, and a reply's body only after it.
STATUS = re.compile(r"Server returned non-2xx status code: (\d{3})\b[^:\n]{0,64}:? ?")
DOCUMENT_ENDS = "\n\nDebug source:"
_ASKED_ADDRESS = re.compile(r"Error performing [A-Z]{3,8} (https?)://(\[[0-9a-f:]+\]|[^/:\s]+)(:\d+)?(/\S*)")
# Services of the machine itself that give credentials; where none answers well, there are none.
_MACHINE_SERVICES = frozenset(
    {"169.254.169.254", "169.254.170.2", "169.254.170.23", "metadata.google.internal", "metadata", "[fd00:ec2::254]"}
)
_MACHINE_PATHS = ("/latest/api/token", "/latest/meta-data/iam/", "/computeMetadata/", "/metadata/identity/")
# Reads of storage are no POST, so what is one asks a service for a token (AWS' STS, whose address obstore hides).
_TOKEN_SERVICES = ("Error performing token request", "Error performing POST ")
_OF_TOKENS = "the service that gives tokens for it"
# Variables with the address of a service of a pod's or a machine's identity, as obstore reads them.
_GIVEN = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "IDENTITY_ENDPOINT", "AZURE_IDENTITY_ENDPOINT", "AZURE_MSI_ENDPOINT")
# An answer of theirs that is no JSON; reads of storage take none.
_NO_TOKEN = re.compile(r'Error getting token response body|: Error\("[^"\n]{0,200}", line: \d+, column: \d+\)')
# What a service of tokens may say by its own code.
_TOLD: dict[type[SourceError], str] = {
    errors.SourceClockError: "finds this host's clock wrong; set it (timedatectl, chrony)",
    errors.SourceTokenExpiredError: "says that what this host showed has expired; renew it",
    errors.SourceKeyError: "does not know this host's key, or the secret is not the key's",
    errors.SourceBusyError: "asks to be asked less often",
    errors.SourceUnreachableError: "failed",
}
# obstore's words for a file with a token that it cannot read, and the variable that names it.
_TOKEN_FILES = (
    ("Failed to read token file '", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    ("Error reading federated token file", "AZURE_FEDERATED_TOKEN_FILE"),
)
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


def about_credentials(text: str, what: str) -> SourceError | None:
    """The error of an obstore text when it was not the storage that answered, but nothing or a service that gives
    credentials; None: it is about storage."""
    head, scheme = text.partition(DOCUMENT_ENDS)[0], what.partition("://")[0]
    for word, why in _UNPREPARED:
        if word in text and not STATUS.search(head):
            return errors.SourceNoCredentialsError(what, f"{why}; looked in {where_looked(scheme, os.environ)}")
    for word, variable in _TOKEN_FILES:
        if word in head and not STATUS.search(head):
            return errors.SourceNoCredentialsError(
                what, f"{variable} names a file that cannot be read: {_named(variable)}"
            )
    if _NO_TOKEN.search(text) and not STATUS.search(head):
        return errors.SourceUnreachableError(what, f"{_OF_TOKENS} gave none, but something else")
    asked = _ASKED_ADDRESS.search(head)
    if asked is not None and (asked[2] in _MACHINE_SERVICES or asked[4].startswith(_MACHINE_PATHS)):
        return errors.SourceNoCredentialsError(what, none_found(scheme, os.environ))
    is_given = asked is not None and _is_given(f"{asked[1]}://{asked[2]}{asked[3] or ''}{asked[4]}")
    return _of_service(text, head, what) if is_given or any(word in head for word in _TOKEN_SERVICES) else None


def _is_given(asked: str) -> bool:
    """Whether the environment names that address as one of a service that gives credentials."""
    return any(_place(asked) == _place(given) for variable in _GIVEN if (given := os.environ.get(variable)))


def _place(address: str) -> tuple[object, ...]:
    """Host, port and path; of what is no address nothing that equals another's."""
    try:
        parts = urlsplit(address)
        return parts.scheme, parts.hostname, parts.port, parts.path or "/"
    except ValueError:
        return (address,)


def _named(variable: str) -> str:
    """The file that it names, or that it names none any more."""
    return os.environ.get(variable) or "it is not set now"


def _of_service(text: str, head: str, what: str) -> SourceError:
    if status := STATUS.search(head):
        return _refused(head[status.end() :], int(status[1]), what)
    if "BadScheme" in text:
        return errors.SourceNoCredentialsError(what, f"the address of {_OF_TOKENS} must begin with https://")
    if (refused := words_of_rustls(text.rpartition(DOCUMENT_ENDS)[2])) is not None:
        return errors.SourceTlsError(what, f"{_OF_TOKENS}: {refused}")
    return errors.SourceUnreachableError(what, f"{_OF_TOKENS} did not answer")


def _refused(document: str, status: int, what: str) -> SourceError:
    """By the names in its document as far as they mean the same here; its other refusals give this host nothing."""
    told = from_refusal(document, status, what)
    kind = type(told)
    if kind in _TOLD:
        error = kind(what, f"{_OF_TOKENS} {_TOLD[kind]} (status {status})")
        error.is_too_many = told.is_too_many
        return error
    if kind is errors.SourceAuthError:
        return kind(what, f"{_OF_TOKENS} refuses them to this host (status {status})")
    looked = where_looked(what.partition("://")[0], os.environ)
    return errors.SourceNoCredentialsError(what, f"{_OF_TOKENS} gave none (status {status}); looked in {looked}")
