"""Opens a bulk connection to one node, and tells whether a host is there at all.

What lives here: from an address to an authenticated link. What does not: keeping links.

Under TLS the peer's certificate must hold the key of the node we meant; another member's is refused like a stranger's.
In clear a one-time token travels ahead of the first request: no round trip is spent on it, and the server never answers
a bad one. The node has given it ahead, or is asked for it over the control channel first.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from gossipd.identity.certificates import CertificateError
from gossipd.transfer.channel import EXHAUSTED, Channel, Cut, DisconnectedError, family_of, prepare
from gossipd.transfer.connections import BulkConnection, BulkPeer, Endpoint
from gossipd.transfer.credentials import TlsCredentials
from gossipd.transfer.errors import (
    FetchCancelledError,
    NoHandleError,
    PeerGoneError,
    PeerRefusedError,
    PeerSlowError,
    TransferError,
)
from gossipd.transfer.settings import BulkSettings
from gossipd.transfer.tokens import ReceivedTokens
from gossipd.transfer.watchdog import Watchdog
from gossipd.wire.transfer import hello
from membership.member import NodeId


class UnreachableError(PeerGoneError):
    """No connection could be made. ``is_certain``: the host said so, rather than nothing.

    Fault: the peer or the network. Retry: elsewhere; here later.
    """

    def __init__(self, message: str, *, is_certain: bool) -> None:
        super().__init__(message)
        self.is_certain = is_certain


class Dialer:
    """Dials; thread-safe.

    Args:
        credentials: for TLS, or None. get_token: for connections in clear, or None; blocks, raises TransferError.
        purse: where tokens are that need not be asked for.
    """

    def __init__(
        self,
        settings: BulkSettings,
        watchdog: Watchdog,
        *,
        credentials: TlsCredentials | None,
        get_token: Callable[[NodeId], bytes] | None,
        received_tokens: ReceivedTokens | None = None,
    ) -> None:
        self._settings = settings
        self._watchdog = watchdog
        self.credentials = credentials
        self._get_token = get_token
        self._received_tokens = received_tokens or ReceivedTokens()

    def dial(
        self, peer: BulkPeer, deadline: float, attach: Callable[[Channel], None], *, asks: bool = False
    ) -> BulkConnection:
        """A link to ``peer``.

        Args:
            asks: for a token, though some were given ahead.
            attach: given the channel before anything blocks on it, so that it can be cut; may raise.
        Raises:
            UnreachableError, PeerRefusedError, PeerGoneError, PeerSlowError, FetchCancelledError; NoHandleError when
            this host has no descriptor for it.
        """
        channel = self._open(peer.endpoint)  # before a token is asked for, which would be of no use without it
        try:
            given = None if asks or self._get_token is None else self._received_tokens.take(peer.node)
            prefix = b"" if self._get_token is None else hello(given or self._get_token(peer.node))
            attach(channel)
            self._connect(channel, peer.endpoint, deadline)
            channel.deadline = min(deadline, time.monotonic() + self._settings.handshake_s)
            self._watchdog.add(channel)
            if self.credentials is not None:
                self._shake_hands(channel, peer)
        except BaseException:
            self.close(channel)
            raise
        return BulkConnection(peer, channel, prefix, may_be_stale=given is not None)

    def forget_tokens(self, node: NodeId) -> None:
        """The node has taken none of those it gave ahead."""
        self._received_tokens.forget(node)

    def close(self, channel: Channel) -> None:
        """Close a channel that was dialed here."""
        self._watchdog.remove(channel)
        channel.close()

    def is_there(self, endpoint: Endpoint) -> bool:
        """Whether the host answers at all, its kernel at least: a paused process does, a cut cable does not.

        True as well when this host has no descriptor to ask with: then nothing is known against the other.
        """
        try:
            with socket.socket(family_of(endpoint[0]), socket.SOCK_STREAM) as sock:
                sock.settimeout(self._settings.probe_s)
                sock.connect(endpoint)
        except OSError as error:
            return error.errno in EXHAUSTED
        return True

    def _open(self, endpoint: Endpoint) -> Channel:
        try:
            sock = socket.socket(family_of(endpoint[0]), socket.SOCK_STREAM)
        except OSError as error:
            raise _not_connected(endpoint, error) from None
        try:
            prepare(sock, self._settings)
        except OSError as error:
            sock.close()
            raise _not_connected(endpoint, error) from None
        return Channel(sock, self._settings, sends_bodies=False)

    def _connect(self, channel: Channel, endpoint: Endpoint, deadline: float) -> None:
        timeout_s = min(self._settings.connect_s, deadline - time.monotonic())
        if timeout_s <= 0:
            raise PeerSlowError("no time was left to connect")
        try:
            channel.connect(endpoint, timeout_s)
        except TimeoutError:
            if channel.cut_by is not None:
                raise cut_error(channel.cut_by, "while connecting") from None
            raise UnreachableError(f"no answer from {endpoint} in {timeout_s:.1f} s", is_certain=False) from None
        except OSError as error:
            if channel.cut_by is not None:
                raise cut_error(channel.cut_by, "while connecting") from None
            raise _not_connected(endpoint, error) from None

    def _shake_hands(self, channel: Channel, peer: BulkPeer) -> None:
        assert self.credentials is not None
        try:
            found = channel.start_tls(self.credentials.client, is_server=False)
        except DisconnectedError as error:
            if error.cut_by is not None:
                raise cut_error(error.cut_by, "while shaking hands") from None
            if error.refused:
                raise PeerRefusedError(f"{peer.endpoint} is not of this cluster: {error}") from None
            raise PeerGoneError(f"{peer.endpoint} hung up: {error}") from None
        except CertificateError as error:
            raise PeerRefusedError(str(error)) from None
        if found != peer.node:
            raise PeerRefusedError(f"{peer.endpoint} is another node than expected", code="E_IDENTITY_MISMATCH")


def _not_connected(endpoint: Endpoint, error: OSError) -> TransferError:
    """Whose fault it is that there is no connection."""
    if error.errno in EXHAUSTED:
        return NoHandleError(f"no connection to {endpoint}: this host has none left ({error.strerror})")
    return UnreachableError(f"cannot connect to {endpoint}: {error}", is_certain=True)


def cut_error(cut: Cut, when: str) -> TransferError:
    """What it means that our own side ended a connection."""
    if cut in (Cut.CANCELLED, Cut.CLOSING):
        return FetchCancelledError(f"stopped {when}")
    if cut is Cut.GONE:
        return PeerGoneError(f"the host no longer answers, noticed {when}")
    return PeerSlowError(f"too slow ({cut.value}) {when}")
