"""The address of external storage, as a manifest may name it.

What lives here: the syntax. What does not: whether this host may read it (``source_policy``), reading (``sources``).

A source is always a directory or prefix, with or without a ``/`` at its end: an object's address is the source's with
the file's path below it, also when there is only one file. User names, queries and fragments are refused, because all
hosts see a manifest and all three are where credentials hide (pre-signed links among them).

Hosts are taken in one spelling only. ``2130706433``, ``0x7f.1`` and ``127.1`` are 127.0.0.1 to some resolvers and names
to others, so a host that ends in a number must be a dotted quad (the WHATWG URL standard's test), without ``%``.

A repository of the Hugging Face Hub is ``hf://ORG/MODEL[@REVISION]``. Which hub is meant says the reading host's
environment.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import NoReturn
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from gossipd.manifest.errors import ManifestError, shown

URL_CHARS_MAX = 2048  # what browsers and proxies are known to carry
WEB_SCHEMES = ("http", "https")
HUB_SCHEME = "hf"
SCHEMES = (*WEB_SCHEMES, HUB_SCHEME, "s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "file")
"""The schemes that a host reads. A manifest may name others, as mirrors for newer hosts."""
_AZURE = ("az", "azure", "adl", "abfs", "abfss")
_PORTS = {"http": 80, "https": 443}
_NAMED = {"http": "a host", "https": "a host", HUB_SCHEME: "ORG/MODEL"}  # the rest name a bucket
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,15}", re.ASCII)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_REVISION = r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,198}[A-Za-z0-9._-])?"
_REPOSITORY = re.compile(rf"/([A-Za-z0-9][A-Za-z0-9._-]{{0,95}})(?:@({_REVISION}))?/?", re.ASCII)
_PRINTABLE = re.compile(r"[!-~]+", re.ASCII)


class SourceUrl(Struct, frozen=True):
    """A checked URL in parts. ``host`` is lower case (a bucket keeps its case); ``port`` is 0 without a port."""

    text: str
    scheme: str
    host: str
    port: int
    path: str
    """Percent-decoded, without ``.`` or ``..``; begins with ``/``, or is empty."""

    @property
    def bracketed(self) -> str:
        """The host as it stands before a port: an IPv6 address in ``[]``."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def shown(self) -> str:
        """Scheme, host and port, for messages: paths may be long, and may be confidential."""
        return f"{self.scheme}://{self.bracketed}" + (
            f":{self.port}" if self.port not in (0, _PORTS.get(self.scheme)) else ""
        )


class HubRepository(Struct, frozen=True):
    """A model on the hub at one revision: a branch, a tag, ``refs/pr/1``, or a commit."""

    name: str
    """``ORG/MODEL``."""
    revision: str = "main"


def hub_repository(url: SourceUrl) -> HubRepository:
    """The repository of a checked ``hf`` URL. Raises ManifestError ``E_SOURCE_FORBIDDEN``."""
    found = _REPOSITORY.fullmatch(url.path)
    if found is None:
        _refuse("source must be hf://ORG/MODEL or hf://ORG/MODEL@REVISION")
    return HubRepository(f"{url.host}/{found[1]}", found[2] or "main")


@lru_cache(maxsize=64)  # every read asks for the few sources of its manifest
def parse_source_url(text: str, field: str = "source") -> SourceUrl:
    """Raises ManifestError ``E_SOURCE_FORBIDDEN`` naming ``field``, never the whole URL."""
    if len(text) > URL_CHARS_MAX or not _PRINTABLE.fullmatch(text) or "\\" in text:
        _refuse(f"{field} must be at most {URL_CHARS_MAX} printable ASCII characters without '\\'")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        _refuse(f"{field} is not a URL")
    scheme = parts.scheme
    if not _SCHEME.fullmatch(scheme) or not text[len(scheme) :].startswith("://"):
        _refuse(f"{field} must begin with a scheme and '://', such as https://")
    if "@" in parts.netloc and scheme in _AZURE:
        _refuse(f"{field} must be {scheme}://CONTAINER/PREFIX; the account belongs into AZURE_STORAGE_ACCOUNT_NAME")
    if "@" in parts.netloc:
        _refuse(f"{field} must not carry a user name or password")
    if "?" in text or "#" in text:
        _refuse(f"{field} must not have a query or fragment; credentials belong into the seeds' environment")
    path = unquote(parts.path)
    if any(component in (".", "..") for component in path.split("/")) or not path.isprintable():
        _refuse(f"{field} must not have '.', '..' or control characters in its path")
    host = _host(scheme, parts.netloc, parts.hostname or "", field)
    if scheme == HUB_SCHEME and port is not None:
        _refuse(f"{field} must not have a port; which hub is meant says HF_ENDPOINT")
    return SourceUrl(text, scheme, host, port or _PORTS.get(scheme, 0), path)


def check_scheme(scheme: str, field: str) -> None:
    """For an operator's entry. Raises ManifestError ``E_SOURCE_FORBIDDEN`` for a scheme that no host can read."""
    if scheme not in SCHEMES:
        _refuse(f"{field} has scheme {shown(scheme)}; hosts read {', '.join(SCHEMES)}")


def _host(scheme: str, netloc: str, hostname: str, field: str) -> str:
    if scheme == "file":
        if netloc not in ("", "localhost"):
            _refuse(f"{field} must name no host after file://")
        return ""
    if not hostname or "%" in netloc:
        _refuse(f"{field} must name {_NAMED.get(scheme, 'a bucket')}, without '%'")
    if netloc.startswith("["):
        try:
            return str(ipaddress.IPv6Address(hostname))
        except ValueError:
            _refuse(f"{field} has a host that is not an IPv6 address")
    labels = hostname.split(".")
    if len(hostname) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        _refuse(f"{field} has host {shown(hostname)}, which is not a name or address")
    if _NUMBER.fullmatch(labels[-1]) and scheme in WEB_SCHEMES:
        try:
            return str(ipaddress.IPv4Address(hostname))
        except ValueError:
            _refuse(f"{field} has host {shown(hostname)}; write an address as four decimal numbers")
    return netloc.partition(":")[0] if scheme not in WEB_SCHEMES else hostname


def _refuse(message: str) -> NoReturn:
    raise ManifestError(message, code="E_SOURCE_FORBIDDEN")
