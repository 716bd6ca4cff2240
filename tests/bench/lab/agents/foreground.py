"""A service beside the deployment: requests of 200 bytes, answers of 16 KiB, one at a time.

``foreground serve ADDRESS:PORT`` answers until stdin closes. ``foreground ask ADDRESS:PORT`` asks every 20 ms from
``go`` until stdin closes, and answers ``go`` at the end: one JSON object with the moment and the seconds of each.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import threading
import time

REQUEST_BYTES, ANSWER_BYTES = 200, 16 * 1024
EVERY_S = 0.02
_TIMEOUT_S = 30


def serve(address: str, port: int) -> None:
    """One connection."""
    with socket.create_server((address, port)) as listener:
        print("ready", flush=True)
        threading.Thread(target=_answer_all, args=(listener,), daemon=True).start()
        sys.stdin.read()


def _answer_all(listener: socket.socket) -> None:
    sock, _ = listener.accept()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while _is_whole(sock, REQUEST_BYTES):
        sock.sendall(bytes(ANSWER_BYTES))


def ask(address: str, port: int) -> None:
    """Until a second line comes."""
    with socket.create_connection((address, port), timeout=_TIMEOUT_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        print("ready", flush=True)
        sys.stdin.readline()
        samples = []
        while True:
            begun_s = time.monotonic()
            sock.sendall(bytes(REQUEST_BYTES))
            if not _is_whole(sock, ANSWER_BYTES):
                raise ConnectionError("the service has ended")
            samples.append((begun_s, time.monotonic() - begun_s))
            if select.select([0], [], [], max(0.0, begun_s + EVERY_S - time.monotonic()))[0]:
                break
        print(json.dumps({"samples": samples}), flush=True)


def _is_whole(sock: socket.socket, want: int) -> bool:
    while want:
        data = sock.recv(want)
        if not data:
            return False
        want -= len(data)
    return True


if __name__ == "__main__":
    host, _, number = sys.argv[2].rpartition(":")
    {"serve": serve, "ask": ask}[sys.argv[1]](host, int(number))
