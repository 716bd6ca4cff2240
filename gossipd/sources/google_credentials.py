"""Google's application default credentials of the kinds that obstore does not read, through google-auth (extra
``gossipd[gcp]``): workload identity federation (``external_account``) and impersonation.

What lives here: when google-auth is asked, and its failures in our words. What does not: service accounts, users and
the metadata service, which obstore reads by itself.

As in ``aws_credentials``, a reading thread has the token fetched before each request. A token is renewed some four
minutes before its end (google-auth's own margin); the file is read again after a
failure.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gossipd.runtime.regular_file import read_regular
from gossipd.sources import errors
from gossipd.sources.authorities import authorities
from gossipd.sources.credential_look import CredentialLook
from gossipd.sources.credential_places import file_stamp, google_file, is_unsigned, silence, where_looked
from gossipd.sources.pieces import UNREADABLE
from gossipd.sources.proxies import ProxyError, web_proxies
from gossipd.sources.refusal_documents import from_refusal
from gossipd.sources.tls_failures import tls_failure_in

if TYPE_CHECKING:
    from obstore.store import GCSCredential

SCOPE = "https://www.googleapis.com/auth/devstorage.read_only"
KINDS = ("external_account", "external_account_authorized_user", "impersonated_service_account")
FILE_BYTES_MAX = 64 * 1024
ASKED_AGAIN_S = 60  # obstore keeps a token until five minutes before its end, so it asks here before each request
_OWN_VARIABLES = (
    "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_BEARER_TOKEN",
)  # fmt: skip


def kind_of_file(environ: Mapping[str, str]) -> str | None:
    """The ``type`` in the file of application default credentials, or None."""
    try:
        entry = json.loads(read_regular(google_file(environ), bytes_max=FILE_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return None
    kind = entry.get("type") if isinstance(entry, dict) else None
    return kind if isinstance(kind, str) else None


# What a token service may say of this host; its own text is not shown.
_REFUSED = 400
_TOLD: dict[type[errors.SourceError], str] = {
    errors.SourceClockError: "finds this host's clock wrong; set it (timedatectl, chrony)",
    errors.SourceKeyError: "does not know the key of these application default credentials; make a new one",
    errors.SourceBusyError: "asks to be asked less often",
    errors.SourceTokenExpiredError: "refused these application default credentials; renew them",
}


class GoogleCredentials:
    """One host's token for Google's storage, shared by all reading threads."""

    def __init__(self) -> None:
        self._look: CredentialLook[str] = CredentialLook(self._renewed, "the application default credentials")
        self._source: Any = None  # google-auth's Credentials
        self._stamp: tuple[int, ...] = ()

    def options(self, scheme: str, what: str) -> dict[str, Any]:
        """obstore's options for a client of this scheme, with a token ready; empty where obstore looks by itself.
        Raises SourceNoCredentialsError, SourceTokenExpiredError, SourceUnreachableError.
        """
        if scheme != "gs" or any(os.environ.get(name) for name in _OWN_VARIABLES) or is_unsigned("gs", os.environ):
            return {}
        kind = kind_of_file(os.environ)
        if kind not in KINDS:
            return {}
        if find_spec("google") is None or find_spec("google.auth") is None:
            raise errors.SourceNoCredentialsError(
                what, f"credentials of type {kind} need 'pip install gossipd[gcp]'; "
                f"looked in {where_looked('gs', os.environ)}"
            )  # fmt: skip
        stamp = file_stamp(google_file(os.environ))
        if stamp != self._stamp:
            self._stamp, self._source = stamp, None
        self._fresh(what)
        return {"credential_provider": self}

    def __call__(self) -> GCSCredential:
        """The token for obstore, which asks in one of its threads."""
        return {"token": self._fresh("gs"), "expires_at": datetime.now(UTC) + timedelta(seconds=ASKED_AGAIN_S)}

    def close(self) -> None:
        """Nobody waits for a token any longer."""
        self._look.close()

    def _fresh(self, what: str) -> str:
        source = self._source
        return str(source.token) if source is not None and source.valid else self._look.get(what)

    def _renewed(self, what: str) -> str:
        import google.auth
        from google.auth import exceptions

        try:
            if self._source is None:
                silence("google", "urllib3")
                # With scopes it would ask another service for the project's name, which nobody needs here.
                found: Any = google.auth.default()[0]
                self._source = found.with_scopes([SCOPE])
            if not self._source.valid:
                self._source.refresh(_request())
            return str(self._source.token)
        except exceptions.TransportError as error:
            service = "the service that gives tokens"
            silent = errors.SourceUnreachableError(what, f"{service} did not answer")
            raise tls_failure_in(error, what, service) or silent from None
        except ProxyError as error:
            raise errors.SourceProxyError(what, f"{error}, in this daemon's environment") from None
        except (exceptions.RefreshError, exceptions.OAuthError) as error:
            self._source = None
            kind = type(from_refusal(str(error), _REFUSED, what))
            kind = kind if kind in _TOLD else errors.SourceTokenExpiredError
            raise kind(what, f"Google's token service {_TOLD[kind]}") from None
        except (exceptions.GoogleAuthError, *UNREADABLE, OSError):
            self._source = None
            looked = where_looked("gs", os.environ)
            raise errors.SourceNoCredentialsError(
                what, f"the application default credentials cannot be used; looked in {looked}"
            ) from None


def _request() -> Any:
    """google-auth's way to ask, with proxies and authorities by the rules for all reads: ``requests`` has others."""
    import requests
    from google.auth.transport.requests import Request

    class _RuledSession(requests.Session):
        def merge_environment_settings(self, url: Any, *given: Any) -> Any:
            ruled = {"proxies": web_proxies(url, os.environ), "verify": authorities() or True}
            return {**super().merge_environment_settings(url, *given), **ruled}

    return Request(_RuledSession())
