"""ZeroMQ sockets under trio: how one task waits for its socket and for its colleagues at once.

What lives here: ``SocketWakeup`` and the socket options that every TCP socket of ours gets. What does not: protocols.

The rules, each learnt from a hang of somebody's (python-trio/trzmq, pyzmq issues 1827 and 2173):

1. ``ZMQ_FD`` is edge-triggered and only says that ``ZMQ_EVENTS`` is stale. So: try the operation first, wait only
   after ``Again``, and read ``ZMQ_EVENTS`` before every wait. Waiting first got one message in ten.
2. Any call on the socket can eat the edge. One task owns each socket and makes every call on it; others put what
   they want into a queue and ring its bell.
3. The descriptor is waited for as *readable* even to send.
4. A wait ends by itself after ``SAFETY_POLL_S``, should an edge be lost all the same.

The bell is a cancel scope around the wait rather than a memory channel: ringing costs 1 us when nobody waits,
needs no second task, and a hundred rings before the owner runs are one.
"""

from __future__ import annotations

import math
from typing import cast

import trio
import zmq

SAFETY_POLL_S = 0.5
RETRY_S = 0.05  # what a peer that reads slowly could not be sent; libzmq may tell another call that it can


class SocketWakeup:
    """Lets the owner of one socket wait for the socket or for a ring, whichever comes first."""

    def __init__(self) -> None:
        self._rung = False
        self._waiting: trio.CancelScope | None = None

    def ring(self) -> None:
        """Make the current wait, or the next one, return at once. From the trio loop only."""
        if not self._rung and self._waiting is not None:
            self._waiting.cancel()
        self._rung = True

    async def wait(self, socket: zmq.Socket[bytes], *, seconds_max: float = math.inf) -> None:
        """Return when ``socket`` may have something to read, when the bell rings, or after ``seconds_max``."""
        if self._rung or has_unread(socket):
            self._rung = False
            await trio.lowlevel.checkpoint()
            return
        with trio.move_on_after(max(0.0, min(seconds_max, SAFETY_POLL_S))) as self._waiting:
            await trio.lowlevel.wait_readable(socket.FD)
        self._waiting = None
        self._rung = False


def has_unread(socket: zmq.Socket[bytes]) -> bool:
    """Whether a message waits; what the descriptor had to say is then taken note of."""
    return bool(cast(int, socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)


def secure(socket: zmq.Socket[bytes], *, handshake_s: float, message_bytes_max: int) -> None:
    """Bound what any TCP peer of ``socket`` can make us hold. libzmq's defaults are no bounds at all:
    messages of any length, a thousand of them per peer, 30 s for a handshake, for ever to close."""
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, message_bytes_max)
    socket.setsockopt(zmq.HANDSHAKE_IVL, int(handshake_s * 1000))
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 30)  # an accepted peer that vanished is let go after 30 + 3 x 10 s
    socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, 10)
    socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, 3)


def tcp_address(host: str, port: int) -> str:
    """ZeroMQ's way to write a TCP address; IPv6 in brackets."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
