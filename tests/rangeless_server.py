"""The standard library's web server, which has no ranges, with a count of the bytes that left it.

``python3 -m http.server`` is this server on a port of its own (``tests.gossipd.sources.test_mirrors``); here it can
also break off, and tells what its clients have acknowledged: what it hands to the kernel for a client that goes away
never leaves the machine.
"""

from __future__ import annotations

import http
import http.server
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

_GOES_S = 10.0  # a client that has not gone by then belongs to a test that has failed, which would wait for ever
_ACKNOWLEDGED_AT = 120  # tcpi_bytes_acked in struct tcp_info (linux/tcp.h)


class RangelessServer(http.server.ThreadingHTTPServer):
    """``breaks_at``: offsets of bodies at which a connection is closed, each once. ``answers``: those with a body.
    ``acknowledged``: bytes, in all."""

    daemon_threads = False

    def __init__(self, directory: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(_Handler, directory=str(directory)))
        self.breaks_at: list[int] = []
        self.acknowledged = 0
        self.answers = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        """Without a slash at its end."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.SimpleHTTPRequestHandler):
    server: RangelessServer

    def send_response(self, code: int, message: str | None = None) -> None:
        with self.server.lock:  # before the head has left: a client may go by it
            self.server.answers += code == http.HTTPStatus.OK
        super().send_response(code, message)

    def copyfile(self, source: Any, outputfile: Any) -> None:
        with self.server.lock:
            breaks_at = self.server.breaks_at.pop(0) if self.server.breaks_at else None
        with suppress(ConnectionError):
            if breaks_at is None:
                super().copyfile(source, outputfile)
            else:
                outputfile.write(source.read(breaks_at))
                self.connection.shutdown(socket.SHUT_RDWR)

    def finish(self) -> None:
        with suppress(OSError):
            super().finish()
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(_GOES_S)
            while self.connection.recv(4096):
                pass  # until the client has acknowledged all, or has gone
        with self.server.lock, suppress(OSError):
            told = self.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
            self.server.acknowledged += struct.unpack_from("Q", told, _ACKNOWLEDGED_AT)[0]

    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def rangeless_server(directory: Path) -> Iterator[RangelessServer]:
    """Serves ``directory``; ends with the block."""
    with RangelessServer(directory) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
