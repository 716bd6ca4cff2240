"""A TCP proxy in front of one host's bulk port that damages what the host sends.

``python -m tests.chaos.cluster.proxy --listen A:P --to A:P --mode clear|tls --share S --seed N --log FILE``. In clear
it reads the protocol and damages chunks, or manifests, as ``corruption`` says; under TLS it sees records only and
flips a bit now and then. Every damage is a JSON line in the log, written before the bytes go out, with the receiver's
address.

Threads and blocking sockets: a connection is two copies, one each way. When either side ends, both are closed.
"""

from __future__ import annotations

import argparse
import json
import socket
import struct
import sys
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from random import Random

from gossipd.wire.transfer import HELLO_BYTES, REPLY_BYTES, REQUEST_BYTES, BulkVerb, HeadError, Reply, Request, Status
from tests.chaos.cluster.corruption import Damage, damaged

_PIECE_BYTES = 65_536
TLS_BYTES_BETWEEN = 4 * 1024 * 1024  # with a share of 1: so many bytes on the wire for one flipped bit
MANIFEST_SHARE_MAX = 0.5  # at first there is one holder: if that one never told it right, nobody could have it
_HANDSHAKE_BYTES = 4096  # left alone: what is damaged is a body


class Proxy:
    """Accepts until the process ends."""

    def __init__(
        self, listen: tuple[str, int], to: tuple[str, int], *, is_clear: bool, share: float, seed: int, log: Path
    ) -> None:
        self._to = to
        self._is_clear = is_clear
        self._share = share
        self._rng = Random(seed)
        self._lock = threading.Lock()
        self._log = log.open("a", encoding="ascii")
        self._bodies: dict[int, tuple[int, bytes]] = {}
        self._listener = socket.create_server(listen, backlog=128)

    def run(self) -> None:
        while True:
            client, address = self._listener.accept()
            threading.Thread(target=self._connection, args=(client, str(address[0])), daemon=True).start()

    def _connection(self, client: socket.socket, address: str) -> None:
        try:
            server = socket.create_connection(self._to, timeout=2.0)
        except OSError:  # the daemon is down: a reset, as its host would send
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            return
        server.settimeout(None)
        for sock in (client, server):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asked: deque[Request] = deque()
        up = threading.Thread(target=_until_the_end, args=(self._requests, client, server, asked), daemon=True)
        up.start()
        answer = self._replies if self._is_clear else self._records
        _until_the_end(answer, server, client, asked, address)
        up.join()
        client.close()
        server.close()

    def _requests(self, client: socket.socket, server: socket.socket, asked: deque[Request]) -> None:
        if not self._is_clear:
            while piece := client.recv(_PIECE_BYTES):
                server.sendall(piece)
            return
        server.sendall(_exactly(client, HELLO_BYTES))
        while True:
            wire = _exactly(client, REQUEST_BYTES)
            asked.append(Request.from_wire(wire))
            server.sendall(wire)

    def _replies(self, server: socket.socket, client: socket.socket, asked: deque[Request], address: str) -> None:
        while True:
            head = _exactly(server, REPLY_BYTES)
            reply, request = Reply.from_wire(head), asked.popleft()
            has_body = reply.status is Status.OK and request.verb is not BulkVerb.COMPLAIN
            body = _exactly(server, reply.length) if has_body else b""
            share = min(self._share, MANIFEST_SHARE_MAX) if request.verb is BulkVerb.MANIFEST else self._share
            if not has_body or not self._is_due(share):
                client.sendall(head + body)
            elif request.verb is BulkVerb.MANIFEST:
                self._note(address, "manifest", 0)
                client.sendall(damaged(Damage.FLIP, self._rng, reply, body, body).wire)
            else:
                damage, other = self._draw(reply, body)
                self._note(address, damage.value, reply.chunk)
                wrong = damaged(damage, self._rng, reply, body, other)
                client.sendall(wrong.wire)
                if wrong.ends:
                    return

    def _draw(self, reply: Reply, body: bytes) -> tuple[Damage, bytes]:
        """What to do, and another chunk's bytes where there are some of the same length."""
        with self._lock:
            chunk, other = self._bodies.get(reply.length, (reply.chunk, body))
            self._bodies[reply.length] = (reply.chunk, body)
        kinds = list(Damage)
        if chunk == reply.chunk:
            kinds = [kind for kind in kinds if kind not in (Damage.SWAPPED, Damage.TORN)]
        return self._rng.choice(kinds), other

    def _records(self, server: socket.socket, client: socket.socket, _: deque[Request], address: str) -> None:
        passed, due = 0, self._next_flip(_HANDSHAKE_BYTES)
        while piece := server.recv(_PIECE_BYTES):
            passed += len(piece)
            if passed > due:
                due = self._next_flip(passed)
                self._note(address, "record", -1)
                at = len(piece) - 1
                piece = piece[:at] + bytes([piece[at] ^ 1 << self._rng.randrange(8)])
            client.sendall(piece)

    def _next_flip(self, after: int) -> int:
        return after + int(self._rng.expovariate(self._share / TLS_BYTES_BETWEEN)) if self._share else sys.maxsize

    def _is_due(self, share: float) -> bool:
        with self._lock:
            return self._rng.random() < share

    def _note(self, address: str, damage: str, chunk: int) -> None:
        with self._lock:
            print(json.dumps({"to": address, "damage": damage, "chunk": chunk}), file=self._log, flush=True)


def _until_the_end(copy: object, source: socket.socket, sink: socket.socket, *more: object) -> None:
    """One direction; when it ends, for whatever reason, so does the other."""
    assert callable(copy)
    try:
        copy(source, sink, *more)
    except (OSError, EOFError, HeadError, IndexError):
        pass  # either side hung up, or said what is not of the protocol: the connection ends
    finally:
        for sock in (source, sink):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


def _exactly(sock: socket.socket, count: int) -> bytes:
    body = bytearray(count)
    view = memoryview(body)
    while view:
        got = sock.recv_into(view, 0, socket.MSG_WAITALL)
        if not got:
            raise EOFError
        view = view[got:]
    return bytes(body)


def _endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.cluster.proxy", description=__doc__)
    parser.add_argument("--listen", type=_endpoint, required=True)
    parser.add_argument("--to", type=_endpoint, required=True)
    parser.add_argument("--mode", choices=("clear", "tls"), required=True)
    parser.add_argument("--share", type=float, required=True, help="of the chunks that are sent")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--log", type=Path, required=True)
    given = parser.parse_args(arguments)
    Proxy(
        given.listen, given.to, is_clear=given.mode == "clear", share=given.share, seed=given.seed, log=given.log
    ).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
