"""A small HTTP server for one directory: ranges, ETag, If-Match, a rate, and an exact count of the bytes it sent.

Bodies are sent by sendfile, with a thread for each connection. The count is of body bytes that the kernel has taken, as
external storage would charge them.
"""

from __future__ import annotations

import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from gossipd.runtime.rate_limit import RateLimit

_RANGE = re.compile(r"bytes=(\d{1,15})-(\d{1,15})?")
_PIECE_BYTES = 256 * 1024
_IDLE_SECONDS_MAX = 60.0  # then an idle connection is closed


class StorageServer:
    """Serves the files under ``root`` at ``url`` until ``close``. ``rate``: bytes per second for all connections
    together; None is no limit."""

    def __init__(self, root: Path, *, rate: float | None = None) -> None:
        self.root = root
        self.throttle = RateLimit(rate)
        self._lock = threading.Lock()
        self._body_bytes = self._requests = 0
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/"

    @property
    def body_bytes(self) -> int:
        with self._lock:
            return self._body_bytes

    @property
    def requests(self) -> int:
        with self._lock:
            return self._requests

    def count(self, *, requests: int = 0, body_bytes: int = 0) -> None:
        with self._lock:
            self._requests += requests
            self._body_bytes += body_bytes

    def close(self) -> None:
        """Stop listening; connections end with the process or by their clients."""
        self.throttle.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that hang up: daemons are killed here on purpose."""


def _handler(storage: StorageServer) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        owner = storage

    return Handler


class _Handler(BaseHTTPRequestHandler):
    owner: StorageServer
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS_MAX
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        """Log nothing: the demo counts instead."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.owner.count(requests=1)
        try:
            descriptor = os.open(self._path(), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._refuse(404)
            return
        try:
            self._answer(descriptor, os.fstat(descriptor))
        finally:
            os.close(descriptor)

    def _path(self) -> Path:
        relative = unquote(urlsplit(self.path).path).lstrip("/")
        path = (self.owner.root / relative).resolve()
        return path if path.is_relative_to(self.owner.root.resolve()) else self.owner.root / "nothing"

    def _answer(self, descriptor: int, status: os.stat_result) -> None:
        tag = f'"{status.st_mtime_ns:x}-{status.st_size:x}"'
        wanted = self.headers.get("If-Match")
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        start, stop = 0, status.st_size
        if asked:
            start = int(asked[1])
            stop = min(stop, int(asked[2]) + 1) if asked[2] else stop
        if wanted not in (None, "*", tag):
            self._refuse(412)
            return
        if start >= max(stop, 1):
            self._refuse(416)
            return
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{status.st_size}")
        for name, value in (("Content-Length", str(stop - start)), ("ETag", tag), ("Accept-Ranges", "bytes")):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()
        if self.command == "GET":
            self._send(descriptor, start, stop)

    def _send(self, descriptor: int, start: int, stop: int) -> None:
        while start < stop:
            step = self.owner.throttle.piece(min(_PIECE_BYTES, stop - start))
            self.owner.throttle.take(step)
            # Counted before sending, so that a client that has the bytes finds them counted.
            self.owner.count(body_bytes=step)
            sent = 0
            try:
                sent = os.sendfile(self.connection.fileno(), descriptor, start, step)
            finally:
                self.owner.count(body_bytes=sent - step)
            if sent == 0:
                return
            start += sent

    def _refuse(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()
