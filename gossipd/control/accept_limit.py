"""A bound for the connections that the control port accepts: libzmq has none of its own.

What lives here: following libzmq's reports of accepted and ended connections, cutting some, and having the kernel drop
those of a flood. What does not: the choice (``runtime.pending_connections``, ``runtime.flooding_addresses``), and
handshakes, which libzmq ends after ``handshake_s``.

libzmq tells the descriptor of a connection, not whether its handshake is done, so every connection counts as pending
for that long, and one that ends within it as failed; a message from an address says that it has a key. A connection is
cut by shutting a duplicate of its descriptor down, after a look at whose it is now: libzmq stays the owner, and a
descriptor that was closed and used again is never hit.
"""

from __future__ import annotations

import os
import resource
import socket
from typing import Any, Protocol

from msgspec import Struct

from gossipd.control.settings import ControlSettings
from gossipd.runtime.connection_filter import ConnectionFilter
from gossipd.runtime.flooding_addresses import FloodingAddresses
from gossipd.runtime.pending_connections import PendingConnections, PendingLimits

_FILES_SHARE = 8  # at most an eighth of the process's descriptors; the rest is for the store and for members
_LATE_S = 1.0  # libzmq's thread tells the end of a handshake's time so late, when it has much to do


class AddressDirectory(Protocol):
    """Whose addresses are known."""

    def is_member_address(self, address: str) -> bool:
        """Whether a member's record names this address; quick."""


class _Peer(Struct, frozen=True):
    name: Any
    address: str
    accepted_s: float


class AcceptLimit:
    """For one listening port. Called on the trio loop; times are monotonic seconds."""

    def __init__(self, settings: ControlSettings, directory: AddressDirectory) -> None:
        self._handshake_s = settings.handshake_s
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        total = max(1, min(settings.pending_max, files // _FILES_SHARE))
        self._limits = PendingLimits(total, min(total, settings.pending_per_address_max))
        self._directory = directory
        self._pending = PendingConnections[int]()
        self._peers: dict[int, _Peer] = {}
        self._flooding = FloodingAddresses()
        self._filter: ConnectionFilter | None = None

    @property
    def turned_away(self) -> int:
        """Connections that had to make room for others, or found none; and addresses whose connections are dropped."""
        return self._pending.turned_away + self._flooding.count

    @property
    def is_counting(self) -> bool:
        """Whether ``authenticated`` can make a difference."""
        return self._flooding.is_counting

    @property
    def open_count(self) -> int:
        """Connections that were accepted and have not ended, those that have not shown a key among them."""
        return len(self._peers)

    def dropped_addresses(self, now: float) -> tuple[str, ...]:
        """The addresses from which the kernel drops new connections."""
        return self._flooding.dropped(now)

    def listening(self, descriptor: int) -> None:
        """libzmq listens with this descriptor."""
        self._filter = ConnectionFilter(descriptor)

    def accepted(self, descriptor: int, port: int, now: float) -> None:
        """libzmq has accepted a connection on ``port``; it or another is cut when there are too many."""
        self._pending.forget_older_than(now - self._handshake_s)
        self.ended(descriptor, now)
        peer = _peer_of(descriptor, port)
        if peer is None:
            return  # it has ended already
        address = _plain(str(peer[0]))
        self._peers[descriptor] = _Peer(peer, address, now)
        is_member = self._directory.is_member_address(address)
        admission = self._pending.admit(descriptor, address, is_member=is_member, limits=self._limits, now=now)
        if admission.evicted is not None:
            self._cut(admission.evicted)
        if not admission.is_admitted:
            self._cut(descriptor)

    def ended(self, descriptor: int, now: float) -> str | None:
        """libzmq is about to close a connection. Returns its peer's address, where that is known."""
        self._pending.remove(descriptor)
        peer = self._peers.pop(descriptor, None)
        if peer is None:
            return None
        is_early = now - peer.accepted_s <= self._handshake_s + _LATE_S
        if is_early and not self._directory.is_member_address(peer.address):
            self._flooding.failed(peer.address, now)
        return peer.address

    def authenticated(self, address: str) -> None:
        """A connection from this address, as libzmq writes it, has shown a key that is known."""
        self._flooding.authenticated(_plain(address))

    def drop_floods(self, now: float) -> None:
        """Have the kernel drop what is to be dropped. For each event, and every second."""
        if self._filter is not None:
            self._filter.drop(self._flooding.dropped(now))

    def _cut(self, descriptor: int) -> None:
        try:
            with socket.socket(fileno=os.dup(descriptor)) as same:
                if same.getpeername() == self._peers[descriptor].name:
                    same.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it has ended already


def _plain(address: str) -> str:
    """An IPv4 peer of an IPv6 socket has an IPv4 address."""
    return address.removeprefix("::ffff:")


def _peer_of(descriptor: int, port: int) -> Any:
    """The other end of a connection to ``port``; None when the descriptor is not one any more."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as same:
            return same.getpeername() if same.getsockname()[1] == port else None
    except (OSError, IndexError):
        return None
