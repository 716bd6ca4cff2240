"""Binding the daemon's local sockets: unix sockets with the right mode from the start, and a port on loopback.

What lives here: paths, modes and stale sockets. What does not: what is served there (``routes``, ``request_guard``).

A socket is bound in a fresh directory of mode 0700, gets its mode, and is renamed into place. So nobody else can
connect at any moment, and no umask changes under other threads. The rename also replaces the socket of a killed daemon;
a socket that a daemon answers is not replaced. A path over the kernel's 108 bytes is shortened (``socket_name``).
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import stat
import tempfile
from pathlib import Path

import trio

from gossipd.api.socket_name import short_path
from gossipd.core.errors import ExitCode, LocalError
from membership.member import contact_of

BACKLOG = 512  # as many as may be connected; the kernel refuses more, and ranks of a job come together
_MOMENTARY = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)


class SocketPathError(LocalError):
    """The status socket cannot be bound at its path. Fault: the configuration. State: nothing was bound. Retry: after
    the remedy."""

    code = "E_STATUS_SOCKET"
    exit_code = ExitCode.USAGE


class SocketTakenError(SocketPathError):
    """Another daemon has it, or the address is not up yet. Retry: in a while, as of ``BindError``."""

    exit_code = ExitCode.OTHER


def bind_unix(path: Path, *, mode: int = 0o600, group: int = -1) -> trio.SocketListener:
    """Listen at ``path``; ``group`` is its group's number, -1 our own. Raises SocketPathError."""
    _refuse_if_taken(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with tempfile.TemporaryDirectory(prefix=".gossipd-", dir=path.parent) as private:
            made = Path(private) / "s"
            with short_path(made) as name:
                bound.bind(name)
            os.chown(made, -1, group)
            made.chmod(mode)
            bound.listen(BACKLOG)
            made.rename(path)
    except OSError as error:
        bound.close()
        raise _refused(str(path), error) from error
    return trio.SocketListener(trio.socket.from_stdlib_socket(bound))


def bind_metrics(host: str, port: int) -> trio.SocketListener:
    """Listen on an address of this host, for metrics and health. Raises SocketPathError."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise SocketPathError(f"status address {host[:60]!r} is not an IP address") from None
    if address.is_unspecified:
        raise SocketPathError(f"status address {host} is every address of this host: name the one that is meant")
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise _refused(contact_of(host, port), error) from error
    return trio.SocketListener(trio.socket.from_stdlib_socket(bound))


def _refuse_if_taken(path: Path) -> None:
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise SocketPathError(f"cannot check {path}: {error.strerror}") from error
    if not stat.S_ISSOCK(kind):
        raise SocketPathError(f"{path} exists and is not a socket; move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, short_path(path) as name:
        answer = probe.connect_ex(name)
    if answer not in (errno.ECONNREFUSED, errno.ENOENT):
        raise SocketTakenError(f"a daemon already answers at {path}")


def _refused(where: str, error: OSError) -> SocketPathError:
    kind = SocketTakenError if error.errno in _MOMENTARY else SocketPathError
    return kind(f"cannot listen at {where}: {error.strerror}; see [status]")
