"""Where the host of a source is: its addresses, or the proxy on the way to it.

What lives here: looking names up, and what this host's environment says of a proxy. What does not: connections
(``web_connection``), which only daemons that read a web source load, and which addresses may be read (``admission``).
"""

from __future__ import annotations

import os
import socket

from gossipd.manifest.source_url import WEB_SCHEMES, SourceUrl
from gossipd.sources import errors
from gossipd.sources.proxies import Proxy, ProxyError, proxy_for

Addresses = tuple[str, ...]
"""Addresses that were checked; empty for a host behind a proxy."""


def resolve(source: SourceUrl, what: str) -> Addresses:
    """The addresses of the source's host. Raises SourceUnreachableError."""
    try:
        found = socket.getaddrinfo(source.host, source.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise errors.SourceUnreachableError(what, f"host name '{source.host}' does not resolve") from None
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def proxy_of(source: SourceUrl, what: str) -> Proxy | None:
    """The proxy that this host's environment has for a web source. Raises SourceProxyError."""
    if source.scheme not in WEB_SCHEMES:
        return None
    try:
        return proxy_for(source.scheme, source.host, source.port, os.environ)
    except ProxyError as error:
        raise errors.SourceProxyError(what, f"{error}, in this daemon's environment") from None
