"""The links we dial: one ROUTER socket, one connection per peer we have something to say to.

What lives here: dialing, redialing, queues per peer, evidence of who can be reached. What does not: what is said.

Why one ROUTER for all peers and not a DEALER each: one descriptor, one owner task and one monitor instead of forty;
a batch for forty neighbours goes out in one wake-up of one task. Three things about libzmq 4.3.5 shape this file:

* ``ZMQ_CONNECT_ROUTING_ID`` gives each connection a name that we choose, but only with ``ZMQ_IMMEDIATE`` off (with it
  on, the name goes to whichever connection completes next). So messages are kept in our own queue until the monitor
  reports the handshake's success; nothing stale is ever sent after a reconnect.
* A name that is still in use aborts the process, so each dial gets a new one.
* After a failed handshake libzmq redials at its shortest pause for ever, and after ZAP 400 never. So its own
  reconnecting is off, and a failed link is dialed again from here, later each time, while it is wanted.

When a link fails, what was queued is dropped and the plane is told: it knows what to say again.
"""

from __future__ import annotations

import errno
import math
from collections import deque
from collections.abc import Callable
from random import Random

import trio
import zmq
from zmq.utils.monitor import parse_monitor_message

from gossipd.control.peer_channel import ChannelState, Endpoint, PeerChannel
from gossipd.control.settings import ControlSettings
from gossipd.identity.keys import SecretKey
from gossipd.runtime.turn_loop import Phase, TurnLoop
from gossipd.runtime.zmq_trio import RETRY_S, SocketWakeup, secure, tcp_address
from gossipd.wire.control_frame import FRAME_BYTES_MAX
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
_RECEIVE_BATCH = 64  # frames per turn before others get theirs: about 1 ms
_SWEEP_S_MAX = 0.5  # who is wanted, and who has been idle for long enough, changes without a word to us


class PeerChannels:
    """All connections that this node dials. The beat's turns own them; the rest may be called on the trio loop."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        *,
        secret: SecretKey,
        settings: ControlSettings,
        rng: Random,
        turn_loop: TurnLoop,
        endpoint_of: Callable[[NodeId], Endpoint | None],
        is_wanted: Callable[[NodeId], bool],
        on_frame: Callable[[NodeId, bytes], None],
        on_up: Callable[[NodeId], None],
        on_down: Callable[[NodeId, str], None],
        on_let_go: Callable[[NodeId], None],
    ) -> None:
        """
        Args:
            on_let_go: nobody wants a failed link any more, so it will not be tried again.
        """
        self._settings = settings
        self._rng = rng
        self._endpoint_of, self._is_wanted = endpoint_of, is_wanted
        self._on_frame, self._on_up, self._on_down, self._on_let_go = on_frame, on_up, on_down, on_let_go
        self._links: dict[NodeId, PeerChannel] = {}
        self._by_name: dict[bytes, PeerChannel] = {}
        self._by_address: dict[str, PeerChannel] = {}
        self._ready: dict[NodeId, PeerChannel] = {}  # links that are up and have something queued
        self._reports: deque[tuple[int, str]] = deque()  # from the monitor; drained in every turn
        self._names = rng.randrange(1 << 16) << 16
        self._turn_loop = turn_loop
        self._sweep_s = 0.0  # when to look at all links again
        self._retry_s = math.inf
        self.counters = {"sent": 0, "sent_bytes": 0, "dialed": 0, "failed": 0, "dropped": 0, "unknown_peer": 0}
        self._socket = context.socket(zmq.ROUTER)
        secure(self._socket, handshake_s=settings.handshake_s, message_bytes_max=FRAME_BYTES_MAX)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.SNDHWM, settings.link_send_messages_max)
        self._socket.setsockopt(zmq.RCVHWM, settings.server_receive_messages_max)
        self._socket.setsockopt(zmq.RECONNECT_IVL, -1)
        heartbeat_ms, silence_ms = int(settings.heartbeat_s * 1000), int(settings.silence_s * 1000)
        self._socket.setsockopt(zmq.TCP_MAXRT, silence_ms)  # what is said and not acknowledged ends the link (Linux)
        self._socket.setsockopt(zmq.HEARTBEAT_IVL, heartbeat_ms)
        self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, silence_ms)
        self._socket.setsockopt(zmq.HEARTBEAT_TTL, heartbeat_ms * 3)
        self._socket.setsockopt(zmq.CONNECT_TIMEOUT, int(settings.handshake_s * 1000))
        self._socket.setsockopt(zmq.CURVE_SECRETKEY, secret.curve_secret)
        self._socket.setsockopt(zmq.CURVE_PUBLICKEY, secret.public.curve25519)
        self._monitor = self._socket.get_monitor_socket(int(_WATCHED))

    def channel_to(self, node: NodeId) -> PeerChannel | None:
        """The link to ``node``, dialed soon if it is not up; None when nobody knows where it is."""
        channel = self._links.get(node)
        if channel is None:
            if self._endpoint_of(node) is None or len(self._links) >= self._settings.links_max:
                self.counters["unknown_peer"] += 1
                return None
            channel = self._links[node] = PeerChannel(node, self._settings)
            self._sweep_soon()
        channel.used_s = trio.current_time()
        return channel

    def peek(self, node: NodeId) -> PeerChannel | None:
        """The link to ``node`` if there is one; does not keep it from falling idle."""
        return self._links.get(node)

    def queued(self, channel: PeerChannel) -> None:
        """Something was put into the queue of ``peer_channel``: send it in the next turn."""
        if channel.state is ChannelState.UP:
            self._ready[channel.node] = channel
            self._turn_loop.wake()

    def hurry(self, node: NodeId) -> None:
        """Somebody waits for an answer: do not sit out a long pause before dialing again, only the shortest."""
        channel = self._links.get(node)
        if channel is not None and channel.state is ChannelState.WAITING:
            channel.dial_at_s = min(channel.dial_at_s, channel.failed_at_s + self._settings.redial_min_s)
            self._sweep_soon()

    def moved(self, node: NodeId) -> None:
        """The member's record has changed: dial it at its new address if that differs."""
        channel = self._links.get(node)
        endpoint = self._endpoint_of(node)
        if channel is None:
            return
        if endpoint is None:
            self.forget(node)
        elif (
            channel.endpoint is not None and channel.endpoint != endpoint and channel.state is not ChannelState.WAITING
        ):
            self._fail(channel, "moved")
        elif channel.state is ChannelState.WAITING:
            channel.dial_at_s = trio.current_time()
            self._sweep_soon()

    def forget(self, node: NodeId) -> None:
        """Close the link to a member that is gone."""
        channel = self._links.pop(node, None)
        if channel is not None:
            self._hang_up(channel)
            self._on_down(node, "forgotten")

    async def watch(self) -> None:
        """Collect the monitor's reports for ``serve``. Runs beside it until cancelled."""
        wakeup = SocketWakeup()
        while True:
            try:
                event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                await wakeup.wait(self._monitor)
            else:
                self._reports.append((event["event"], event["endpoint"].decode("ascii", "replace")))
                self._turn_loop.wake()

    async def serve(self) -> None:
        """Take part in the beat until cancelled: dial, receive, send."""
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
            try:
                parts = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return count
            channel = self._by_name.get(parts[0])
            if channel is not None and len(parts) == 2:
                self._on_frame(channel.node, parts[1])
        return _RECEIVE_BATCH

    def _say(self, now: float) -> bool:
        dialed, sent = self.counters["dialed"], self.counters["sent"]
        if now >= self._sweep_s:
            self._sweep_s = math.inf  # what fails during the sweep is due again
            self._sweep_s = min(self._sweep_s, self._sweep(now))
        for channel in list(self._ready.values()):
            if self._send_queue(channel):
                self._ready.pop(channel.node, None)
        self._retry_s = now + RETRY_S if self._ready else math.inf
        return (dialed, sent) != (self.counters["dialed"], self.counters["sent"])

    def _due_s(self) -> float:
        return min(self._sweep_s, self._retry_s)

    def _sweep_soon(self) -> None:
        self._sweep_s = 0.0
        self._turn_loop.wake()

    def _send_queue(self, channel: PeerChannel) -> bool:
        """True when nothing is left to send; False when the peer is slow and more must wait."""
        while (frame := channel.next_frame()) is not None:
            try:
                self._socket.send(channel.name, zmq.NOBLOCK | zmq.SNDMORE)
                self._socket.send(frame, zmq.NOBLOCK)
            except zmq.Again:
                channel.put_back(frame)
                return False
            except zmq.ZMQError as error:
                if error.errno != errno.EHOSTUNREACH:
                    raise
                self._fail(channel, "lost")
                return True
            self.counters["sent"] += 1
            self.counters["sent_bytes"] += len(frame)
        return True

    def _sweep(self, now: float) -> float:
        """Dial what is due, close what is idle; returns when to look again."""
        next_s = now + _SWEEP_S_MAX
        for channel in list(self._links.values()):
            if channel.state is ChannelState.WAITING:
                if not (channel.has_queued or self._is_wanted(channel.node)):
                    del self._links[channel.node]
                    self._on_let_go(channel.node)
                elif channel.dial_at_s <= now:
                    self._dial(channel, now)
                else:
                    next_s = min(next_s, channel.dial_at_s)
            elif channel.state is ChannelState.DIALING:
                if channel.dial_until_s <= now:
                    self._fail(channel, "unreachable")
                next_s = min(next_s, channel.dial_until_s)
            elif channel.used_s + self._settings.link_idle_s <= now and not self._is_wanted(channel.node):
                del self._links[channel.node]
                self._hang_up(channel)
        return next_s

    def _dial(self, channel: PeerChannel, now: float) -> None:
        endpoint = self._endpoint_of(channel.node)
        if endpoint is None:
            self.forget(channel.node)
            return
        address = tcp_address(endpoint.host, endpoint.port)
        if (other := self._by_address.get(address)) is not None:
            self._fail(other, "moved")  # another key answers there now, or answered there before
        self._names = (self._names + 1) & 0xFFFFFFFF
        channel.dialing(endpoint, address, self._names.to_bytes(4, "big"), now)
        self._socket.setsockopt(zmq.IPV6, 1 if ":" in endpoint.host else 0)
        self._socket.setsockopt(zmq.CURVE_SERVERKEY, endpoint.curve_key)
        self._socket.setsockopt(zmq.CONNECT_ROUTING_ID, channel.name)
        self.counters["dialed"] += 1
        try:
            self._socket.connect(address)
        except zmq.ZMQError:  # not an address libzmq can dial: a name that does not resolve, say
            self._fail(channel, "unreachable")
            return
        self._by_name[channel.name] = self._by_address[address] = channel

    def _hear_report(self, event: int, address: str) -> None:
        channel = self._by_address.get(address)
        if channel is None:
            return
        if event == _UP:
            if channel.state is ChannelState.DIALING:
                channel.up(trio.current_time())
                self._on_up(channel.node)
                self.queued(channel)
        elif event in _FAILURES and channel.state is not ChannelState.WAITING:
            self._fail(channel, _FAILURES[zmq.Event(event)])

    def _fail(self, channel: PeerChannel, reason: str) -> None:
        self._hang_up(channel)
        self.counters["failed"] += 1
        self.counters["dropped"] += channel.failed(trio.current_time(), jitter=0.5 + self._rng.random() / 2)
        self._sweep_s = min(self._sweep_s, channel.dial_at_s)
        self._on_down(channel.node, reason)

    def _hang_up(self, channel: PeerChannel) -> None:
        self._ready.pop(channel.node, None)
        self._by_name.pop(channel.name, None)
        if self._by_address.get(channel.address) is channel:
            del self._by_address[channel.address]
            try:
                self._socket.disconnect(channel.address)
            except zmq.ZMQError as error:
                if error.errno != errno.ENOENT:  # libzmq has closed it by itself
                    raise
