"""Real control planes on loopback with a fake daemon behind each: members, events and messages as plain tables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

import trio
from msgspec.structs import replace

from gossipd.control.authenticator import Identity
from gossipd.control.control_plane import ControlPlane
from gossipd.control.delegate import Reply
from gossipd.control.settings import ControlSettings
from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import DeploymentOpened, Event, SendDelta, SendHoldings, StartSubscription
from gossipd.core.ids import DeploymentId
from gossipd.core.model import Shape
from gossipd.core.targets import EVERY_HOST, Targets
from gossipd.identity.keys import SecretKey
from gossipd.runtime.turn_loop import TurnLoop
from gossipd.sessions.events import LinkDown
from gossipd.sessions.peer_channel import Endpoint, PeerChannel
from gossipd.wire import control
from membership.member import NodeId, node_id

# Shorter than the daemon's, so that refusals are seen soon.
QUICK = ControlSettings(handshake_s=0.4, zap_hold_s=0.1, redial_min_s=0.02, redial_max_s=0.1, resubscribe_s=0.3)
# Where another end than that by time is looked for: a slow machine breaks no link.
PATIENT = replace(QUICK, handshake_s=20.0, resubscribe_s=20.0)
DEPLOYMENT = DeploymentId(b"d" * 32)
_Kind = TypeVar("_Kind")


@dataclass
class FakeHost:
    """The daemon as one plane sees it."""

    secret: SecretKey
    directory: dict[NodeId, Endpoint] = field(default_factory=dict)
    known: dict[bytes, NodeId] = field(default_factory=dict)
    clients: dict[bytes, bytes] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    requests: list[tuple[Identity, control.Message]] = field(default_factory=list)
    refusals: list[tuple[str, str]] = field(default_factory=list)
    turned_away: list[tuple[NodeId, DeploymentId]] = field(default_factory=list)
    addresses: set[str] = field(default_factory=set)
    shown_from: set[str] = field(default_factory=set)
    answer: Callable[[control.Message], control.Message | None] = lambda _: None
    tokens: tuple[bytes, ...] = ()
    silent: set[NodeId] = field(default_factory=set)
    asked: list[NodeId] = field(default_factory=list)
    given: list[tuple[NodeId, tuple[bytes, ...], int]] = field(default_factory=list)

    @property
    def node(self) -> NodeId:
        return node_id(self.secret.public.ed25519)

    def member_of(self, curve_key: bytes, address: str = "") -> NodeId | None:
        self.shown_from.add(address)
        return self.known.get(curve_key)

    def client_of(self, curve_key: bytes) -> bytes | None:
        return self.clients.get(curve_key)

    def endpoint_of(self, node: NodeId) -> Endpoint | None:
        return self.directory.get(node)

    def has_answered(self, node: NodeId) -> bool:
        return node not in self.silent

    def ask(self, node: NodeId) -> None:
        self.asked.append(node)

    def is_target(self, node: NodeId, targets: Targets) -> bool:
        return targets == EVERY_HOST

    def on_subscriber_refused(self, node: NodeId, deployment: DeploymentId) -> None:
        self.turned_away.append((node, deployment))

    def is_member_address(self, address: str) -> bool:
        return address in self.addresses

    def greeting(self) -> control.Hello:
        return control.Hello("gossipd test")

    def tokens_for(self, node: NodeId) -> tuple[tuple[bytes, ...], int]:
        return self.tokens, 10 if self.tokens else 0

    def on_tokens(self, node: NodeId, tokens: tuple[bytes, ...], valid_s: int) -> None:
        self.given.append((node, tokens, valid_s))

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def on_request(self, identity: Identity, message: control.Message, reply: Reply) -> None:
        self.requests.append((identity, message))
        answer = self.answer(message)
        if answer is not None:
            reply(answer)

    def on_refused(self, reason: str, address: str, key: bytes) -> None:
        self.refusals.append((reason, address))

    def introduce(self, other: FakeHost, port: int) -> None:
        """Let this host know ``other`` as a member that listens on ``port``."""
        key = other.secret.public.curve25519
        self.known[key] = other.node
        self.directory[other.node] = Endpoint("127.0.0.1", port, key)


@dataclass
class Node:
    """A running plane and its fake daemon."""

    host: FakeHost
    plane: ControlPlane
    port: int
    scope: trio.CancelScope

    def of(self, kind: type[_Kind]) -> list[_Kind]:
        return [event for event in self.host.events if isinstance(event, kind)]

    @property
    def greetings(self) -> int:
        """How often somebody has said Hello."""
        return self.plane.statistics().get("control_greetings", 0)

    def channel(self, other: Node) -> PeerChannel | None:
        return self.plane.driver.sessions._channels.get(other.host.node)

    def lose(self, other: Node) -> None:
        """The link to ``other`` fails."""
        self.plane.driver.feed(LinkDown(other.host.node, "lost"))

    def open(self, size: int = 1000) -> None:
        self.plane.hear(DeploymentOpened(DEPLOYMENT, Shape(size, 1, size, 1), ChunkSet(size)))

    def subscribe(self, peer: NodeId) -> None:
        self.plane.hear(StartSubscription(peer, DEPLOYMENT))

    def send_holdings(self, to: Node, held: ChunkSet, free_slots: int = 4) -> None:
        self.plane.hear(SendHoldings(to.host.node, DEPLOYMENT, held, free_slots))

    def send_delta(
        self, *to: Node, added: tuple[int, ...] = (), dropped: tuple[int, ...] = (), reading: tuple[int, ...] = (),
        free_slots: int = 0,
    ) -> None:  # fmt: skip
        self.plane.hear(SendDelta(tuple(one.host.node for one in to), DEPLOYMENT, added, dropped, reading, free_slots))


def secret_of(number: int) -> SecretKey:
    """The same keys in every run."""
    return SecretKey(bytes([number]) * 32)


async def until(condition: Callable[[], object], *, seconds_max: float = 120.0) -> None:
    """Return as soon as ``condition`` holds; fails the test if it never does. The time is a deadline, not a wait."""
    with trio.fail_after(seconds_max):
        while not condition():
            await trio.sleep(0.002)


async def start(
    nursery: trio.Nursery,
    number: int,
    *,
    settings: ControlSettings = PATIENT,
    port: int = 0,
    address: str = "127.0.0.1",
) -> Node:
    """A plane with key ``number``, on loopback unless told otherwise, that knows nobody but itself."""
    host = FakeHost(secret_of(number))
    plane = ControlPlane(secret=host.secret, host=host, settings=settings, rng=Random(number), turn_loop=TurnLoop())
    scope = trio.CancelScope()

    async def run(task_status: trio.TaskStatus[int]) -> None:
        with scope:
            await plane.serve(address, port, task_status=task_status)

    node = Node(host, plane, await nursery.start(run), scope)
    host.introduce(host, node.port)
    return node


@asynccontextmanager
async def nodes(
    count: int, *, settings: ControlSettings = PATIENT, acquainted: bool = True
) -> AsyncIterator[list[Node]]:
    """``count`` planes that know each other."""
    async with trio.open_nursery() as nursery:
        found = [await start(nursery, number + 1, settings=settings) for number in range(count)]
        if acquainted:
            for one in found:
                for other in found:
                    one.host.introduce(other.host, other.port)
        yield found
        nursery.cancel_scope.cancel()
