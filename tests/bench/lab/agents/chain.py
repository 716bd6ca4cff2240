"""One link of a chain: take the bytes from the one before, write them, hand them to the next, nothing checked.

``chain FILE SIZE LISTEN FROM NEXT``: LISTEN is ``ADDRESS:PORT`` or ``-`` (nobody behind connects to us, we download),
FROM is a URL for the first link and ``-`` for the rest, NEXT is ``ADDRESS:PORT`` or ``-`` for the last.
"""

from __future__ import annotations

import http.client
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from tests.bench.lab.agents.protocol import answer, ready

PIECE_BYTES = 64 * 1024  # one hop's delay; larger pieces only fill the chain later


def reader(listening: socket.socket | None, url: str) -> Callable[[memoryview], int]:
    if listening is not None:
        connection, _ = listening.accept()
        return connection.recv_into
    parts = urlsplit(url)
    web = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    web.request("GET", parts.path)
    response = web.getresponse()
    return response.readinto


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def main(path: str, size: str, listen: str, source: str, following: str) -> None:
    listening = None
    if listen != "-":
        listening = socket.create_server(address(listen))
    ready()
    onward = None if following == "-" else socket.create_connection(address(following), timeout=60)
    read = reader(listening, source)
    buffer = memoryview(bytearray(PIECE_BYTES))
    received = 0
    with Path(path).open("wb", buffering=0) as file:
        while received < int(size) and (count := read(buffer)):
            if onward is not None:
                onward.sendall(buffer[:count])
            file.write(buffer[:count])
            received += count
    answer(received=received)


if __name__ == "__main__":
    main(*sys.argv[1:])
