"""HTTP over a unix socket, for ``client``.

What lives here: one connection. What does not: requests and answers. A module of its own, because ``http.client`` takes
longer to import than everything else that the client needs.
"""

from __future__ import annotations

import http.client
import socket
import struct
from pathlib import Path

from gossipd.api.socket_name import short_path

_TIME = struct.Struct("ll")  # struct timeval: seconds, microseconds


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("gossipd", timeout=timeout_s)
        self._path, self._timeout_s = path, timeout_s

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        seconds, rest_s = divmod(self._timeout_s, 1)
        try:
            # The kernel's own: by Python's a connection fails at once while the daemon's queue of callers is full.
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIME.pack(int(seconds), int(rest_s * 1e6)))
            with short_path(self._path) as path:
                self.sock.connect(path)
            self.sock.settimeout(self.timeout)
        except OSError:
            self.sock.close()
            raise
