"""Credentials from AWS' profiles, ``~/.aws`` and SSO sessions, through botocore (extra ``gossipd[aws]``).

What lives here: when botocore is asked, and its failures in our words. What does not: keys in the environment, web
identity and the machine's own metadata service where botocore is absent, which obstore reads by itself.

A reading thread has the credentials fetched before each request, so that a failure has its cause and its object; the
event loop never does. botocore renews what expires ten minutes or more before its end. Files are read
again when they change, as tools such as ``aws sso login`` and cron jobs rewrite them under a running daemon. An answer
serves for a minute, in which a changed file is not looked at.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from gossipd.sources import errors
from gossipd.sources.authorities import authorities
from gossipd.sources.credential_look import CredentialLook
from gossipd.sources.credential_places import (
    aws_files,
    file_stamp,
    has_boto,
    is_unsigned,
    none_found,
    silence,
    where_looked,
)
from gossipd.sources.location import endpoint, family
from gossipd.sources.pieces import UNREADABLE
from gossipd.sources.proxies import ProxyError, token_service_proxies
from gossipd.sources.refusal_documents import from_refusal
from gossipd.sources.tls_failures import tls_failure_in

if TYPE_CHECKING:
    from obstore.store import S3Credential

FRESH_S = 60.0
_CONNECT_S, _READ_S = 2.0, 5.0  # of a token service, which is asked twice; botocore's own: 60 s
# What obstore reads itself, and prefers.
_OWN_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_WEB_IDENTITY_TOKEN_FILE")
# Names of botocore's exceptions: an SSO session or a token that is over; the last of what ends before it is given.
_ENDED = ("SSOTokenLoadError", "UnauthorizedSSOTokenError", "TokenRetrievalError", "SSOError", "RuntimeError")
# botocore's names of what failed; of any other the profile is named.
_GIVERS = {
    "container-role": "the service of the container's credentials",
    "iam-role": "the instance's metadata",
    "custom-process": "the program (credential_process) of profile '{}'",
}
# What a token service may say of this host, by its own code.
_TOLD: dict[type[errors.SourceError], str] = {
    errors.SourceClockError: "finds this host's clock wrong; set it (timedatectl, chrony)",
    errors.SourceTokenExpiredError: "says that the profile's own credentials have expired; renew them",
    errors.SourceKeyError: "does not know the profile's key, or the secret is not the key's",
    errors.SourceBusyError: "asks to be asked less often",
}


def wants_boto(environ: Mapping[str, str]) -> bool:
    """Whether S3's credentials are to come from botocore's places."""
    is_own = any(environ.get(name) for name in _OWN_VARIABLES) or is_unsigned("s3", environ)
    return not is_own and has_boto()


class AwsCredentials:
    """One host's credentials for S3, shared by all reading threads."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._look: CredentialLook[S3Credential] = CredentialLook(self._renew, "the credentials of AWS' profile")
        self._source: Any = None  # botocore's Credentials
        self._config: dict[str, str] = {}
        self._stamps: tuple[tuple[int, ...], ...] = ()
        self._credential: S3Credential | None = None
        self._fresh_until_s = 0.0

    def options(self, scheme: str, what: str) -> dict[str, Any]:
        """obstore's options for a client of this scheme, with credentials ready: a provider, and the profile's region
        and endpoint. Empty where obstore looks by itself. Raises SourceNoCredentialsError,
        SourceTokenExpiredError, SourceAuthError, SourceUnreachableError.
        """
        if family(scheme) != "s3" or not wants_boto(os.environ):
            return {}
        self._fresh(what)
        return {"credential_provider": self, **self._config}

    def __call__(self) -> S3Credential:
        """The credentials for obstore, which asks in one of its threads."""
        return self._fresh("s3")

    def close(self) -> None:
        """Nobody waits for credentials any longer."""
        self._look.close()

    def _fresh(self, what: str) -> S3Credential:
        credential = self._credential
        return credential if credential is not None and self._clock() < self._fresh_until_s else self._look.get(what)

    def _renew(self, what: str) -> S3Credential:
        self._credential = None
        self._credential = credential = self._renewed(what)
        self._fresh_until_s = self._clock() + FRESH_S
        return credential

    def _renewed(self, what: str) -> S3Credential:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            stamps = tuple(file_stamp(path) for path in aws_files(os.environ))
            if self._source is None or stamps != self._stamps:
                self._source, self._config = _look()
                self._stamps = stamps
            if self._source is None:
                raise errors.SourceNoCredentialsError(what, none_found("s3", os.environ))
            frozen = self._source.get_frozen_credentials()
        except ProxyError as error:
            raise errors.SourceProxyError(what, f"{error}, in this daemon's environment") from None
        except (BotoCoreError, ClientError, *UNREADABLE, OSError) as error:
            self._source = None
            service = "the service that gives tokens"
            raise tls_failure_in(error, what, service) or _in_our_words(error, what) from None
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            # Soon: obstore keeps what lasts longer than five minutes, and asks here again otherwise.
            "expires_at": datetime.now(UTC) + timedelta(seconds=FRESH_S),
        }


def _look() -> tuple[Any, dict[str, str]]:
    """Credentials as botocore finds them, or None, and the profile's settings."""
    from botocore.config import Config
    from botocore.session import get_session

    silence("botocore", "urllib3")
    session = get_session()
    config: dict[str, str] = {}
    region = session.get_config_variable("region")
    session.set_config_variable("ca_bundle", authorities())
    proxies = token_service_proxies(region or "us-east-1", os.environ)
    session.set_default_client_config(
        Config(proxies=proxies, connect_timeout=_CONNECT_S, read_timeout=_READ_S, retries={"total_max_attempts": 2})
    )
    _ask_machine_directly(session)
    if region and not os.environ.get("AWS_REGION"):
        config["region"] = region
    named = session.get_scoped_config().get("endpoint_url")
    if isinstance(named, str) and not endpoint("s3"):
        config["endpoint"] = named
    return session.get_credentials(), config


def _ask_machine_directly(session: Any) -> None:
    """The machine's own service of credentials is behind no proxy; botocore would ask it through ``HTTP_PROXY``."""
    from botocore.httpsession import URLLib3Session

    with suppress(Exception):  # botocore's own parts: where they have changed, NO_PROXY is left to the operator
        fetcher = session.get_component("credential_provider").get_provider("iam-role")._role_fetcher
        fetcher._session = URLLib3Session(timeout=fetcher._timeout, proxies={})


def _in_our_words(error: Exception, what: str) -> errors.SourceError:
    """botocore's text is not shown: it quotes answers of token services, and commands of ``credential_process``."""
    name = type(error).__name__
    profile = os.environ.get("AWS_PROFILE", "default")
    if name in _ENDED:
        words = f"the SSO session of profile '{profile}' is over; run 'aws sso login' as this daemon's user"
        if name == "RuntimeError":
            words = f"what profile '{profile}' gives has ended already, also when it is asked for again"
        return errors.SourceTokenExpiredError(what, words)
    if name == "ProfileNotFound":
        looked = where_looked("s3", os.environ)
        return errors.SourceNoCredentialsError(
            what, f"there is no profile '{profile}' (AWS_PROFILE); looked in {looked}"
        )
    if name == "NoRegionError":
        return errors.SourceNoCredentialsError(
            what, f"the service that gives tokens to profile '{profile}' needs a region; set AWS_REGION"
        )
    if name in ("ConnectTimeoutError", "ReadTimeoutError", "EndpointConnectionError", "ProxyConnectionError"):
        return errors.SourceUnreachableError(what, f"the service that gives tokens to profile '{profile}' is silent")
    if told := getattr(error, "response", {}).get("Error"):  # a ClientError
        return _from_token_service(told, profile, what)
    giver = _GIVERS.get(getattr(error, "kwargs", {}).get("provider", ""), "profile '{}'").format(profile)
    return errors.SourceNoCredentialsError(
        what, f"{giver} gives no credentials ({name}); looked in {where_looked('s3', os.environ)}"
    )


def _from_token_service(told: Mapping[str, str], profile: str, what: str) -> errors.SourceError:
    document = f"<Code>{told.get('Code', '')}</Code><Message>{told.get('Message', '')}</Message>"
    kind = type(from_refusal(document, 403, what))
    if kind in _TOLD:
        return kind(what, f"the service that gives tokens to profile '{profile}' {_TOLD[kind]}")
    return errors.SourceAuthError(what, f"profile '{profile}' was refused the role or the token that it names")
