"""Sessions of several hosts on a network by values: each dial is answered, each message arrives, unless a test says
otherwise."""

from __future__ import annotations

from random import Random
from typing import TypeVar

from gossipd.core import events
from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import DeploymentClosed, DeploymentOpened
from gossipd.core.ids import DeploymentId
from gossipd.core.model import Shape
from gossipd.core.targets import EVERY_HOST, Targets
from gossipd.sessions.events import (
    Dial,
    HangUp,
    KeepTokens,
    LinkDown,
    LinkUp,
    MessageHeard,
    ReportEvent,
    SendReady,
    SessionCommand,
    SessionEvent,
)
from gossipd.sessions.peer_channel import Endpoint
from gossipd.sessions.send_queue import DeltaPayload
from gossipd.sessions.sessions import Sessions
from gossipd.sessions.settings import SessionSettings
from gossipd.wire import control
from membership.member import NodeId

MODEL, OTHER = DeploymentId(b"m" * 32), DeploymentId(b"o" * 32)
CHUNKS = 1000
GREETING = control.Hello("gossipd test")
SETTINGS = SessionSettings(redial_min_s=1, redial_max_s=4)
_Kind = TypeVar("_Kind")


def node(number: int) -> NodeId:
    return NodeId(bytes([number]) * 16)


def opened(deployment: DeploymentId = MODEL, chunks: int = CHUNKS, targets: Targets = EVERY_HOST) -> DeploymentOpened:
    return DeploymentOpened(deployment, Shape(chunks, 1, chunks, 1), ChunkSet(chunks), targets=targets)


def closed(deployment: DeploymentId = MODEL) -> DeploymentClosed:
    return DeploymentClosed(deployment)


class Network:
    """The hosts ``node(0)``, ``node(1)``, ..."""

    def __init__(self, count: int, settings: SessionSettings = SETTINGS) -> None:
        self.now = 100.0
        self.endpoints = {node(at): Endpoint(f"host-{at}", 1, bytes([at]) * 32) for at in range(count)}
        self.names = {peer: endpoint.host for peer, endpoint in self.endpoints.items()}
        self.settings = settings
        self.hosts = {peer: Host(self, peer) for peer in self.endpoints}
        self.dead: set[NodeId] = set()
        self.unheard: set[NodeId] = set()
        self.is_lossy = False

    def endpoint_of(self, peer: NodeId) -> Endpoint | None:
        return self.endpoints.get(peer)

    def has_answered(self, peer: NodeId) -> bool:
        return peer in self.endpoints and peer not in self.unheard

    def is_target(self, peer: NodeId, targets: Targets) -> bool:
        return targets.include(name=self.names[peer], rack="r")

    def __getitem__(self, number: int) -> Host:
        return self.hosts[node(number)]

    def run(self, until_s: float = 0.0) -> None:
        """Play what is due; time stands where it is when nothing is before ``until_s`` from now."""
        end = self.now + until_s
        while True:
            while any(host.step() for host in self.hosts.values()):
                pass
            due = min((host.sessions.next_deadline() for host in self.hosts.values()), default=end)
            if due > end:
                self.now = end
                return
            self.now = max(self.now, due)

    def restart(self, number: int) -> Host:
        """A new process, whose connections are reset."""
        peer = node(number)
        self.hosts[peer] = Host(self, peer)
        for other in self.hosts.values():
            if other.node != peer:
                other.tell(LinkDown(peer, "lost"))
        return self.hosts[peer]


class Host:
    """One brain, what it reported, and what it was sent."""

    def __init__(self, network: Network, peer: NodeId) -> None:
        self.network, self.node = network, peer
        self.sessions = Sessions(network, greeting=GREETING, settings=network.settings, rng=Random(peer[0]))
        self.reported: list[events.Event] = []
        self.sent: list[tuple[NodeId, control.Message | DeltaPayload]] = []
        self.commands: list[SessionCommand] = []
        self.is_slow = False
        self._ready: set[NodeId] = set()

    def of(self, kind: type[_Kind]) -> list[_Kind]:
        return [event for event in self.reported if isinstance(event, kind)]

    def sent_to(self, peer: NodeId, kind: type[_Kind]) -> list[_Kind]:
        return [message for to, message in self.sent if to == peer and isinstance(message, kind)]

    def tell(self, *told: SessionEvent) -> None:
        for event in told:
            self.sessions.handle(event, self.network.now)
        self._perform()

    def step(self) -> bool:
        """True when something happened."""
        if self.sessions.next_deadline() <= self.network.now:
            self.sessions.advance(self.network.now)
        performed = self._perform()
        return self._send() or performed

    def _perform(self) -> bool:
        commands = self.sessions.drain()
        self.commands += commands
        for command in commands:
            match command:
                case Dial(peer=peer):
                    is_there = peer in self.network.hosts and peer not in self.network.dead
                    self.tell(LinkUp(peer) if is_there else LinkDown(peer, "unreachable"))
                case SendReady(peer=peer):
                    self._ready.add(peer)
                case HangUp(peer=peer):
                    self._ready.discard(peer)
                case ReportEvent(event=event):
                    self.reported.append(event)
                case KeepTokens():
                    pass
        return bool(commands)

    def _send(self) -> bool:
        count = len(self.sent)
        for peer in sorted(self._ready if not self.is_slow else ()):
            self._ready.discard(peer)
            while (outgoing := self.sessions.take(peer)) is not None:
                message, number = outgoing
                self.sent.append((peer, message))
                if not self.network.is_lossy:
                    said = message.message if isinstance(message, DeltaPayload) else message
                    self.network.hosts[peer].tell(MessageHeard(self.node, said, number))
        return len(self.sent) > count
