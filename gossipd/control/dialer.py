"""The links we dial: one ROUTER socket, one connection per peer we have something to say to.

What lives here: connecting, disconnecting, sending and receiving. What does not: when to dial whom, what to send, and
what a failure means (``gossipd.sessions``).

Why one ROUTER for all peers and not a DEALER each: one descriptor, one owner task and one monitor instead of forty;
a batch for forty neighbours goes out in one wake-up of one task. Three things about libzmq 4.3.5 shape this file:

* ``ZMQ_CONNECT_ROUTING_ID`` gives each connection a name that we choose, but only with ``ZMQ_IMMEDIATE`` off (with it
  on, the name goes to the connection that completes next). So messages are kept in our own queue until the monitor
  reports the handshake's success; nothing stale is ever sent after a reconnect.
* A name that is still in use aborts the process, so each dial gets a new one.
* After a failed handshake libzmq redials at its shortest pause for ever, and after ZAP 400 never. So its own
  reconnecting is off, and the sessions dial again.
"""

from __future__ import annotations

import errno
import math
from collections import deque

import zmq
from msgspec import Struct

from gossipd.control.dispatcher import FrameDispatcher
from gossipd.control.monitor_report import monitor_report
from gossipd.control.session_driver import SessionDriver
from gossipd.control.settings import ControlSettings
from gossipd.identity.keys import SecretKey
from gossipd.runtime.traffic_marks import octet_of
from gossipd.runtime.turn_loop import Phase, TurnLoop
from gossipd.runtime.zmq_trio import RETRY_S, SocketWakeup, has_unread, secure, tcp_address
from gossipd.sessions.events import Dial, LinkDown, LinkUp, SendReady
from gossipd.sessions.send_queue import DeltaPayload, Outgoing
from gossipd.wire.control import Delta
from gossipd.wire.control_frame import FRAME_BYTES_MAX, encode, join
from membership.member import NodeId

_UP = zmq.Event.HANDSHAKE_SUCCEEDED
_FAILURES = {
    zmq.Event.HANDSHAKE_FAILED_AUTH: "refused",
    zmq.Event.HANDSHAKE_FAILED_PROTOCOL: "handshake",
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL: "handshake",
    zmq.Event.DISCONNECTED: "lost",
    zmq.Event.CLOSED: "unreachable",
}
_WATCHED = _UP | zmq.Event(sum(_FAILURES))
_FIRST_PART = int(zmq.NOBLOCK | zmq.SNDMORE)  # two flags are put together in a dozen Python calls
_TTL_MS_MAX = 65_000  # the peer's libzmq counts the milliseconds in 16 bits: more wraps round, and ends idle links
_RECEIVE_BATCH = 64  # frames per turn before others get theirs: about 1 ms
_DIAL_BATCH = 16  # dials and hang-ups per turn, likewise: a new deployment may want links to hundreds of hosts


class _Connection(Struct, frozen=True):
    """``name``: libzmq's routing id."""

    peer: NodeId
    name: bytes
    address: str


class ControlDialer:
    """All connections that this host dials. The turn loop's turns own them."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], *, secret: SecretKey, settings: ControlSettings,
        turn_loop: TurnLoop, driver: SessionDriver, dispatcher: FrameDispatcher,
    ) -> None:  # fmt: skip
        self._driver, self._dispatcher, self._turn_loop = driver, dispatcher, turn_loop
        self._by_peer: dict[NodeId, _Connection] = {}
        self._by_name: dict[bytes, _Connection] = {}
        self._by_address: dict[str, _Connection] = {}
        self._ready: dict[NodeId, None] = {}  # peers that something can be sent to
        self._reports: deque[tuple[int, str]] = deque()  # from the monitor; drained in every turn
        self._names = 0
        self._retry_s = math.inf
        self.counters = {"sent": 0, "sent_bytes": 0}
        self._socket = context.socket(zmq.ROUTER)
        secure(self._socket, handshake_s=settings.handshake_s, message_bytes_max=FRAME_BYTES_MAX)
        self._socket.setsockopt(zmq.TOS, octet_of(settings.dscp))
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.SNDHWM, settings.link_send_messages_max)
        self._socket.setsockopt(zmq.RCVHWM, settings.server_receive_messages_max)
        self._socket.setsockopt(zmq.RECONNECT_IVL, -1)
        heartbeat_ms, silence_ms = int(settings.heartbeat_s * 1000), int(settings.silence_s * 1000)
        self._socket.setsockopt(zmq.TCP_MAXRT, silence_ms)  # what is said and not acknowledged ends the link (Linux)
        self._socket.setsockopt(zmq.HEARTBEAT_IVL, heartbeat_ms)
        self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, silence_ms)
        self._socket.setsockopt(zmq.HEARTBEAT_TTL, min(heartbeat_ms * 2, _TTL_MS_MAX))
        self._socket.setsockopt(zmq.CONNECT_TIMEOUT, int(settings.handshake_s * 1000))
        self._socket.setsockopt(zmq.CURVE_SECRETKEY, secret.curve_secret)
        self._socket.setsockopt(zmq.CURVE_PUBLICKEY, secret.public.curve25519)
        self._monitor = self._socket.get_monitor_socket(int(_WATCHED))

    async def watch(self) -> None:
        """Collect the monitor's reports for ``serve``. Runs beside it until cancelled."""
        wakeup = SocketWakeup()
        while True:
            try:
                report = monitor_report(self._monitor.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                await wakeup.wait(self._monitor)
            else:
                self._reports.append((report.event, report.endpoint))
                self._turn_loop.wake()

    async def serve(self) -> None:
        """Take turns until cancelled: receive; dial and send."""
        hearing = self._turn_loop.joined(Phase.HEAR, self._hear)
        with hearing, self._turn_loop.joined(Phase.SAY, self._say, due_s=self._due_s):
            await self._turn_loop.watch(self._socket)

    def close(self) -> None:
        """Release both sockets; nothing more is sent."""
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(0)

    def _hear(self, _now: float) -> bool:
        heard = self._receive()
        if heard == _RECEIVE_BATCH:
            self._turn_loop.hurry()
        heard += len(self._reports)
        while self._reports:  # after the replies: a link may have failed since it brought them
            self._hear_report(*self._reports.popleft())
        return heard > 0

    def _receive(self) -> int:
        for count in range(_RECEIVE_BATCH):
            if not has_unread(self._socket):  # asking costs far less than an exception
                return count
            parts = self._socket.recv_multipart(zmq.NOBLOCK)
            connection = self._by_name.get(parts[0])
            if connection is not None and len(parts) == 2:
                self._dispatcher.from_link(connection.peer, parts[1])
        return _RECEIVE_BATCH

    def _hear_report(self, event: int, address: str) -> None:
        connection = self._by_address.get(address)
        if connection is None:
            return
        if event == _UP:
            self._driver.feed(LinkUp(connection.peer))
        elif event in _FAILURES:
            self._driver.feed(LinkDown(connection.peer, _FAILURES[zmq.Event(event)]))

    def _say(self, now: float) -> bool:
        self._driver.advance(now)
        sent, changed = self.counters["sent"], self._change_connections()
        for peer in list(self._ready):
            if self._send_all(peer):
                self._ready.pop(peer, None)
        self._retry_s = now + RETRY_S if self._ready else math.inf
        return changed or sent != self.counters["sent"]

    def _change_connections(self) -> bool:
        """One batch; whether there was something."""
        dialled, changed = 0, False
        for command in self._driver.take_transport():
            changed = True
            if isinstance(command, SendReady):
                self._ready[command.peer] = None
                continue
            if isinstance(command, Dial):
                self._dial(command)
            else:
                self._hang_up(command.peer)
            dialled += 1
            if dialled == _DIAL_BATCH:
                self._turn_loop.hurry()
                break
        return changed

    def _due_s(self) -> float:
        return min(self._driver.due_s(), self._retry_s)

    def _send_all(self, peer: NodeId) -> bool:
        """True when nothing is left to send; False when the peer is slow and more must wait."""
        connection = self._by_peer.get(peer)
        if connection is None:
            return True
        while (outgoing := self._driver.take(peer)) is not None:
            frame = _frame(outgoing)
            try:
                self._socket.send(connection.name, _FIRST_PART)
                self._socket.send(frame, zmq.NOBLOCK)
            except zmq.Again:
                self._driver.sessions.put_back(peer, outgoing)
                return False
            except zmq.ZMQError as error:
                if error.errno != errno.EHOSTUNREACH:
                    raise
                self._driver.feed(LinkDown(peer, "lost"))
                return True
            self.counters["sent"] += 1
            self.counters["sent_bytes"] += len(frame)
        return True

    def _dial(self, command: Dial) -> None:
        endpoint, address = command.endpoint, tcp_address(command.endpoint.host, command.endpoint.port)
        self._names = (self._names + 1) & 0xFFFFFFFF
        connection = _Connection(command.peer, self._names.to_bytes(4, "big"), address)
        self._socket.setsockopt(zmq.IPV6, 1 if ":" in endpoint.host else 0)
        self._socket.setsockopt(zmq.CURVE_SERVERKEY, endpoint.curve_key)
        self._socket.setsockopt(zmq.CONNECT_ROUTING_ID, connection.name)
        try:
            self._socket.connect(address)
        except zmq.ZMQError:  # not an address libzmq can dial: a name that does not resolve, say
            self._driver.feed(LinkDown(command.peer, "unreachable"))
            return
        self._by_peer[command.peer] = self._by_name[connection.name] = self._by_address[address] = connection

    def _hang_up(self, peer: NodeId) -> None:
        self._ready.pop(peer, None)
        connection = self._by_peer.pop(peer, None)
        if connection is None:
            return
        del self._by_name[connection.name]
        if self._by_address.get(connection.address) is connection:
            del self._by_address[connection.address]
            try:
                self._socket.disconnect(connection.address)
            except zmq.ZMQError as error:
                if error.errno != errno.ENOENT:  # libzmq has closed it by itself
                    raise


def _frame(outgoing: Outgoing) -> bytes:
    message, number = outgoing
    if isinstance(message, DeltaPayload):
        return join(Delta, message.fields, number=number)
    return encode(message, number=number)
