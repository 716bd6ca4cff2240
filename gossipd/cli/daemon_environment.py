"""The environment of this host's daemon, which a command's own need not be: another shell, another user.

What lives here: which process the daemon is, and reading its environment, if this user may. What does not: what is in
it (``config.environment``, ``sources``).
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

from gossipd.api.socket_name import short_path

UNIT_ENVIRONMENT = Path("/etc/gossipd/env")  # as the unit of ``gossipd assets unit`` has it
_PEER = struct.Struct("3i")  # struct ucred: process, user, group


def daemon_environment(daemon_socket: Path | None) -> dict[str, str]:
    """That of the process which listens at the socket; where it cannot be read, the unit's file over our own."""
    found = environment_of_listener(daemon_socket)
    return {**os.environ, **unit_environment(UNIT_ENVIRONMENT)} if found is None else found


def environment_of_listener(daemon_socket: Path | None) -> dict[str, str] | None:
    """That of the process which listens at the socket; None where none does, or this user may not read it."""
    process = process_of_listener(daemon_socket)
    if process is None:
        return None
    try:
        text = Path(f"/proc/{process}/environ").read_bytes().decode(errors="replace")
        return dict(pair.split("=", 1) for pair in text.split("\0") if "=" in pair)
    except OSError:
        return None


def process_of_listener(daemon_socket: Path | None) -> int | None:
    """The number of the process which listens at the socket; None where none does, or it cannot be seen from here."""
    try:
        with socket.socket(socket.AF_UNIX) as asked:
            asked.settimeout(1.0)
            with short_path(daemon_socket or Path()) as path:
                asked.connect(path)
            found: int = _PEER.unpack(asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[0]
            return found or None
    except OSError:
        return None


def unit_environment(file: Path) -> dict[str, str]:
    """What the unit gives the daemon, which this command need not have; empty where it cannot be read."""
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.strip().partition("=") for line in lines if not line.lstrip().startswith(("#", ";")))
    return {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}
