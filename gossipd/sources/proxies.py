"""Which proxy leads to a host: one rule for every read of storage, from this host's environment.

What lives here: the rule, by values. What does not: talking to a proxy (``first_request``).

Programs differ about these variables, so the rule is written down, and the libraries beside our own reader are told its
outcome (``obstore_clients``). The variable of the scheme (``HTTPS_PROXY``, ``HTTP_PROXY``) comes before ``ALL_PROXY``,
and lower case before upper case. An empty one counts as not set. ``NO_PROXY`` is a list by commas or blanks:

- ``*``: every host.
- ``example.org``, ``.example.org``, ``*.example.org``: this host and every host below it.
- ``10.0.0.7``, ``10.0.0.0/8``, ``10.*``, ``fd00::/8``: hosts that are written as addresses; no name is looked up for
  this.
- each of these with ``:PORT``: only at that port; an IPv6 address then stands in ``[]``.
- ``<local>``: every name without a dot, and this machine.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from gossipd.manifest.source_url import WEB_SCHEMES, SourceUrl
from gossipd.sources.location import ENDPOINT_VARIABLES, family

PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
"""In lower case."""
_USUAL_ENDPOINTS = {
    "s3": "https://s3.{region}.amazonaws.com",
    "gs": "https://storage.googleapis.com",
    "az": "https://{account}.blob.core.windows.net",
}
_METADATA = (
    "169.254.169.254", "169.254.170.2", "169.254.170.23", "fd00:ec2::254", "fd00:ec2::23", "metadata.google.internal",
    "metadata", "168.63.129.16",
)  # fmt: skip
_NO_PROFILE: Mapping[str, Any] = {}
_STARRED = re.compile(r"((?:[0-9]{1,3}\.){1,3})(?:\*(?:\.\*)*)?", re.ASCII)  # 10.*, 10.
_LOCAL = "<local>"  # of Windows, whose settings many environments copy
_PORT = re.compile(r"(?P<host>\[[^\]]*\](?:/[0-9]{1,3})?|[^:]*):(?P<port>[0-9]{1,5})")


class ProxyError(ValueError):
    """A variable whose value is no proxy that gossipd can use. Fault: this host's environment. The text names the
    variable, never its value, which may hold a password.
    """


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that is spoken to in clear, as nearly all are; TLS to the source goes through it end to end."""

    host: str
    port: int
    credentials: tuple[str, str] | None = field(default=None, repr=False)
    """Name and password."""
    variable: str = field(default="", compare=False)

    @property
    def shown(self) -> str:
        """The proxy's address for messages."""
        return f"the proxy {self.host}:{self.port} of {self.variable}"

    @property
    def authorization(self) -> str:
        """Value of ``Proxy-Authorization``, or empty."""
        if self.credentials is None:
            return ""
        return f"Basic {base64.b64encode(':'.join(self.credentials).encode()).decode()}"

    @property
    def url(self) -> str:
        """The proxy's address for other libraries, with the credentials."""
        pair = "" if self.credentials is None else ":".join(quote(one, safe="") for one in self.credentials) + "@"
        return f"http://{pair}{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def proxy_for(scheme: str, host: str, port: int, environment: Mapping[str, str]) -> Proxy | None:
    """The proxy for requests to ``host`` at ``port``, or None for a direct connection. Raises ProxyError."""
    name = next((one for one in _variables(scheme) if environment.get(one)), None)
    if name is None or _is_excluded(host, port, _first(environment, "no_proxy", "NO_PROXY")):
        return None
    return _parse(name, environment[name])


def storage_proxy(
    scheme: str, bucket: str, environment: Mapping[str, str], profile: Mapping[str, Any] = _NO_PROFILE
) -> Proxy | None:
    """The proxy for the servers that hold a bucket. ``profile``: what AWS' files say of ``region`` and ``endpoint``,
    where the environment says nothing. Raises ProxyError."""
    return proxy_for(*_storage(scheme, bucket, environment, profile), environment)


def answering_proxy(
    source: SourceUrl, environment: Mapping[str, str], *, is_connecting: bool = False
) -> Proxy | None:  # fmt: skip
    """The proxy that may itself have given an answer of the source's, as there is no TLS between. ``is_connecting``:
    that leads there, while nothing is connected. Raises ProxyError."""
    if source.scheme in WEB_SCHEMES:
        place = source.scheme, source.host, source.port
    elif family(source.scheme) in ENDPOINT_VARIABLES:
        place = _storage(source.scheme, source.host, environment, _NO_PROFILE)
    else:
        return None
    return proxy_for(*place, environment) if place[0] == "http" or is_connecting else None


def client_options(
    scheme: str, bucket: str, environment: Mapping[str, str], profile: Mapping[str, Any] = _NO_PROFILE
) -> dict[str, str]:
    """The rule for a client of obstore, which has its own otherwise: options for the storage of a bucket's scheme.
    Servers that hand out credentials to this machine are always asked directly. Raises ProxyError.
    """
    if not any(environment.get(name) for web in WEB_SCHEMES for name in _variables(web)):
        return {}
    proxy = storage_proxy(scheme, bucket, environment, profile)
    if proxy is None:  # obstore has no other way to say that none is used
        return {"proxy_url": "http://127.0.0.1:9", "proxy_excludes": "*,0.0.0.0/0,::/0"}
    return {"proxy_url": proxy.url, "proxy_excludes": ",".join(_METADATA)}


def token_service_proxies(region: str, environment: Mapping[str, str]) -> dict[str, str]:
    """``web_proxies`` for AWS' services that give tokens."""
    return web_proxies(environment.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.amazonaws.com", environment)


def web_proxies(url: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The rule for a request to ``url`` by a library with another: the proxy's address by scheme, empty for a direct
    connection, as to servers that hand out credentials to this machine. Raises ProxyError."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in _METADATA:
        return {}
    proxy = proxy_for(parts.scheme, host, parts.port or (80 if parts.scheme == "http" else 443), environment)
    return {} if proxy is None else dict.fromkeys(WEB_SCHEMES, proxy.url)


def _storage(
    scheme: str, bucket: str, environment: Mapping[str, str], profile: Mapping[str, Any]
) -> tuple[str, str, int]:
    """Scheme, host and port of the servers that hold a bucket."""
    kind = family(scheme)
    region = _first(environment, "AWS_REGION", "AWS_DEFAULT_REGION") or profile.get("region") or "us-east-1"
    account = _first(environment, "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT") or bucket
    text = _first(environment, *ENDPOINT_VARIABLES[kind]) or profile.get("endpoint")
    text = text or _USUAL_ENDPOINTS[kind].format(region=region, account=account)
    try:
        parts = urlsplit(text)
        return parts.scheme, parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:  # obstore will say so
        return "https", "", 443


def _variables(scheme: str) -> tuple[str, ...]:
    own = f"{scheme}_proxy"
    return (own, own.upper(), "all_proxy", "ALL_PROXY") if scheme in WEB_SCHEMES else ()


def _first(environment: Mapping[str, str], *names: str) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")


def _parse(name: str, value: str) -> Proxy:
    text = value.strip()
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port or 80
    except ValueError:
        raise ProxyError(f"{name} is not the address of a proxy, as http://HOST:PORT") from None
    if parts.scheme != "http":
        raise ProxyError(f"{name} names a proxy of another kind than http://HOST:PORT; gossipd uses no other")
    if not host or not text.isascii() or not text.isprintable():
        raise ProxyError(f"{name} is not the address of a proxy, as http://HOST:PORT")
    credentials = None
    if parts.username is not None:
        credentials = unquote(parts.username), unquote(parts.password or "")
    return Proxy(host, port, credentials, name)


def _is_excluded(host: str, port: int, excluded: str) -> bool:
    host = host.lower().rstrip(".")
    address = _address(host)
    for entry in re.split(r"[,;\s]+", excluded):
        entry = entry.removeprefix("http://").removeprefix("https://").rstrip("/")
        found = _PORT.fullmatch(entry)
        if found is not None:
            if int(found["port"]) != port:
                continue
            entry = found["host"]
        entry = entry.lower().replace("[", "").replace("]", "")  # also of [fd00::]/8
        if entry == _LOCAL and ("." not in host if address is None else address.is_loopback):
            return True
        if entry == "*" or (_covers_address(entry, address) if address is not None else _covers_name(entry, host)):
            return True
    return False


def _covers_name(entry: str, host: str) -> bool:
    name = entry.removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _covers_address(entry: str, address: IPv4Address | IPv6Address) -> bool:
    if found := _STARRED.fullmatch(entry):
        return str(address).startswith(found[1])
    try:
        network = ip_network(entry, strict=False)
    except ValueError:
        return False
    return network.version == address.version and address in network


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(host.strip("[]"))
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found
