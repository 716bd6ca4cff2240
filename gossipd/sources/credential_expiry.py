"""Which credentials a storage is asked with, and when they end, as far as this host's environment tells.

What lives here: the first place that has credentials, in the order in which places are looked at, and the end that is
written there: of a token, of a signature in an address, of a profile, of a sign-on. What does not: the credentials
themselves (obstore, ``aws_credentials``, ``google_credentials``), which are never shown; whether storage takes them
(``trial_read``).

Static keys have no end, and what the machine's metadata gives is renewed by it: nothing is told of either. Nor is the
end of what a library makes from them, such as the token of an hour for an impersonated account: the library renews it.
"""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs

from msgspec import Struct

from gossipd.runtime.regular_file import read_regular
from gossipd.sources.credential_places import GCP_FILE, aws_files, expanded, has_boto, is_there, is_unsigned
from gossipd.sources.location import family

FILE_BYTES_MAX = 64 * 1024
LINKS_MAX = 5  # from one profile or account to the one that it comes from
SSO_CACHE = "~/.aws/sso/cache"
_PROFILE_ENDS = ("x_security_token_expires", "aws_expiration", "aws_session_expiration", "expiration")


class CredentialFound(Struct, frozen=True):
    """``place``: the variable, file or service. ``ends_s``: seconds since 1970; None where nothing says it.
    ``is_renewed``: another program replaces it before its end, as Kubernetes does. ``trouble``: why nothing can be read
    there; empty where it can."""

    place: str
    ends_s: float | None = None
    is_renewed: bool = False
    trouble: str = ""


def credential_found(scheme: str, environ: Mapping[str, str]) -> CredentialFound | None:
    """Of addresses of this scheme; None where the storage takes no credentials, or is asked without."""
    find = {"s3": _aws, "gs": _google, "az": _azure, "hf": _hub}.get(family(scheme))
    return None if find is None or (family(scheme) != "hf" and is_unsigned(scheme, environ)) else find(environ)


def _aws(environ: Mapping[str, str]) -> CredentialFound:
    if environ.get("AWS_ACCESS_KEY_ID") and environ.get("AWS_SECRET_ACCESS_KEY"):
        ends = environ.get("AWS_CREDENTIAL_EXPIRATION", "") if environ.get("AWS_SESSION_TOKEN") else ""
        return CredentialFound("AWS_ACCESS_KEY_ID", _moment(ends))
    if file := environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        return _token_file("AWS_WEB_IDENTITY_TOKEN_FILE", file)
    found = _aws_profile(environ) if has_boto() else None
    return found or CredentialFound("the container's or the instance's metadata", is_renewed=True)


def _aws_profile(environ: Mapping[str, str]) -> CredentialFound | None:
    """As botocore reads it: a role ends with the profile that it comes from, and a sign-on goes before keys."""
    files = {path: _profiles(path) for path in aws_files(environ)}
    name = first = environ.get("AWS_PROFILE", "default")
    place, settings = "", dict[str, str]()
    for _ in range(LINKS_MAX):
        found = [(path, one[kind]) for path, one in files.items() for kind in (name, f"profile {name}") if kind in one]
        if not found:
            break
        place = place or f"profile '{first}' of {found[0][0]}"
        settings = {key: value for _, section in reversed(found) for key, value in section.items()}
        if settings.get("source_profile", name) == name:
            break
        name = settings["source_profile"]
    if not place:
        return None
    if session := settings.get("sso_session") or settings.get("sso_start_url"):
        return _signed_on(place, session)
    if file := settings.get("web_identity_token_file"):
        return _token_file(place, file)
    return CredentialFound(place, _moment(next((settings[key] for key in _PROFILE_ENDS if key in settings), "")))


def _profiles(path: Path) -> Mapping[str, Mapping[str, str]]:
    if not (text := _text(path)):
        return {}
    import configparser  # only hosts with such files need it

    profiles = configparser.RawConfigParser()
    try:
        profiles.read_string(text)
    except configparser.Error:
        return {}
    return profiles


def _signed_on(place: str, session: str) -> CredentialFound:
    """The token that ``aws sso login`` keeps; botocore renews one that can be renewed when it is used."""
    name = hashlib.sha1(session.encode(), usedforsecurity=False).hexdigest()
    file = expanded(SSO_CACHE) / f"{name}.json"
    token = _entry(file)
    return CredentialFound(f"{place} ({file})", _moment(token.get("expiresAt")), is_renewed="refreshToken" in token)


def _google(environ: Mapping[str, str]) -> CredentialFound:
    for name in ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY"):
        if environ.get(name):
            return CredentialFound(name)
    if named := environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
        if trouble := _unreadable(named):
            return CredentialFound(f"GOOGLE_APPLICATION_CREDENTIALS ({named})", trouble=trouble)
        return _google_file("GOOGLE_APPLICATION_CREDENTIALS", Path(named))
    if is_there(usual := expanded(GCP_FILE)):
        return _google_file(GCP_FILE, usual)
    return CredentialFound("the instance's metadata", is_renewed=True)


def _google_file(place: str, path: Path) -> CredentialFound:
    """An impersonated account ends with the credentials that it comes from."""
    entry = _entry(path)
    for _ in range(LINKS_MAX):
        entry = _inside(entry, "source_credentials") or entry
    source = _inside(entry, "credential_source")
    if file := source.get("file"):
        text, form = _text(Path(str(file))), _inside(source, "format")
        if form.get("type") == "json":
            text = str(_parsed(text).get(str(form.get("subject_token_field_name"))))
        ends_s, trouble = _end_of_token(text), _unreadable(str(file))
        return CredentialFound(f"{place} ({file})", ends_s, is_renewed=True, trouble=trouble)
    return CredentialFound(place, _moment(entry.get("expiry")), is_renewed="refresh_token" in entry)


def _azure(environ: Mapping[str, str]) -> CredentialFound:
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
    ends_s, trouble = _end_of_token(_text(Path(file))), _unreadable(file)
    return CredentialFound(f"{variable} ({file})", ends_s, is_renewed=True, trouble=trouble)


def _unreadable(file: str) -> str:
    """Why the file cannot be read; empty when it can."""
    try:
        read_regular(Path(file), bytes_max=1)
    except (OSError, ValueError) as error:  # the second: no path at all
        return (getattr(error, "strerror", None) or "the file cannot be read").lower()
    return ""


def _entry(path: Path) -> Mapping[str, object]:
    return _parsed(_text(path))


def _parsed(text: str) -> Mapping[str, object]:
    """A JSON object; an empty one for anything else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _inside(entry: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = entry.get(name)
    return found if isinstance(found, dict) else {}


def _text(path: Path) -> str:
    try:
        return read_regular(path, bytes_max=FILE_BYTES_MAX).decode(errors="replace")
    except (OSError, ValueError):
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
        ends = _parsed(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)).decode()).get("exp")
    except ValueError:
        return None
    return float(ends) if isinstance(ends, int | float) and 0 <= ends < 1 << 40 else None


def _moment(text: object) -> float | None:
    """Of a date in the forms of these tools, older ones of which end in ``UTC``."""
    try:
        found = datetime.fromisoformat(str(text).strip().removesuffix("UTC"))
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
