"""A member of the cluster that answers every request for a chunk with a damaged one.

What lives here: its side of a bulk connection, in clear or under TLS with a valid certificate. What does not: the
kinds of damage (``cluster.corruption``), and accepting connections.
"""

from __future__ import annotations

import socket
import threading
from random import Random

from gossipd.identity.keys import SecretKey
from gossipd.transfer.credentials import tls_credentials
from gossipd.transfer.settings import Encryption
from gossipd.wire.transfer import HELLO_BYTES, REQUEST_BYTES, BulkVerb, Reply, Request, Status
from tests.chaos.cluster.corruption import Damage, Wrong, damaged
from tests.gossipd.store.small_models import Model

FREE_SLOTS = 8


class Liar:
    """``script`` runs in a thread for each connection; ``said`` has what was last done to each chunk."""

    def __init__(
        self, model: Model, secret: SecretKey, cluster_key: bytes, encryption: Encryption, random: Random
    ) -> None:
        self._chunks = [bytes(body) for body in model.chunks]
        self._random = random
        self._context = tls_credentials(secret, [cluster_key]).server if encryption is Encryption.TLS else None
        self._lock = threading.Lock()
        self.said: dict[int, Damage] = {}

    def script(self, sock: socket.socket) -> None:
        """One connection, until it is over. Raises OSError."""
        if self._context is not None:
            sock = self._context.wrap_socket(sock, server_side=True)
        with sock:
            if self._context is None:
                _exactly(sock, HELLO_BYTES)
            while True:
                request = Request.from_wire(_exactly(sock, REQUEST_BYTES))
                if request.verb is BulkVerb.COMPLAIN:
                    sock.sendall(Reply(Status.OK, request.chunk, 0, FREE_SLOTS).to_wire())
                    continue
                wrong = self._wrong(request.chunk)
                sock.sendall(wrong.wire)
                if wrong.ends:
                    return

    def _wrong(self, chunk: int) -> Wrong:
        body = self._chunks[chunk]
        others = [other for at, other in enumerate(self._chunks) if at != chunk and len(other) == len(body)]
        with self._lock:
            # The last chunk of a file may be alone with its length: nothing can be taken for it.
            kinds = [kind for kind in Damage if others or kind not in (Damage.SWAPPED, Damage.TORN)]
            damage = self.said[chunk] = self._random.choice(kinds)
            other = self._random.choice(others) if others else body
            return damaged(damage, self._random, Reply(Status.OK, chunk, len(body), FREE_SLOTS), body, other)


def _exactly(sock: socket.socket, count: int) -> bytes:
    body = b""
    while len(body) < count:
        piece = sock.recv(count - len(body))
        if not piece:
            raise ConnectionResetError
        body += piece
    return body
