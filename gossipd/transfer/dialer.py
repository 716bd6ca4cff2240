"""Opens a bulk connection to a node, and tells whether a host answers at all, or this host cannot open any.

What lives here: from an address to an authenticated connection. What does not: keeping connections.

Under TLS the peer's certificate must hold the key of the intended node; another member is refused too. An unencrypted
connection begins with a one-time token ahead of the first request, which saves a round trip; the server never answers a
bad token. The node issued the token ahead, or is asked for one over the control channel.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from gossipd.identity.certificates import CertificateError
from gossipd.runtime.system_refusals import EXHAUSTED, note_refusal
from gossipd.transfer import errors
from gossipd.transfer.channel import Channel, Cut, DisconnectedError, family_of, prepare
from gossipd.transfer.connections import BulkConnection, BulkPeer, Endpoint
from gossipd.transfer.credentials import TlsCredentials
from gossipd.transfer.settings import BulkSettings
from gossipd.transfer.tokens import ReceivedTokens
from gossipd.transfer.watchdog import Watchdog
from gossipd.wire.transfer import hello
from membership.member import NodeId


class UnreachableError(errors.PeerGoneError):
    """No connection could be made. ``is_certain``: the host refused, rather than stayed silent. Fault: the peer or the
    network. Retry: elsewhere; here later.
    """

    def __init__(self, message: str, *, is_certain: bool) -> None:
        super().__init__(message)
        self.is_certain = is_certain


class Dialer:
    """Dials; thread-safe. ``credentials``: for TLS, or None. ``get_token``: for unencrypted connections, or None;
    blocks, raises TransferError. ``received_tokens``: tokens that peers issued ahead.
    """

    def __init__(
        self, settings: BulkSettings, watchdog: Watchdog, *, credentials: TlsCredentials | None,
        get_token: Callable[[NodeId], bytes] | None, received_tokens: ReceivedTokens | None = None,
    ) -> None:  # fmt: skip
        self._bulk_settings = settings
        self._watchdog = watchdog
        self.credentials = credentials
        self._get_token = get_token
        self._received_tokens = received_tokens or ReceivedTokens()

    def dial(
        self, peer: BulkPeer, deadline: float, attach: Callable[[Channel], None], *, asks: bool = False
    ) -> BulkConnection:
        """Open a connection to ``peer``. ``asks``: for a token, even if some were issued ahead. ``attach`` receives the
        channel before anything blocks on it, so that other threads can cut it; may raise. Raises UnreachableError,
        PeerRefusedError, PeerGoneError, PeerSlowError, FetchCancelledError; NoHandleError when out of descriptors.
        """
        channel = self._open(peer.endpoint)
        try:
            attach(channel)
            self._connect(channel, peer.endpoint, deadline)
            # Only of a host that is there: one that is not answers no question either, and a busy one does so late.
            given = None if asks or self._get_token is None else self._received_tokens.take(peer.node)
            prefix = b"" if self._get_token is None else hello(given or self._get_token(peer.node))
            channel.deadline = min(deadline, time.monotonic() + self._bulk_settings.handshake_s)
            self._watchdog.add(channel)
            if self.credentials is not None:
                self._shake_hands(channel, peer)
        except BaseException:
            self.close(channel)
            raise
        # While the token was on its way the peer may have given up waiting for it.
        return BulkConnection(peer, channel, prefix, may_be_stale=self._get_token is not None and not asks)

    def forget_tokens(self, node: NodeId) -> None:
        """The node rejected the tokens that it issued ahead."""
        self._received_tokens.forget(node)

    def close(self, channel: Channel) -> None:
        self._watchdog.remove(channel)
        channel.close()

    def is_there(self, endpoint: Endpoint) -> bool:
        """Whether the host's kernel answers: that of a paused process does, one behind a cut cable does not. True also
        when this host is out of descriptors, because then nothing is known against the peer.
        """
        try:
            with socket.socket(family_of(endpoint[0]), socket.SOCK_STREAM) as sock:
                sock.settimeout(self._bulk_settings.probe_s)
                sock.connect(endpoint)
        except OSError as error:
            return error.errno in EXHAUSTED
        return True

    def _open(self, endpoint: Endpoint) -> Channel:
        sock: socket.socket | None = None
        try:
            sock = socket.socket(family_of(endpoint[0]), socket.SOCK_STREAM)
            prepare(sock, self._bulk_settings)
        except OSError as error:
            if sock is not None:
                sock.close()
            raise _not_connected(endpoint, error) from None
        return Channel(sock, self._bulk_settings, sends_bodies=False)

    def _connect(self, channel: Channel, endpoint: Endpoint, deadline: float) -> None:
        timeout_s = min(self._bulk_settings.connect_s, deadline - time.monotonic())
        if timeout_s <= 0:
            raise errors.PeerSlowError("no time was left to connect")
        try:
            channel.connect(endpoint, timeout_s)
        except OSError as error:
            if channel.cut_by is not None:
                raise cut_error(channel.cut_by, "while connecting") from None
            if isinstance(error, TimeoutError):
                if timeout_s < self._bulk_settings.connect_s:
                    raise errors.PeerSlowError(f"not connected to {_told(endpoint)} in {timeout_s:.1f} s") from None
                raise UnreachableError(
                    f"no answer from {_told(endpoint)} in {timeout_s:.1f} s", is_certain=False
                ) from None
            raise _not_connected(endpoint, error) from None

    def _shake_hands(self, channel: Channel, peer: BulkPeer) -> None:
        assert self.credentials is not None
        try:
            found = channel.start_tls(self.credentials.client, is_server=False)
        except DisconnectedError as error:
            if error.cut_by is not None:
                raise cut_error(error.cut_by, "while shaking hands") from None
            if error.refused:
                raise errors.PeerRefusedError(f"{peer.endpoint} is not of this cluster: {error}") from None
            raise errors.PeerGoneError(f"{peer.endpoint} hung up: {error}") from None
        except CertificateError as error:
            raise errors.PeerRefusedError(str(error)) from None
        if found != peer.node:
            raise errors.PeerRefusedError(f"{peer.endpoint} is another node than expected", code="E_IDENTITY_MISMATCH")


def _told(endpoint: Endpoint) -> str:
    return f"{endpoint[0]} port {endpoint[1]} (TCP)"


def _not_connected(endpoint: Endpoint, error: OSError) -> errors.TransferError:
    """The error that blames the right side for a failed connection."""
    note_refusal(error)
    if error.errno in EXHAUSTED:
        return errors.NoHandleError(
            f"no connection to {_told(endpoint)}: this host is out of descriptors ({error.strerror})"
        )
    return UnreachableError(f"cannot connect to {_told(endpoint)}: {error.strerror or error}", is_certain=True)


def cut_error(cut: Cut, when: str) -> errors.TransferError:
    """The error for a connection that our own side ended."""
    if cut in (Cut.CANCELLED, Cut.CLOSING):
        return errors.FetchCancelledError(f"stopped {when}")
    if cut is Cut.GONE:
        return errors.PeerGoneError(f"the host no longer answers, noticed {when}")
    return errors.PeerSlowError(f"too slow ({cut.value}) {when}")
