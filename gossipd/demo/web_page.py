"""The demo's page: what ``gossipd web`` serves, for the demo's first host, while the demo runs.

What lives here: serving it from a thread of this process, and opening a browser where there is a screen. What does not:
the page (``gossipd.web``).
"""

from __future__ import annotations

import os
import sys
import threading
import webbrowser

from gossipd.api.client import READ_SOCKET_NAME
from gossipd.demo.hosts import ADDRESS, DemoHost
from gossipd.web.forwarding import Forwarder
from gossipd.web.server import PageAddressError, PageServer, Protection

PORT = 7980  # that of gossipd web; another one where it is taken


class DemoPage:
    """Serves from its making until ``close``."""

    def __init__(self, host: DemoHost) -> None:
        forwarder = Forwarder(host.directory / READ_SOCKET_NAME)
        try:
            self._server = PageServer((ADDRESS, PORT), forwarder, Protection())
        except PageAddressError:
            self._server = PageServer((ADDRESS, 0), forwarder, Protection())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return self._server.url

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def open_browser(url: str) -> None:
    """Open the page, unless no browser has a screen: one in the terminal would take it from the demo."""
    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(url)
