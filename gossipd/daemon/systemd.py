"""Telling systemd how the daemon is: READY, STOPPING, RELOADING, WATCHDOG over its datagram socket.

What lives here: the protocol of sd_notify(3), a few lines; its PyPI package is from 2017. Nothing happens when the
daemon was not started by systemd. A message that cannot be sent is dropped: the service manager's trouble must not
become the daemon's.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping

import trio


class Notifier:
    """Sends to ``$NOTIFY_SOCKET``; does nothing without one."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        # A leading @ stands for the abstract namespace, whose names begin with a zero byte.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        interval = environment.get("WATCHDOG_USEC", "")
        mine = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog_s = int(interval) / 1e6 if interval.isdecimal() and mine else None

    def ready(self, words: str = "") -> None:
        """The daemon serves; systemd goes on with what waits for it. ``words`` are shown by ``systemctl status``."""
        self._send("READY=1", words)

    def stopping(self) -> None:
        """SIGTERM was taken."""
        self._send("STOPPING=1", "")

    def reloading(self, monotonic_us: int) -> None:
        """SIGHUP was taken; ``ready`` ends it. The time is needed by Type=notify-reload."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={monotonic_us}", "")

    async def run_watchdog(self) -> None:
        """Tell systemd twice in each interval that the loop turns; returns at once when it did not ask."""
        if self.watchdog_s is None or self.watchdog_s <= 0:
            return
        while True:
            self._send("WATCHDOG=1", "")
            await trio.sleep(self.watchdog_s / 2)  # half of it, as sd_watchdog_enabled(3) advises

    def _send(self, message: str, words: str) -> None:
        if not self._address:
            return
        status = f"STATUS={words.splitlines()[0]}" if words else ""
        text = "\n".join(part for part in (message, status) if part)
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
            to.setblocking(False)
            to.sendto(text.encode(), self._address)
