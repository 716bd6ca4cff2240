"""Servers that follow a script instead of the protocol, and sockets that knock as strangers do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gossipd.identity.keys import SecretKey
from gossipd.runtime.buffer_pool import BufferPool
from gossipd.runtime.rate_limit import RateLimit
from gossipd.transfer.client import BulkClient
from gossipd.transfer.connections import Endpoint
from gossipd.transfer.credentials import TlsCredentials, tls_credentials
from gossipd.transfer.settings import BulkSettings, Encryption
from gossipd.wire.transfer import HELLO_BYTES, REQUEST_BYTES, Request
from tests.gossipd.transfer.pairs import CLIENT_KEY, CLUSTER_KEY, WAIT_S

STRANGER_KEY = SecretKey(b"\x09" * 32)
QUICK = BulkSettings(
    encryption=Encryption.NONE, handshake_s=0.3, first_request_s=0.3, stall_s=0.6, grace_s=0.6, silence_s=0.3
)

# Where another end than that by time is looked for: a slow machine is no verdict.
PATIENT = BulkSettings(
    encryption=Encryption.NONE, connect_s=WAIT_S, handshake_s=WAIT_S, handshake_crowded_s=WAIT_S,
    first_request_s=WAIT_S, stall_s=WAIT_S, grace_s=WAIT_S, silence_s=WAIT_S,
)  # fmt: skip


@contextmanager
def scripted_server(script: Callable[[socket.socket], None]) -> Iterator[Endpoint]:
    """Runs ``script`` on every connection, in a thread; the socket is closed when the script ends."""
    ended = threading.Event()
    threads: list[threading.Thread] = []
    socks: list[socket.socket] = []

    def serve(sock: socket.socket) -> None:
        with sock:
            try:
                script(sock)
            except OSError:
                return

    def accept() -> None:
        while not ended.is_set():
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            socks.append(sock)
            threads.append(threading.Thread(target=serve, args=(sock,)))
            threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield listener.getsockname()
        finally:
            ended.set()
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for sock in socks:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
            for thread in threads:
                thread.join()


def read_request(sock: socket.socket, *, with_hello: bool) -> Request:
    size = REQUEST_BYTES + (HELLO_BYTES if with_hello else 0)
    wire = sock.recv(size, socket.MSG_WAITALL)
    if len(wire) < size:
        raise ConnectionResetError
    return Request.from_wire(wire[-REQUEST_BYTES:])


@contextmanager
def client_of(
    settings: BulkSettings = PATIENT, *, credentials: TlsCredentials | None = None, pool: BufferPool | None = None
) -> Iterator[BulkClient]:
    """A client in clear whose tokens are worthless, or one with ``credentials``."""
    client = BulkClient(
        settings=settings,
        pool=pool or BufferPool(4 * 1024 * 1024),
        throttle=RateLimit(),
        credentials=credentials,
        get_token=None if credentials else lambda _node: bytes(32),
    )
    try:
        yield client
    finally:
        client.close()


def client_credentials(key: SecretKey = CLIENT_KEY, cluster_key: bytes = CLUSTER_KEY) -> TlsCredentials:
    return tls_credentials(key, [cluster_key])


def hangs_up(sock: socket.socket) -> bytes:
    """What the other side says before it ends the connection; a reset ends it too."""
    sock.settimeout(120)
    said = b""
    try:
        while piece := sock.recv(4096):
            said += piece
    except TimeoutError:
        raise
    except OSError:
        return said
    return said
