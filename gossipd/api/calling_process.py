"""The process at the other end of a local connection, as the kernel knows it.

What lives here: its number, and a descriptor that tells of its end. What does not: waiting (``daemon.process_end``).

A process in a container that shares no process numbers with this daemon has none here; its ``pidfd`` works all the
same, where the kernel gives one for the peer of a socket (Linux 6.5).
"""

from __future__ import annotations

import socket
import struct
from typing import Protocol

from msgspec import Struct

_SO_PEERPIDFD = 77
_INT = struct.Struct("i")


class PeerSocket(Protocol):
    """A Unix socket, of trio or of the standard library."""

    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes: ...


class CallingProcess(Struct, frozen=True):
    """While its connection is open. ``pid``: 0 is out of sight, or unknown."""

    pid: int = 0
    connection: PeerSocket | None = None

    def open_descriptor(self) -> int | None:
        """A ``pidfd`` of the process, the caller's to close; None where the kernel gives none."""
        if self.connection is None:
            return None
        try:
            return int(_INT.unpack(self.connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, _INT.size))[0])
        except OSError:
            return None


NO_PROCESS = CallingProcess()
