"""HTTP over a unix socket, for ``client``.

What lives here: one connection. What does not: requests and answers. A module of its own, because ``http.client`` takes
longer to import than everything else that the client needs.
"""

from __future__ import annotations

import http.client
import socket
from pathlib import Path

from gossipd.api.socket_name import short_path


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("gossipd", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            with short_path(self._path) as path:
                self.sock.connect(path)
        except OSError:
            self.sock.close()
            raise
