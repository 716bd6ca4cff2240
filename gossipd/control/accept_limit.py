"""A bound for the connections that the control port accepts: libzmq has none of its own.

What lives here: following libzmq's reports of accepted and ended connections, and cutting some. What does not: the
choice (``runtime.pending_connections``), and handshakes, which libzmq ends after ``handshake_s``.

libzmq tells the descriptor of a connection, not whether its handshake is done, so every connection counts as pending
for that long. A connection is cut by shutting a duplicate of its descriptor down, after a look at whose it is now:
libzmq stays the owner, and a descriptor that was closed and used again is never hit.
"""

from __future__ import annotations

import os
import resource
import socket
from typing import Any, Protocol

from gossipd.control.settings import ControlSettings
from gossipd.runtime.pending_connections import PendingConnections, PendingLimits

_FILES_SHARE = 8  # at most an eighth of the process's descriptors; the rest is for the store and for members


class AddressDirectory(Protocol):
    """Whose addresses are known."""

    def is_member_address(self, address: str) -> bool:
        """Whether a member's record names this address; quick."""


class AcceptLimit:
    """For one listening port. Called on the trio loop; times are monotonic seconds."""

    def __init__(self, settings: ControlSettings, directory: AddressDirectory) -> None:
        self._handshake_s = settings.handshake_s
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        total = max(1, min(settings.pending_max, files // _FILES_SHARE))
        self._limits = PendingLimits(total, min(total, settings.pending_per_address_max))
        self._directory = directory
        self._pending = PendingConnections[int]()
        self._peers: dict[int, Any] = {}

    @property
    def turned_away(self) -> int:
        """Connections that had to make room for others, or found none."""
        return self._pending.turned_away

    def accepted(self, descriptor: int, port: int, now: float) -> None:
        """libzmq has accepted a connection on ``port``; it or another is cut when there are too many."""
        self._pending.forget_older_than(now - self._handshake_s)
        self.ended(descriptor)
        peer = _peer_of(descriptor, port)
        if peer is None:
            return  # it has ended already
        self._peers[descriptor] = peer
        address = str(peer[0]).removeprefix("::ffff:")
        is_member = self._directory.is_member_address(address)
        admission = self._pending.admit(descriptor, address, is_member=is_member, limits=self._limits, now=now)
        if admission.evicted is not None:
            self._cut(admission.evicted)
        if not admission.is_admitted:
            self._cut(descriptor)

    def ended(self, descriptor: int) -> None:
        """libzmq is about to close a connection."""
        self._pending.remove(descriptor)
        self._peers.pop(descriptor, None)

    def _cut(self, descriptor: int) -> None:
        try:
            with socket.socket(fileno=os.dup(descriptor)) as same:
                if same.getpeername() == self._peers[descriptor]:
                    same.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it has ended already


def _peer_of(descriptor: int, port: int) -> Any:
    """The other end of a connection to ``port``; None when the descriptor is not one any more."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as same:
            return same.getpeername() if same.getsockname()[1] == port else None
    except (OSError, IndexError):
        return None
