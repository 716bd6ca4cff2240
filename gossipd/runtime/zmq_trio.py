"""ZeroMQ sockets under trio: a task waits for its socket and for other tasks at once.

What lives here: ``SocketWakeup``, and the options of every TCP socket of ours. What does not: protocols.

The rules come from known hangs (python-trio/trzmq, pyzmq issues 1827 and 2173):

1. ``ZMQ_FD`` is edge-triggered and only says that ``ZMQ_EVENTS`` is stale. So read first, until ``Again`` or until
   ``ZMQ_EVENTS`` says that nothing is left, and read ``ZMQ_EVENTS`` before every wait.
2. Any call on the socket can consume the edge. So one task owns each socket and makes every call; other tasks put
   messages into a queue and call ``ring``.
3. Wait for the descriptor to be *readable*, even to send.
4. A wait ends after ``SAFETY_POLL_S``, in case an edge is lost all the same.

``ring`` cancels a scope around the wait. Unlike a memory channel it costs almost nothing when nobody waits, needs no
second task, and many rings before the owner runs count as one.
"""

from __future__ import annotations

import math

import trio
import zmq

from gossipd.runtime.look_interval import next_look_s
from membership.member import contact_of

SAFETY_POLL_S = 1.0  # a moment at which the daemon looks at other things too (``look_interval``)
_POLLIN = int(zmq.POLLIN)  # an operation on two flags makes a third, in a dozen Python calls
RETRY_S = 0.05  # before a message to a slow peer is tried again; libzmq may signal writability to another call


class SocketWakeup:
    """Lets the owner of one socket wait for the socket or for ``ring``, whichever comes first."""

    def __init__(self) -> None:
        self._rung = False
        self._waiting: trio.CancelScope | None = None

    def ring(self) -> None:
        """Make the current wait, or the next one, return at once. From the trio loop only."""
        if not self._rung and self._waiting is not None:
            self._waiting.cancel()
        self._rung = True

    async def wait(self, socket: zmq.Socket[bytes], *, seconds_max: float = math.inf) -> None:
        """Return when ``socket`` may have a message, after ``ring``, or after ``seconds_max``."""
        if self._rung or has_unread(socket):
            self._rung = False
            await trio.lowlevel.checkpoint()
            return
        until_s = min(trio.current_time() + max(0.0, seconds_max), next_look_s(SAFETY_POLL_S))
        with trio.move_on_at(until_s) as self._waiting:
            await trio.lowlevel.wait_readable(socket.FD)
        self._waiting = None
        self._rung = False


def has_unread(socket: zmq.Socket[bytes]) -> bool:
    """Whether a message waits. Consumes the edge of the descriptor."""
    return bool(int(socket.getsockopt(zmq.EVENTS)) & _POLLIN)


def secure(socket: zmq.Socket[bytes], *, handshake_s: float, message_bytes_max: int) -> None:
    """Bound what a TCP peer of ``socket`` can make us hold. libzmq's defaults are no bounds: messages of any length, a
    thousand per peer, 30 s for a handshake, no limit to close.
    """
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, message_bytes_max)
    socket.setsockopt(zmq.HANDSHAKE_IVL, int(handshake_s * 1000))
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 30)  # drops an accepted peer that vanished after 30 + 3 x 10 s
    socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, 10)
    socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, 3)


def tcp_address(host: str, port: int) -> str:
    """A TCP address for ZeroMQ; IPv6 in brackets."""
    return f"tcp://{contact_of(host, port)}"
