"""One link of a chain: take the bytes from the one before, write them, hand them to the next.

``chain FILE SIZE LISTEN FROM NEXT [CHUNK_BYTES]``: LISTEN is ``ADDRESS:PORT`` or ``-`` (nobody behind connects to us,
we download), FROM is a URL for the first link and ``-`` for the rest, NEXT is ``ADDRESS:PORT`` or ``-`` for the last.
Without CHUNK_BYTES nothing is checked; with them each chunk is hashed with BLAKE3 and written when it is whole, and a
journal names it with its digest: the least that a host does which knows later what it has.
"""

from __future__ import annotations

import http.client
import os
import socket
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from blake3 import blake3

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


class Checked:
    """The file and the journal of a link that checks. Plain writes of a regular file are whole."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        self._journal = path.with_suffix(".journal").open("wb", buffering=0)
        self._count = 0

    def write(self, chunk: memoryview) -> None:
        digest = blake3(chunk).digest()
        self._file.write(chunk)
        self._journal.write(self._count.to_bytes(4, "big") + digest)
        self._count += 1

    def close(self) -> None:
        for file in (self._file, self._journal):
            os.fdatasync(file.fileno())
            file.close()


def main(*words: str) -> None:
    path, size, listen, source, following = words[:5]
    listening = None
    if listen != "-":
        listening = socket.create_server(address(listen))
    ready()
    onward = None if following == "-" else socket.create_connection(address(following), timeout=60)
    read = reader(listening, source)
    chunk_bytes = int(words[5]) if words[5:] else 0
    buffer = memoryview(bytearray(chunk_bytes or PIECE_BYTES))
    received = at = 0
    with closing(Checked(Path(path)) if chunk_bytes else Path(path).open("wb", buffering=0)) as file:
        while received < int(size) and (count := read(buffer[at : at + PIECE_BYTES])):
            if onward is not None:
                onward.sendall(buffer[at : at + count])
            at += count
            received += count
            if not chunk_bytes or at == chunk_bytes or received == int(size):
                file.write(buffer[:at])
                at = 0
    answer(received=received)


if __name__ == "__main__":
    main(*sys.argv[1:])
