"""TLS contexts of the bulk path, from the node's key and the cluster's keys.

What lives here: OpenSSL's settings. What does not: the content of certificates (``identity.certificates``), and whether
the peer is a member (checked per request).

TLS 1.3 only; both sides show a certificate; chains lead to the authority of any accepted cluster key. Host names are
not checked, because a peer is a node id. No session tickets: connections are kept, and a ticket would admit a peer
after a rotation of the cluster key. OpenSSL picks the cipher suite; Python 3.11 cannot for TLS 1.3.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence

from msgspec import Struct

from gossipd.identity.certificates import authority_pem, node_pem
from gossipd.identity.keys import SecretKey


class TlsCredentials(Struct, frozen=True):
    """The contexts of a server and a client; replaced together when the cluster key is rotated."""

    server: ssl.SSLContext
    client: ssl.SSLContext


def tls_credentials(secret: SecretKey, cluster_keys: Sequence[bytes]) -> TlsCredentials:
    """Contexts for the node of ``secret``: shows a leaf of the first cluster key, accepts leaves of all of them."""
    leaf = node_pem(secret, cluster_keys[0])
    authorities = authority_pem(cluster_keys)
    return TlsCredentials(
        server=_context(ssl.PROTOCOL_TLS_SERVER, leaf, authorities),
        client=_context(ssl.PROTOCOL_TLS_CLIENT, leaf, authorities),
    )


def _context(protocol: ssl._SSLMethod, leaf: str, authorities: str) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=authorities)
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    _load_leaf(context, leaf)
    return context


def _load_leaf(context: ssl.SSLContext, leaf: str) -> None:
    """Python loads a key only from a path; this path names memory that no other process can open."""
    descriptor = os.memfd_create("gossipd-leaf", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, leaf.encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
