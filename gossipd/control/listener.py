"""The socket that is bound: frames from connections whose key was accepted, and answers on the same connection.

What lives here: the server ROUTER and its turns. What does not: which keys are accepted (``authenticator``), and what
the frames mean (``dispatcher``). The ZAP handler names the identity of a connection when it is made, and libzmq
attaches it to every message. Nothing is sent except in answer to a frame of an accepted connection.

New connections are bounded by ``accept_limit``. What libzmq cannot bound: the number of parts of one message from an
accepted peer. Parts after the first are dropped as they are read, and each is at most ``FRAME_BYTES_MAX``.
"""

from __future__ import annotations

import errno
import math
import time
from collections import deque
from collections.abc import Callable
from functools import partial

import zmq

from gossipd.control.accept_limit import AcceptLimit, AddressDirectory
from gossipd.control.authenticator import ZAP_DOMAIN, Identity
from gossipd.control.dispatcher import FrameDispatcher
from gossipd.control.monitor_report import monitor_report
from gossipd.control.settings import ControlSettings
from gossipd.core.errors import LocalError
from gossipd.identity.keys import SecretKey
from gossipd.runtime.traffic_marks import octet_of
from gossipd.runtime.turn_loop import Phase, TurnLoop
from gossipd.runtime.zmq_trio import RETRY_S, SocketWakeup, has_unread, secure, tcp_address
from gossipd.wire.control_frame import FRAME_BYTES_MAX

_RECEIVE_BATCH = 64  # frames per turn before others get theirs: about 1 ms
_ANSWERS_MAX = 4096  # answers waiting to be sent, of all connections; one that does not fit is dropped
_ANSWERS_PER_IDENTITY_MAX = 512  # a peer that asks and does not read takes no other peer's room
_BACKLOG = 512  # connections the kernel keeps for us: a whole cluster dials a host that comes back
UNFINISHED = "unfinished"  # the reason of a connection that ended before it showed a key, whatever it was
_WATCHED = (
    zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.LISTENING
    | zmq.Event.ACCEPTED
    | zmq.Event.DISCONNECTED
)


class BindError(LocalError):
    """A port cannot be listened on. Fault: the configuration, another daemon, or an address that is not up yet.

    Retry: with a free port, or in a while: it must not have the code of a wrong configuration, after which service
    files leave a daemon down.
    """

    code = "E_BIND"


class ControlListener:
    """The bound socket. The turns of the turn loop own it; ``answer`` may be called on the trio loop."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], *, secret: SecretKey, settings: ControlSettings,
        turn_loop: TurnLoop, dispatcher: FrameDispatcher, directory: AddressDirectory,
        on_refused: Callable[[str, str], None],
    ) -> None:  # fmt: skip
        self._dispatcher, self._on_refused = dispatcher, on_refused
        self._turn_loop = turn_loop
        self._answers: dict[bytes, deque[bytes]] = {}
        self._answer_count = 0
        self._retry_s = math.inf
        self._port = 0
        self._accept_limit = AcceptLimit(settings, directory)
        self._identities: dict[str, Identity] = {}
        self.counters = {"received": 0, "received_bytes": 0, "answers_dropped": 0, "extra_parts": 0, "malformed": 0}
        self._socket = context.socket(zmq.ROUTER)
        secure(self._socket, handshake_s=settings.handshake_s, message_bytes_max=FRAME_BYTES_MAX)
        self._socket.setsockopt(zmq.TOS, octet_of(settings.dscp))
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.RCVHWM, settings.server_receive_messages_max)
        self._socket.setsockopt(zmq.SNDHWM, settings.link_send_messages_max)
        self._socket.setsockopt(zmq.BACKLOG, _BACKLOG)
        self._socket.setsockopt(zmq.CURVE_SERVER, 1)
        self._socket.setsockopt(zmq.CURVE_SECRETKEY, secret.curve_secret)
        self._socket.setsockopt(zmq.ZAP_DOMAIN, ZAP_DOMAIN)
        self._socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # no handler, no entry: libzmq's default is the opposite
        self._monitor = self._socket.get_monitor_socket(int(_WATCHED))

    def bind(self, host: str, port: int) -> int:
        """Listen; returns the port, which the system chooses when ``port`` is 0. Raises BindError."""
        self._socket.setsockopt(zmq.IPV6, 1 if ":" in host else 0)
        try:
            self._socket.bind(tcp_address(host, port))
        except zmq.ZMQError as error:
            raise BindError(f"cannot listen on {host} port {port} (TCP): {error.strerror}") from error
        endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._port = int(endpoint.rpartition(":")[2])
        return self._port

    @property
    def turned_away(self) -> int:
        """See ``AcceptLimit``."""
        return self._accept_limit.turned_away

    @property
    def dropped_addresses(self) -> tuple[str, ...]:
        """See ``AcceptLimit``."""
        return self._accept_limit.dropped_addresses(time.monotonic())

    @property
    def accepted_count(self) -> int:
        """See ``AcceptLimit``."""
        return self._accept_limit.open_count

    def answer(self, route: bytes, frame: bytes) -> bool:
        """Send ``frame`` on the connection a frame came from; False when too many answers wait already."""
        queue = self._answers.setdefault(route, deque())
        if self._answer_count >= _ANSWERS_MAX or len(queue) >= _ANSWERS_PER_IDENTITY_MAX:
            self.counters["answers_dropped"] += 1
            return False
        queue.append(frame)
        self._answer_count += 1
        self._turn_loop.wake()
        return True

    async def serve(self) -> None:
        """Take turns until cancelled."""
        hearing = self._turn_loop.joined(Phase.HEAR, self._hear)
        with hearing, self._turn_loop.joined(Phase.SAY, self._send_answers, due_s=lambda: self._retry_s):
            await self._turn_loop.watch(self._socket)

    async def watch(self) -> None:
        """Bound new connections, and report handshakes that ended before a key was shown: a plain socket, a scanner."""
        wakeup = SocketWakeup()
        refused = ""  # why a handshake failed; libzmq's next report is the end of its connection, which has the address
        while True:
            try:
                report = monitor_report(self._monitor.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                await wakeup.wait(self._monitor)  # a second at most
                self._accept_limit.drop_floods(time.monotonic())
                continue
            match report.event:
                case zmq.Event.ACCEPTED:
                    self._accept_limit.accepted(report.value, self._port, time.monotonic())
                case zmq.Event.DISCONNECTED:
                    address = self._accept_limit.ended(report.value, time.monotonic())
                    self._accept_limit.drop_floods(time.monotonic())
                    if refused:
                        self._on_refused(refused, address or "")
                        refused = ""
                case zmq.Event.LISTENING:
                    self._accept_limit.listening(report.value)
                case zmq.Event.HANDSHAKE_FAILED_NO_DETAIL:
                    refused = UNFINISHED
                case _:
                    refused = "handshake"

    def close(self) -> None:
        """Release the port and the sockets."""
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(0)

    def _hear(self, _now: float) -> bool:
        for count in range(_RECEIVE_BATCH):
            if not has_unread(self._socket):  # asking costs far less than an exception
                return count > 0
            route = self._socket.recv(zmq.NOBLOCK)
            part = self._socket.recv(zmq.NOBLOCK, copy=False)
            more = part.more
            while more:
                more = self._socket.recv(zmq.NOBLOCK, copy=False).more
                self.counters["extra_parts"] += 1
            identity = self._identity(part)
            if identity is None:
                self.counters["malformed"] += 1
                continue
            frame = part.bytes
            self.counters["received"] += 1
            self.counters["received_bytes"] += len(frame)
            self._dispatcher.from_identity(identity, partial(self.answer, route), frame)
        self._turn_loop.hurry()
        return True

    def _identity(self, part: zmq.Frame) -> Identity | None:
        try:
            user_id = str(part.get("User-Id"))
        except zmq.ZMQError:  # not a message of an authenticated connection: cannot happen on a CURVE socket
            return None
        if self._accept_limit.is_counting:
            self._accept_limit.authenticated(str(part.get("Peer-Address")))
        identity = self._identities.get(user_id)
        if identity is None:
            if len(self._identities) >= 4096:  # more than members and clients there are; a cache, not a register
                self._identities.clear()
            identity = self._identities[user_id] = Identity.from_user_id(user_id)
        return identity

    def _send_answers(self, now: float) -> bool:
        sent = 0
        for route, queue in list(self._answers.items()):
            before = len(queue)
            if self._send_to(route, queue):
                del self._answers[route]
            sent += before - len(queue)
        self._answer_count -= sent
        self._retry_s = now + RETRY_S if self._answers else math.inf
        return sent > 0

    def _send_to(self, route: bytes, queue: deque[bytes]) -> bool:
        """True when nothing is left for this connection; False when its peer reads too slowly for all of it now."""
        while queue:
            try:
                self._socket.send_multipart((route, queue[0]), zmq.NOBLOCK)
            except zmq.Again:
                return False
            except zmq.ZMQError as error:
                if error.errno != errno.EHOSTUNREACH:
                    raise
                self.counters["answers_dropped"] += len(queue)  # the peer has gone
                queue.clear()
            else:
                queue.popleft()
        return True
