"""Are strangers refused? Asked of the real sockets at every start, and the daemon does not run if they are not.

What lives here: four visits to our own control port. What does not: what admission is (``authenticator``).

libzmq's CURVE server accepts every key when no ZAP handler runs, and one wrong option makes a socket that speaks in
clear; both look healthy (libzmq 2594, pyzmq 657). So, in this order of proof:

1. our own key is let in: the port is ours and admission answers, which gives the refusals their meaning;
2. a key made for the occasion is not: admission was asked about that very key and said no, and no handshake followed;
3. a ZeroMQ socket without security never gets through its handshake;
4. a plain TCP connection that speaks HTTP is closed.

No answer is no verdict: a host that is stopped for some seconds, or has far too much to do, answers nobody in time.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

import trio
import zmq

from gossipd.control.control_plane import ControlPlane
from gossipd.control.monitor_report import monitor_report
from gossipd.core.errors import CheckUnansweredError, ExitCode, LocalError
from gossipd.identity.keys import SecretKey
from gossipd.runtime.zmq_trio import SocketWakeup, secure, tcp_address
from gossipd.wire.control_frame import FRAME_BYTES_MAX

_PATIENCE_S = 5.0  # a busy machine; each visit takes milliseconds
_VISIT_HANDSHAKE_S = 1.0
_LOOK_S = 0.02  # between two looks at whether the visitor was refused
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # how a visitor on this host names the address
VISITS = 4


class _Outcome(Enum):
    ACCEPTED = auto()
    REFUSED = auto()  # admission said no
    ENDED = auto()  # by either side, without a word
    SILENT = auto()


class SelfCheckError(LocalError):
    """The control port accepts a key that it must refuse, or refuses ours. Fault: this build or machine. Retry: no."""

    code = "E_SELF_CHECK"
    exit_code = ExitCode.TRUST


async def self_check(plane: ControlPlane, host: str, port: int, *, own: SecretKey, stranger: SecretKey) -> None:
    """Visit the control port on which ``plane`` listens.

    Args:
        own: this node's key, which ``member_of`` must know.
        stranger: a key that no host knows, made for this call.
    Raises:
        SelfCheckError: a connection was accepted that must not be, or ours was refused.
        CheckUnansweredError: nothing was proved; retry.
    """
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    server_key, unknown = own.public.curve25519, stranger.public.curve25519

    def refused() -> bool:
        return plane.authenticator.refusals_of(unknown) > 0

    where = f"on {host} port {port}"
    try:
        ours = await _visit(context, host, port, own, server_key)
        theirs = await _visit(context, host, port, stranger, server_key, until=refused)
        unencrypted = await _visit(context, host, port, None, b"")
        if ours is _Outcome.REFUSED:
            raise SelfCheckError(f"our own key was refused {where}")
        if theirs is _Outcome.ACCEPTED:
            raise SelfCheckError(f"an unknown key was accepted {where}")
        if unencrypted is _Outcome.ACCEPTED:
            raise SelfCheckError(f"an unencrypted socket was accepted {where}")
        if ours is not _Outcome.ACCEPTED:
            raise CheckUnansweredError(f"authentication does not answer about our own key {where}")
        if not refused():
            raise CheckUnansweredError(f"authentication was not asked about an unknown key {where}")
        if unencrypted is _Outcome.SILENT or not await _is_closed(host, port):
            raise CheckUnansweredError(f"a connection without a key was not ended {where}")
    finally:
        context.term()


async def _visit(
    context: zmq.Context[zmq.Socket[bytes]], host: str, port: int, secret: SecretKey | None, server_key: bytes, *,
    until: Callable[[], bool] = lambda: False,
) -> _Outcome:  # fmt: skip
    """How a handshake ends; REFUSED as soon as ``until`` holds."""
    socket = context.socket(zmq.DEALER)
    try:
        secure(socket, handshake_s=_VISIT_HANDSHAKE_S, message_bytes_max=FRAME_BYTES_MAX)
        socket.setsockopt(zmq.RECONNECT_IVL, -1)
        socket.setsockopt(zmq.IPV6, 1 if ":" in host else 0)
        if secret is not None:
            socket.setsockopt(zmq.CURVE_SECRETKEY, secret.curve_secret)
            socket.setsockopt(zmq.CURVE_PUBLICKEY, secret.public.curve25519)
            socket.setsockopt(zmq.CURVE_SERVERKEY, server_key)
        monitor = socket.get_monitor_socket()
        try:
            socket.connect(tcp_address(host, port))
            with trio.move_on_after(_PATIENCE_S):
                return await _outcome(monitor, until)
            return _Outcome.SILENT
        finally:
            socket.disable_monitor()
            monitor.close(0)
    finally:
        socket.close(0)


async def _outcome(monitor: zmq.Socket[bytes], until: Callable[[], bool]) -> _Outcome:
    wakeup = SocketWakeup()
    while not until():
        try:
            event = monitor_report(monitor.recv_multipart(zmq.NOBLOCK)).event
        except zmq.Again:
            await wakeup.wait(monitor, seconds_max=_LOOK_S)
            continue
        if event == zmq.Event.HANDSHAKE_SUCCEEDED:
            return _Outcome.ACCEPTED
        if event == zmq.Event.HANDSHAKE_FAILED_AUTH:
            return _Outcome.REFUSED
        if event in (zmq.Event.DISCONNECTED, zmq.Event.CLOSED):
            return _Outcome.ENDED
    return _Outcome.REFUSED


async def _is_closed(host: str, port: int) -> bool:
    with trio.move_on_after(_PATIENCE_S):
        try:
            async with await trio.open_tcp_stream(host, port) as stream:
                await stream.send_all(b"GET / HTTP/1.0\r\n\r\n")
                while await stream.receive_some(4096):
                    pass  # ZeroMQ's greeting, which it sends to anybody
        except (OSError, trio.BrokenResourceError):
            return True
        return True
    return False
