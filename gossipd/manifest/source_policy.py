"""Which external storage this host may read: the setting ``sources.allow``.

What lives here: the setting's syntax and the decision. What does not: looking names up. The source reader resolves a
host, asks ``check_addresses`` about every address, and connects to one of those only, so that an attacker gains nothing
by changing a name between look-up and connection. Redirects are not followed, but for those of a hub that the list
names: it leads to signed addresses on other hosts, which may be local only where an entry names them.

Each entry of the list is one of::

    https                          every host, over this scheme
    https://models.example.org     this host at the scheme's usual port
    https://*.example.org          every host below example.org
    http://10.0.0.7:8000           this address and port; ``:*`` allows every port
    s3://bucket/prefix             this bucket, only below prefix
    hf://ORG/MODEL                 this repository of the hub, all revisions; ``hf://ORG`` all of ORG
    file:///srv/models             files below this directory, and where links in it lead; ``file`` alone is refused, as
                                   it would be every file

Loopback, link-local, multicast, unspecified, reserved and cloud metadata addresses are read only where an entry
names that very address (or ``localhost``, for that name): an entry with a scheme or a host name never covers them,
whatever the name resolves to. IPv6 forms that carry an IPv4 address are judged as that address. Private networks
(10/8 and the like) are where storage lives, and need no entry of their own.

For schemes such as ``s3`` the host is a bucket. This host's configuration names the servers; they are not checked here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import ClassVar, TypeAlias

from msgspec import Struct

from gossipd.core.errors import ExitCode, LocalError
from gossipd.manifest.errors import ManifestError, shown
from gossipd.manifest.source_url import HUB_SCHEME, WEB_SCHEMES, SourceUrl, check_scheme, parse_source_url

RULES_MAX = 256
ANY_PORT = -1
_Address: TypeAlias = IPv4Address | IPv6Address

# Addresses at which clouds hand out credentials, beside the link-local 169.254.169.254.
_METADATA = frozenset(
    ip_address(text)
    for text in (
        "fd00:ec2::254",  # AWS
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure
        "192.0.0.192",  # Oracle
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052
_V4_COMPATIBLE = IPv6Network("::/96")  # RFC 4291, deprecated


class SourceRuleError(LocalError):
    """An entry of ``sources.allow`` without a meaning. Fault: the configuration. Retry: corrected."""

    code = "E_CONFIG"
    exit_code: ClassVar[ExitCode] = ExitCode.USAGE


class _Rule(Struct, frozen=True):
    scheme: str
    host: str = "*"
    port: int = ANY_PORT
    path: str = "/"

    def covers(self, url: SourceUrl) -> bool:
        return (
            self.scheme == url.scheme
            and (self.host in ("*", url.host) or (self.host.startswith("*.") and url.host.endswith(self.host[1:])))
            and self.port in (ANY_PORT, url.port)
            and (self.path == "/" or f"{self._path(url)}/".startswith(self.path))
        )

    def _path(self, url: SourceUrl) -> str:
        """An entry for a repository of the hub covers all its revisions, unless it names one."""
        path = url.path.partition("@")[0] if url.scheme == HUB_SCHEME and "@" not in self.path else url.path
        return path.rstrip("/")

    def names(self, address: _Address, url: SourceUrl) -> bool:
        """Whether this rule lists the very address, for the scheme and port of ``url``."""
        if self.scheme != url.scheme or self.port not in (ANY_PORT, url.port):
            return False
        if self.host == "localhost":
            return url.host == "localhost" and address.is_loopback
        return self.host == str(address)


class SourcePolicy(Struct, frozen=True):
    """The rules, made by ``parse``."""

    rules: tuple[_Rule, ...]

    @classmethod
    def parse(cls, entries: Sequence[str]) -> SourcePolicy:
        """Raises SourceRuleError naming every wrong entry."""
        if len(entries) > RULES_MAX:
            raise SourceRuleError(f"sources.allow has {len(entries)} entries, at most {RULES_MAX}")
        rules, wrong = [], []
        for index, entry in enumerate(entries):
            try:
                rules.append(_parse_rule(entry))
            except ManifestError as error:
                wrong.append(f"sources.allow[{index}] {shown(entry)}: {error}")
        if wrong:
            raise SourceRuleError("; ".join(wrong))
        return cls(tuple(rules))

    def check(self, text: str, field: str = "source") -> SourceUrl:
        """The URL, if an entry covers it, and its address if it has one. Raises ManifestError
        ``E_SOURCE_FORBIDDEN``."""
        url = parse_source_url(text, field)
        self.check_url(url, field)
        return url

    def check_url(self, url: SourceUrl, field: str = "source") -> None:
        """As ``check``, for a URL that is parsed already: asked before every request. Raises ManifestError
        ``E_SOURCE_FORBIDDEN``."""
        if not any(rule.covers(url) for rule in self.rules):
            raise ManifestError(f"{field} {url.shown} is not among sources.allow", code="E_SOURCE_FORBIDDEN")
        literal = _literal(url)
        if literal is not None:
            self.check_addresses(url, [str(literal)])

    def check_hub(self, url: SourceUrl, endpoint: SourceUrl) -> None:
        """As ``check``, for an ``hf`` URL, which an entry for its hub's own address covers, too."""
        if not any(rule.covers(url) or rule.covers(endpoint) for rule in self.rules):
            raise ManifestError(
                f"source {url.shown} is not among sources.allow, nor is its hub {endpoint.shown}",
                code="E_SOURCE_FORBIDDEN",
            )

    def check_addresses(self, url: SourceUrl, addresses: Iterable[str]) -> None:
        """Check all addresses to which the host of an ``http`` or ``https`` URL resolved. Raises ManifestError
        ``E_SOURCE_FORBIDDEN`` when one of them needs an entry of its own and has none."""
        for text in addresses:
            address = _plain(ip_address(text.partition("%")[0]))
            if _is_special(address) and not any(rule.names(address, url) for rule in self.rules):
                raise ManifestError(
                    f"source {url.shown} is at {address}, a local or metadata address that sources.allow does not name",
                    code="E_SOURCE_FORBIDDEN",
                )


def _parse_rule(entry: str) -> _Rule:
    if entry == "file":
        raise ManifestError("name a directory, as in file:///srv/models", code="E_SOURCE_FORBIDDEN")
    if re.fullmatch(r"[a-z][a-z0-9+.-]{0,15}", entry):
        check_scheme(entry, "the entry")
        return _Rule(entry)
    # A star is no part of a host name, so the entry is read as if the star were one.
    wild = entry.replace("://*.", "://", 1)
    any_port = re.sub(r":\*(?=/|$)", "", wild)
    url = parse_source_url(any_port, "the entry")
    check_scheme(url.scheme, "the entry")
    if any_port != wild and url.scheme not in WEB_SCHEMES:
        raise ManifestError("only http and https have ports", code="E_SOURCE_FORBIDDEN")
    host = f"*.{url.host}" if wild != entry else url.host
    if wild != entry and (url.scheme not in WEB_SCHEMES or _literal(url) is not None):
        raise ManifestError("'*.' stands before a host name", code="E_SOURCE_FORBIDDEN")
    port = ANY_PORT if any_port != wild or url.scheme not in WEB_SCHEMES else url.port
    return _Rule(url.scheme, host, port, f"{url.path.rstrip('/')}/")


def _literal(url: SourceUrl) -> _Address | None:
    if url.scheme not in WEB_SCHEMES:
        return None
    try:
        return ip_address(url.host)
    except ValueError:
        return None


def _plain(address: _Address) -> _Address:
    """The IPv4 address inside an IPv6 one, where there is one."""
    if isinstance(address, IPv4Address):
        return address
    inside = address.ipv4_mapped or address.sixtofour
    if inside is not None:
        return inside
    if address in _NAT64 or (address in _V4_COMPATIBLE and int(address) > 1):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    if address.teredo is not None:
        return address.teredo[1]
    return address


def _is_special(address: _Address) -> bool:
    return (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address.is_reserved
        or address in _METADATA
        or (isinstance(address, IPv4Address) and int(address) >> 24 == 0)
    )
