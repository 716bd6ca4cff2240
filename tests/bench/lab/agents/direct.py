"""Plain download of one URL into one file: ``direct URL FILE``."""

from __future__ import annotations

import http.client
import sys
from pathlib import Path
from urllib.parse import urlsplit

from tests.bench.lab.agents.protocol import answer, ready

PIECE_BYTES = 1024 * 1024
TIMEOUT_S = 300  # of 16 downloads that share one link under BBR one stood still for more than a minute


def download(url: str, path: Path) -> int:
    """Bytes received."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    connection.request("GET", parts.path)
    response = connection.getresponse()
    assert response.status == 200, response.status
    buffer = memoryview(bytearray(PIECE_BYTES))
    received = 0
    with path.open("wb", buffering=0) as file:
        while count := response.readinto(buffer):
            file.write(buffer[:count])
            received += count
    return received


if __name__ == "__main__":
    ready()
    received = download(sys.argv[1], Path(sys.argv[2]))
    answer(received=received)
