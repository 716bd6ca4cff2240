"""The bare reference: sendfile on one side; receive, BLAKE3 and pwrite on the other, in threads, and nothing else.

No requests, no checks of who it is, no books; one thread per connection at each end, each with its share of the
chunks. Written data is synced in the background on the store's own window. Under TLS the same contexts, suite, and
piece size as gossipd's, with chunks read into a buffer and encrypted from it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Iterator

from blake3 import blake3

from gossipd.store.settings import StoreSettings
from tests.bench.pair_systems.endpoint import Plan, Usage, await_word, credentials, digests, main, say

PIECE_BYTES = 256 * 1024


@contextlib.contextmanager
def send(plan: Plan) -> Iterator[tuple[int, ...]]:
    listener = socket.create_server(("127.0.0.1", 0))
    context = credentials(is_sender=True).server if plan.encryption == "tls" else None

    def serve(sock: socket.socket, share: int) -> None:
        descriptor = os.open(plan.source, os.O_RDONLY)
        encrypted = context.wrap_socket(sock, server_side=True) if context else None
        sock = encrypted or sock
        assert sock.recv(1) == b"g"
        buffer = memoryview(bytearray(PIECE_BYTES))
        for chunk in range(share, plan.chunk_count, plan.connections):
            offset, left = chunk * plan.chunk_bytes, plan.length(chunk)
            while left:
                if encrypted:
                    sent = os.preadv(descriptor, [buffer[: min(left, PIECE_BYTES)]], offset)
                    encrypted.sendall(buffer[:sent])
                else:
                    sent = os.sendfile(sock.fileno(), descriptor, offset, left)
                offset, left = offset + sent, left - sent

    def accept() -> None:
        for share in range(plan.connections):
            sock, _ = listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=serve, args=(sock, share), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield (int(listener.getsockname()[1]),)
    listener.close()


def receive(plan: Plan) -> dict[str, float]:
    known = digests(plan)
    target = os.open(os.path.join(plan.target, "received"), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    os.posix_fallocate(target, 0, plan.nbytes)
    socks: list[socket.socket] = []
    for _ in range(plan.connections):
        sock = socket.create_connection(("127.0.0.1", plan.ports[0]))
        socks.append(credentials(is_sender=False).client.wrap_socket(sock) if plan.encryption == "tls" else sock)
    done = threading.Event()
    wrong: list[int] = []

    def pull(share: int) -> None:
        sock = socks[share]
        sock.sendall(b"g")
        buffer = memoryview(bytearray(plan.chunk_bytes))
        flags = 0 if isinstance(sock, ssl.SSLSocket) else socket.MSG_WAITALL
        for chunk in range(share, plan.chunk_count, plan.connections):
            body = buffer[: plan.length(chunk)]
            got = 0
            while got < len(body):
                got += sock.recv_into(body[got:], 0, flags)
            if blake3(body).digest() != known[chunk]:
                wrong.append(chunk)
            os.pwrite(target, body, chunk * plan.chunk_bytes)

    def sync() -> None:
        while not done.wait(StoreSettings().window_s):
            os.fdatasync(target)

    threads = [threading.Thread(target=pull, args=(share,)) for share in range(plan.connections)]
    syncing = threading.Thread(target=sync)
    say(ready=True)
    await_word("go")
    usage = Usage.mark()
    syncing.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report = usage.report(chunks_wrong=len(wrong))
    done.set()
    syncing.join()
    os.close(target)
    return report


if __name__ == "__main__":
    main(send, receive)
