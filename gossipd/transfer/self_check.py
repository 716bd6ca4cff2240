"""Connects to our own bulk port without credentials; the daemon does not run if it is served.

What lives here: three attempts. What does not: the same check of the control channel.

* unencrypted, with a well-formed request and a hello with an invalid token: must receive no byte;
* a certificate of another cluster key's authority: must receive no reply;
* under TLS, a certificate of our own authority for a key that is no member: must receive REFUSED and no more.

No answer in time is no verdict.
"""

from __future__ import annotations

import secrets
import socket
import ssl
from collections.abc import Sequence

from gossipd.core.errors import CheckUnansweredError
from gossipd.core.ids import DeploymentId
from gossipd.identity.keys import KEY_BYTES, SecretKey
from gossipd.transfer.connections import Endpoint
from gossipd.transfer.credentials import tls_credentials
from gossipd.transfer.errors import SecurityCheckError
from gossipd.transfer.settings import Encryption
from gossipd.wire.transfer import REPLY_BYTES, TOKEN_BYTES, BulkVerb, HeadError, Reply, Request, Status, hello

# Above the server's handshake deadline of 2 s, at which it cuts unauthenticated connections.
ANSWER_S = 3.0


def self_check(endpoint: Endpoint, encryption: Encryption, cluster_keys: Sequence[bytes]) -> None:
    """Check that ``endpoint``, our own, refuses unauthenticated clients.

    Raises: SecurityCheckError: it does not. CheckUnansweredError: it does not answer at all; retry. OSError.
    """
    try:
        _self_check(endpoint, encryption, cluster_keys)
    except TimeoutError:
        raise CheckUnansweredError(f"the bulk port {endpoint} neither answers nor hangs up") from None


def _self_check(endpoint: Endpoint, encryption: Encryption, cluster_keys: Sequence[bytes]) -> None:
    request = Request(BulkVerb.MANIFEST, DeploymentId(secrets.token_bytes(32)), 0, 1).to_wire()
    with socket.create_connection(endpoint, timeout=ANSWER_S) as plain:
        if _ask(plain, hello(secrets.token_bytes(TOKEN_BYTES)) + request):
            raise SecurityCheckError(f"the bulk port {endpoint} answers a plain connection without a valid token")
    if encryption is Encryption.NONE:
        return
    if _ask_encrypted(endpoint, secrets.token_bytes(KEY_BYTES), request):
        raise SecurityCheckError(f"the bulk port {endpoint} answers a certificate of another cluster")
    answer = _ask_encrypted(endpoint, cluster_keys[0], request)
    if not answer:
        raise CheckUnansweredError(f"the bulk port {endpoint} hangs up before it has answered")
    if not _is_refusal(answer):
        raise SecurityCheckError(f"the bulk port {endpoint} does not refuse a node that is no member")


def _ask_encrypted(endpoint: Endpoint, cluster_key: bytes, request: bytes) -> bytes:
    context = tls_credentials(SecretKey(secrets.token_bytes(KEY_BYTES)), [cluster_key]).client
    # This client accepts any server: refusing is the server's duty.
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(endpoint, timeout=ANSWER_S) as sock:
        try:
            encrypted = context.wrap_socket(sock)
        except TimeoutError:
            raise
        except OSError:
            return b""
        with encrypted:
            return _ask(encrypted, request)


def _ask(sock: socket.socket, question: bytes) -> bytes:
    """The answer; empty if the server hangs up. Raises TimeoutError if it does neither."""
    answer = b""
    try:
        sock.sendall(question)
        while len(answer) < REPLY_BYTES:
            piece = sock.recv(REPLY_BYTES - len(answer))
            if not piece:
                return answer
            answer += piece
    except TimeoutError:
        raise
    except OSError:
        return answer
    return answer


def _is_refusal(answer: bytes) -> bool:
    try:
        return Reply.from_wire(answer).status is Status.REFUSED
    except HeadError:
        return False
