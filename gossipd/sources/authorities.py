"""Whose signature a server's certificate needs: one rule for storage, its hubs, and the services that give tokens.

What lives here: where the authorities' certificates lie. What does not: the check itself (``ssl``, or the library of a
service). ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` count, then what the system has; the variables of single libraries
(``REQUESTS_CA_BUNDLE``, ``CURL_CA_BUNDLE``, ``AWS_CA_BUNDLE``) do not, or one storage would be trusted by its token
service and by its reader differently. Rejected: the collection that ``requests`` brings, because the authority of an
operator's own network stands in the system's.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager

_OTHERS = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE")


def authorities() -> str | None:
    """The path of a file or directory; None where the system has neither."""
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath


@contextmanager
def authorities_in(environment: MutableMapping[str, str]) -> Iterator[None]:
    """For a library that finds its authorities by variables alone: for a while they all say the same. One thread uses
    it at a time.
    """
    path = authorities()
    kept = {name: environment.pop(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", *_OTHERS) if name in environment}
    said: dict[str, str] = {}
    if path is not None:
        said = {"SSL_CERT_DIR" if os.path.isdir(path) else "SSL_CERT_FILE": path, "REQUESTS_CA_BUNDLE": path}
    environment.update(said)
    try:
        yield
    finally:
        for name in said:
            environment.pop(name, None)
        environment.update(kept)
