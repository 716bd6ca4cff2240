"""Where credentials for a storage are looked for, in words.

What lives here: the list for messages, made from names of variables and files only, never from their content; and
keeping the libraries that look out of the logs. What does not: looking (obstore itself, ``aws_credentials``,
``google_credentials``).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from gossipd.sources.location import family

AWS_FILES = (("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"), ("AWS_CONFIG_FILE", "~/.aws/config"))
_FALSE = ("", "0", "false", "off", "no", "n")
GCP_FILE = "~/.config/gcloud/application_default_credentials.json"


def where_looked(scheme: str, environ: Mapping[str, str]) -> str:
    """The places for addresses of this scheme, in the order of looking."""
    places = {"gs": _google, "az": _azure}.get(family(scheme), _aws)
    return ", ".join(places(environ))


def none_found(scheme: str, environ: Mapping[str, str]) -> str:
    """The sentence for a host without credentials, with both cures."""
    looked = where_looked(scheme, environ)
    return f"no credentials found; looked in {looked}. If it is public, set {_skip_variable(scheme)}=true"


def is_unsigned(scheme: str, environ: Mapping[str, str]) -> bool:
    """Whether the environment says that reads show no credentials. A word that obstore does not know counts as such:
    obstore says so."""
    return environ.get(_skip_variable(scheme), "").lower() not in _FALSE


def _skip_variable(scheme: str) -> str:
    return {"gs": "GOOGLE_SKIP_SIGNATURE", "az": "AZURE_SKIP_SIGNATURE"}.get(family(scheme), "AWS_SKIP_SIGNATURE")


def file_stamp(path: str | Path) -> tuple[int, ...]:
    """What differs when another file is in its place, or it was written again; of one that is not there nothing."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def aws_files(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The files of AWS' profiles."""
    return tuple(expanded(environ.get(variable, usual)) for variable, usual in AWS_FILES)


def expanded(path: str) -> Path:
    """Without ``~``; as it stands where nothing tells the home of that user, which a daemon need not have."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def google_file(environ: Mapping[str, str]) -> Path:
    """The file of application default credentials."""
    return expanded(environ.get("GOOGLE_APPLICATION_CREDENTIALS") or GCP_FILE)


def google_key_file(environ: Mapping[str, str]) -> Path:
    """The file that obstore reads: of a service account, or the former."""
    named = environ.get("GOOGLE_SERVICE_ACCOUNT") or environ.get("GOOGLE_SERVICE_ACCOUNT_PATH")
    return Path(named) if named else google_file(environ)


def is_there(path: Path) -> bool:
    """Whether this user sees the file."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def has_boto() -> bool:
    """Whether the extra ``gossipd[aws]`` is installed."""
    from importlib.util import find_spec

    return find_spec("botocore") is not None


def silence(*loggers: str) -> None:
    """No lines from these libraries: their warnings carry what token services and credential commands said, and
    tracebacks. What a person needs is in our errors."""
    for name in loggers:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _aws(environ: Mapping[str, str]) -> list[str]:
    places = ["AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", "AWS_WEB_IDENTITY_TOKEN_FILE"]
    profile = environ.get("AWS_PROFILE", "default")
    files = " and ".join(environ.get(variable, usual) for variable, usual in AWS_FILES)
    if has_boto():
        places.append(f"profile '{profile}' of {files}")
    elif any(map(is_there, aws_files(environ))) or "AWS_PROFILE" in environ:
        places.append(f"not in {files}, which need 'pip install gossipd[aws]'")
    return [*places, "the container's and the instance's metadata"]


def _google(environ: Mapping[str, str]) -> list[str]:
    named = environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    return [
        "GOOGLE_SERVICE_ACCOUNT, GOOGLE_SERVICE_ACCOUNT_KEY",
        f"GOOGLE_APPLICATION_CREDENTIALS ({named})" if named else "GOOGLE_APPLICATION_CREDENTIALS",
        GCP_FILE,
        "the instance's metadata",
    ]


def _azure(environ: Mapping[str, str]) -> list[str]:
    account = environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    return [
        f"AZURE_STORAGE_ACCOUNT_NAME ({account})" if account else "AZURE_STORAGE_ACCOUNT_NAME",
        "AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, AZURE_STORAGE_TOKEN",
        "AZURE_CLIENT_ID with AZURE_CLIENT_SECRET or AZURE_FEDERATED_TOKEN_FILE",
        "the machine's managed identity",
    ]
