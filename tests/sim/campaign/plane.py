"""The network under one simulated host's sessions: connections that are dialed, fall silent, are reset; messages in
order over them.

What lives here: time, cuts and resets, on the virtual clock. What does not: any decision, which are those of the real
``gossipd.sessions``; frames (messages go as values); CURVE (everybody is who they say); requests and replies.

A message under way when its direction is cut waits as TCP would have it wait, and arrives when the cut is mended, or is
lost with the connection when nothing has acknowledged it for ``silence_s``; so many and no more are under way on one
connection. A stopped process answers neither a dial nor a heartbeat, while its kernel acknowledges what is said to it.
"""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING

from gossipd.control.settings import ControlSettings
from gossipd.core.ids import DeploymentId
from gossipd.core.targets import Targets
from gossipd.sessions.events import (
    AskPeer,
    Dial,
    EndpointChanged,
    HangUp,
    LinkDown,
    LinkUp,
    MessageHeard,
    ReportEvent,
    SendReady,
    SessionEvent,
    SessionWord,
)
from gossipd.sessions.peer_channel import Endpoint
from gossipd.sessions.send_queue import DeltaPayload, Outgoing
from gossipd.sessions.sessions import Sessions
from gossipd.wire.control import Hello
from membership.member import NodeId
from tests.sim.campaign.announced import Announcements

if TYPE_CHECKING:
    from tests.sim.campaign.daemon import Daemon

_SETTINGS = ControlSettings()
_GREETING = Hello("campaign")
_DIAL_S = 0.002  # TCP and CURVE on an idle network
_RETRANSMIT_S = 0.2
_NOTHING_TOLD = -1  # no set of chunks


class Connection:
    """One dialed connection, from the dial to its end; what is sent on it is lost with it."""

    __slots__ = ("arrives_s", "is_over", "is_unanswered", "is_up", "is_watched", "peer", "retained", "under_way")

    def __init__(self, peer: int) -> None:
        self.peer = peer
        self.retained: list[Outgoing] = []
        """What a cut holds back, in order: nothing that was sent later passes it."""
        self.is_up = self.is_over = False
        self.is_watched = self.is_unanswered = False
        self.under_way = 0
        self.arrives_s = 0.0


class Plane:
    """See the module. One per life of a host."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._world = daemon.world
        self.sessions = Sessions(
            self, greeting=_GREETING, settings=_SETTINGS, rng=Random(daemon.random.getrandbits(64))
        )
        self.announcements = Announcements()
        self._connections: dict[int, Connection] = {}
        self._wake_s = math.inf

    # ---- the sessions' caller ------------------------------------------------------------------

    def hear(self, word: SessionWord) -> None:
        """See ControlPlane."""
        self.announcements.say(word)
        self._feed(word)

    def member_changed(self, node: NodeId) -> None:
        """See ControlPlane."""
        self._feed(EndpointChanged(node))

    def endpoint_of(self, node: NodeId) -> Endpoint | None:
        """See EndpointDirectory."""
        record = self._daemon.members.record(node)
        return None if record is None else Endpoint(str(self._world.index_of[node]), 1, node, record.boot)

    def has_answered(self, node: NodeId) -> bool:
        """See EndpointDirectory."""
        return self._world.wires.swim(self._daemon.index).has_answered(node)

    def is_target(self, node: NodeId, targets: Targets) -> bool:
        """See EndpointDirectory."""
        return self._daemon.members.is_target(node, targets)

    def _feed(self, event: SessionEvent) -> None:
        self.sessions.handle(event, self._world.now)
        self._perform()

    def _perform(self) -> None:
        for command in self.sessions.drain():
            match command:
                case ReportEvent():
                    self.announcements.hear(command.event)
                    self._daemon.post(command.event)
                case SendReady():
                    self._send(self._connections[self._world.index_of[command.peer]])
                case AskPeer():
                    self._world.wires.ask(self._daemon.index, command.peer)
                case Dial():
                    self._dial(self._world.index_of[command.peer])
                case HangUp():
                    connection = self._connections.pop(self._world.index_of[command.peer], None)
                    if connection is not None:
                        connection.is_over = True
        due_s = self.sessions.next_deadline()
        if due_s < self._wake_s:
            self._wake_s = due_s
            self._daemon.after(max(0.0, due_s - self._world.now), self._wake, due_s)

    def _wake(self, due_s: float) -> None:
        if due_s == self._wake_s:
            self._wake_s = math.inf
            self.sessions.advance(self._world.now)
            self._perform()

    # ---- dialing -------------------------------------------------------------------------------

    def _dial(self, index: int) -> None:
        connection = self._connections[index] = Connection(index)
        peer = self._world.daemons[index]
        if not self._world.wires.is_whole(self._daemon.index, index) or peer.is_stopped or not peer.is_powered:
            self._daemon.after(_SETTINGS.handshake_s, self._dialed, connection, False)
        else:
            self._daemon.after(_DIAL_S, self._dialed, connection, peer.is_up)

    def _dialed(self, connection: Connection, answered: bool) -> None:
        peer = self._world.daemons[connection.peer]
        if connection.is_over:
            return
        if answered and peer.is_up and peer.members.record(self._daemon.node) is not None:
            connection.is_up = True
            self._feed(LinkUp(peer.node))
        else:
            self._feed(LinkDown(peer.node, "unreachable"))

    # ---- sending -------------------------------------------------------------------------------

    def _send(self, connection: Connection) -> None:
        """As much as a connection takes; the rest stays where it is merged."""
        world, node = self._world, self._world.nodes[connection.peer]
        while connection.under_way < _SETTINGS.link_send_messages_max:
            outgoing = self.sessions.take(node)
            if outgoing is None:
                return
            connection.under_way += 1
            connection.arrives_s = max(connection.arrives_s, world.now + world.delay())
            world.at(connection.arrives_s, self._arrive, connection, outgoing)

    def _arrive(self, connection: Connection, outgoing: Outgoing) -> None:
        """The message is at the peer's host, if nothing holds it or one before it back."""
        if connection.is_over:
            return
        connection.retained.append(outgoing)
        if len(connection.retained) == 1:
            self._deliver(connection)

    def _deliver(self, connection: Connection) -> None:
        own, peer = self._daemon, self._world.daemons[connection.peer]
        if connection.is_over:
            return
        if not peer.is_up:
            self._feed(LinkDown(peer.node, "lost"))
            return
        if not self._world.wires.is_open(own.index, connection.peer):
            self._world.wires.cut_struck(own.index, connection.peer)
            self._unanswered(connection)
            self._world.after(_RETRANSMIT_S, self._deliver, connection)
            return
        retained, connection.retained = connection.retained, []
        for outgoing in retained:
            connection.under_way -= 1
            if peer.is_stopped:
                peer.after(0.0, peer.plane.hear_message, own.node, outgoing)
            else:
                peer.plane.hear_message(own.node, outgoing)
        if not connection.is_over and not own.is_stopped:
            self._send(connection)

    def hear_message(self, node: NodeId, outgoing: Outgoing) -> None:
        """See FrameDispatcher."""
        if self._daemon.members.record(node) is not None:
            message, number = outgoing
            said = message.message if isinstance(message, DeltaPayload) else message
            self._feed(MessageHeard(node, said, number))

    # ---- what ends a connection ----------------------------------------------------------------

    def reset(self, peer: int) -> None:
        """The peer's process is gone, and its kernel says so."""
        if self.is_up_to(peer):
            self._feed(LinkDown(self._world.nodes[peer], "lost"))

    def watch(self, peer: int) -> None:
        """Something may keep the peer from answering: the next heartbeat will tell."""
        connection = self._connections.get(peer)
        if connection is not None and connection.is_up and not connection.is_watched:
            connection.is_watched = True
            wait_s = _SETTINGS.heartbeat_s * self._daemon.random.random() + _SETTINGS.silence_s
            self._daemon.after(wait_s, self._heartbeat, connection)

    def _heartbeat(self, connection: Connection) -> None:
        connection.is_watched = False
        if self._world.daemons[connection.peer].is_stopped or self._is_cut(connection):
            self._lose(connection)

    def _unanswered(self, connection: Connection) -> None:
        if not connection.is_unanswered:
            connection.is_unanswered = True
            self._daemon.after(_SETTINGS.silence_s, self._give_up, connection)

    def _give_up(self, connection: Connection) -> None:
        connection.is_unanswered = False
        if self._is_cut(connection):
            self._lose(connection)

    def _lose(self, connection: Connection) -> None:
        if not connection.is_over:
            self._feed(LinkDown(self._world.nodes[connection.peer], "lost"))

    def _is_cut(self, connection: Connection) -> bool:
        is_there = self._world.daemons[connection.peer].is_up
        return not is_there or not self._world.wires.is_whole(self._daemon.index, connection.peer)

    def is_up_to(self, peer: int) -> bool:
        """Whether there is a connection up to that peer."""
        connection = self._connections.get(peer)
        return connection is not None and connection.is_up

    def is_quiet_between(self, peer: NodeId) -> bool:
        """Whether a peer runs, and has nothing for this host that waits or is on its way, nor this host for it."""
        own, index = self._daemon, self._world.index_of[peer]
        daemon = self._world.daemons[index]
        if not daemon.is_up or daemon.is_stopped or not self.is_quiet_to(index):
            return False
        channel = daemon.plane.sessions._channels.get(own.node)
        return channel is not None and not channel.queue and daemon.plane.is_quiet_to(own.index)

    def listens_to(self, deployment: DeploymentId) -> list[int]:
        """The peers whose deltas this host has asked for and not declined."""
        subscriptions, index_of = self.sessions._exchange.subscriptions, self._world.index_of
        return [index_of[peer] for peer in subscriptions._by_peer if deployment in subscriptions.of(peer)]

    def told_by(self, peer: NodeId, deployment: DeploymentId) -> int | None:
        """What a peer has announced to this host; None while this host has a reason to doubt that it arrived."""
        subscription = self.sessions._exchange.subscriptions._by_peer.get(peer, {}).get(deployment)
        if subscription is None or subscription.number is None:
            return None
        speaker = self._world.daemons[self._world.index_of[peer]].plane
        is_open = deployment in speaker.sessions._exchange._chunk_counts
        return speaker.announcements.told.get((self._daemon.node, deployment), _NOTHING_TOLD if is_open else None)

    def is_quiet_to(self, peer: int) -> bool:
        """Whether there is a connection up to that peer, with nothing on its way."""
        connection = self._connections.get(peer)
        return connection is not None and connection.is_up and not connection.under_way
