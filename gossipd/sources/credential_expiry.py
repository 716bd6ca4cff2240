"""Which credentials a storage is asked with, and when they end, as far as this host's environment tells.

What lives here: the first place that has some, in the order of looking, and the end that stands in it: of a token, of
a signature in an address, of a profile. What does not: the credentials themselves (obstore, ``aws_credentials``,
``google_credentials``), which are never shown; whether storage takes them (``trial_read``).

An end is not told where nothing says it: static keys, and what the machine's metadata gives and renews.
"""

from __future__ import annotations

import configparser
import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs

from gossipd.sources.credential_places import GCP_FILE, aws_files, has_boto
from gossipd.sources.location import family

FILE_BYTES_MAX = 64 * 1024
_PROFILE_ENDS = ("x_security_token_expires", "aws_expiration", "aws_session_expiration", "expiration")


@dataclass(frozen=True, slots=True)
class CredentialFound:
    """``place``: the variable, file or service. ``ends_s``: seconds since 1970; None where nothing says it.
    ``is_renewed``: another program replaces it before its end, as Kubernetes does."""

    place: str
    ends_s: float | None = None
    is_renewed: bool = False


def credential_found(scheme: str, environ: Mapping[str, str]) -> CredentialFound | None:
    """Of addresses of this scheme; None where the storage takes no credentials, or is asked without."""
    find = {"s3": _aws, "gs": _google, "az": _azure, "hf": _hub}.get(family(scheme))
    return None if find is None else find(environ)


def _aws(environ: Mapping[str, str]) -> CredentialFound | None:
    if environ.get("AWS_SKIP_SIGNATURE"):
        return None
    if environ.get("AWS_ACCESS_KEY_ID") and environ.get("AWS_SECRET_ACCESS_KEY"):
        ends = environ.get("AWS_CREDENTIAL_EXPIRATION", "") if environ.get("AWS_SESSION_TOKEN") else ""
        return CredentialFound("AWS_ACCESS_KEY_ID", _moment(ends))
    if file := environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        return _token_file("AWS_WEB_IDENTITY_TOKEN_FILE", file)
    name = environ.get("AWS_PROFILE", "default")
    for path in aws_files(environ) if has_boto() else ():
        profiles = configparser.RawConfigParser()
        try:
            profiles.read_string(_text(path))
        except configparser.Error:
            continue
        for section in (name, f"profile {name}"):
            if profiles.has_section(section):
                ends = next(
                    (profiles.get(section, key) for key in _PROFILE_ENDS if profiles.has_option(section, key)), ""
                )
                return CredentialFound(f"profile '{name}' of {path}", _moment(ends))
    return CredentialFound("the container's or the instance's metadata", is_renewed=True)


def _google(environ: Mapping[str, str]) -> CredentialFound | None:
    if environ.get("GOOGLE_SKIP_SIGNATURE"):
        return None
    names = ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_APPLICATION_CREDENTIALS")
    for name in names:
        if environ.get(name):
            return CredentialFound(name)
    if Path(GCP_FILE).expanduser().exists():
        return CredentialFound(GCP_FILE)
    return CredentialFound("the instance's metadata", is_renewed=True)


def _azure(environ: Mapping[str, str]) -> CredentialFound | None:
    if environ.get("AZURE_SKIP_SIGNATURE"):
        return None
    ends: dict[str, Callable[[str], float | None]] = {
        "AZURE_STORAGE_ACCOUNT_KEY": lambda _: None, "AZURE_STORAGE_SAS_TOKEN": _end_of_signature,
        "AZURE_STORAGE_TOKEN": _end_of_token, "AZURE_CLIENT_SECRET": lambda _: None,
    }  # fmt: skip
    for name, end_of in ends.items():
        if value := environ.get(name):
            return CredentialFound(name, end_of(value))
    if file := environ.get("AZURE_FEDERATED_TOKEN_FILE"):
        return _token_file("AZURE_FEDERATED_TOKEN_FILE", file)
    return CredentialFound("the machine's managed identity", is_renewed=True)


def _hub(environ: Mapping[str, str]) -> CredentialFound | None:
    return CredentialFound("HF_TOKEN") if environ.get("HF_TOKEN") else None


def _token_file(variable: str, file: str) -> CredentialFound:
    return CredentialFound(f"{variable} ({file})", _end_of_token(_text(Path(file))), is_renewed=True)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX).decode(errors="replace")
    except OSError:
        return ""


def _end_of_signature(query: str) -> float | None:
    """``se`` of a shared access signature."""
    return _moment(parse_qs(query.lstrip("?")).get("se", [""])[0])


def _end_of_token(token: str) -> float | None:
    """``exp`` of a JSON web token; its signature is not for us to check."""
    parts = token.strip().split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return None
    ends = claims.get("exp") if isinstance(claims, dict) else None
    return float(ends) if isinstance(ends, int | float) and 0 <= ends < 1 << 40 else None


def _moment(text: str) -> float | None:
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
