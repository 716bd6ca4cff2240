"""The control port: frames of members and clients, as libzmq hands them over, into what understands them.

Real: the frame, who may send what, the sessions, pending requests, the delegate, the planner behind it. Made up:
ZeroMQ, and the adapters that perform the planner's commands (fetches end at once, well or badly). CURVE comes before
any of this; a change before sealing is one in a message's fields, packed again as a genuine peer would.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import msgpack
import msgspec
import trio

from gossipd.control.authenticator import Identity
from gossipd.control.dispatcher import FrameDispatcher
from gossipd.control.requests import RequestTable
from gossipd.control.session_driver import SessionDriver
from gossipd.control.settings import ControlSettings
from gossipd.core import events
from gossipd.core.chunkset import ChunkSet
from gossipd.core.ids import DeploymentId
from gossipd.core.model import Shape
from gossipd.daemon.control_delegate import BulkTokens, ControlDelegate
from gossipd.runtime.turn_loop import TurnLoop
from gossipd.sessions.events import Dial, LinkUp
from gossipd.sessions.send_queue import DeltaPayload
from gossipd.transfer.tokens import IssuedTokens, ReceivedTokens
from gossipd.wire import control
from gossipd.wire.control_frame import FRAME_VERSION, encode, join
from membership.events import MemberUp
from membership.member import Member, MemberState, NodeId, Record, node_id
from tests.fuzz.mutations import any_value, mutate_bytes, mutate_integer, mutate_value, pick
from tests.fuzz.surface import Case
from tests.fuzz.surfaces.application import CHUNKS, MODEL, Application

PEERS = 6
_OTHER = DeploymentId(b"o" * 32)  # known to nobody here
_CLIENT = b"c" * 32
_STEP_S = 0.003
_REFOLLOW_EVERY = 64


class ControlSurface:
    """See the module."""

    name = "control"
    share = 1.0

    def __init__(self, rng: Random) -> None:
        publics = [bytes([number + 1]) * 32 for number in range(PEERS)]
        self._application = Application(publics)
        self._nodes = [node_id(public) for public in publics[1:]]
        for number, public in enumerate(publics[1:], start=1):
            record = Record(
                public,
                1,
                1,
                f"host-{number}",
                f"rack-{number % 3}",
                "zone",
                "10.0.0.1",
                7946,
                7947,
                public,
                0,
                "1",
                b"",
            )
            self._application.hear(MemberUp(Member(record, MemberState.ALIVE, 0, 0.0)), 1.0)
        delegate = ControlDelegate(
            directory=self._application.cluster,
            live=cast(Any, SimpleNamespace(clients=())),
            tokens=BulkTokens(IssuedTokens(life_s=1e9), ReceivedTokens()),
            driver=cast(Any, SimpleNamespace(post=self._post)),
            trigger_server=cast(Any, SimpleNamespace(hear=lambda *_: False)),
            audit=cast(Any, SimpleNamespace(record=self._application.audit)),
            membership_host=cast(Any, SimpleNamespace(swim=SimpleNamespace(has_answered=bool))),
            self_checks=cast(Any, SimpleNamespace(explain=lambda *_: False)),
            sketches=cast(Any, SimpleNamespace(answer=lambda *_: control.Refused("E_BUSY"))),
        )
        self._requests = RequestTable(limit=64)
        self._counters: Counter[str] = Counter()
        self.heard = 0
        """Events that reached the planner."""
        driver = self._driver = SessionDriver(
            host=delegate, requests=self._requests, settings=ControlSettings(), rng=Random(1), turn_loop=TurnLoop()
        )
        driver.feed(events.DeploymentOpened(MODEL, Shape(CHUNKS, 65_536, CHUNKS * 65_536, 1), ChunkSet(CHUNKS)))
        self._dispatcher = FrameDispatcher(
            host=delegate, requests=self._requests, driver=driver, counters=self._counters
        )
        self._rng = Random(rng.getrandbits(32))
        self._now = 100.0
        self._count = 0
        self._deltas: Counter[NodeId] = Counter()
        self._corpus = _genuine(self._nodes)
        self._frames = [encode(message, number=number) for message, number in self._corpus]
        # The clock of the trio loop stands still within a run of this surface; what hears by it sees no time pass.
        self._began_s = trio.current_time()

    @property
    def counters(self) -> Counter[str]:
        """What was dropped, by kind: frames and, behind them, messages."""
        return self._counters + self._driver.sessions.counters

    def case(self, rng: Random) -> Case:
        """See Surface."""
        at = int(rng.random() * len(self._corpus))
        route = pick(rng, ("visitor", "visitor", "visitor", "link", "client"))
        node = int(rng.random() * len(self._nodes))
        message, number = self._corpus[at]
        if rng.random() < 0.4:
            return Case(route, mutate_bytes(self._frames[at], rng, self._frames), False, node)
        draw = rng.random()
        if draw < 0.25 and isinstance(message, control.Delta):
            number = self._deltas[self._nodes[node]] + int(rng.random() * 3)
            self._deltas[self._nodes[node]] = number
        if draw < 0.4 and isinstance(message, control.Delta | control.Holdings):
            return Case(route, _other_news(message, number, rng), True, node)
        fields = [control.NUMBERS[type(message)], number, *msgspec.structs.astuple(message)]
        if draw < 0.85:
            place = 1 + int(rng.random() * (len(fields) - 1))
            fields[place] = mutate_value(fields[place], rng)
        else:
            fields = mutate_value(fields, rng)
        if rng.random() < 0.05 and isinstance(fields, list):
            fields.append(any_value(rng))
        try:
            body = bytes([FRAME_VERSION]) + msgpack.packb(fields, use_bin_type=True)
        except (OverflowError, ValueError, TypeError):
            return Case(route, mutate_bytes(self._frames[at], rng, self._frames), False, node)
        return Case(route, body, True, node)

    def seal(self, case: Case) -> tuple[str, bytes, NodeId]:
        """See Surface."""
        return case.kind, case.body, self._nodes[case.context]

    async def deliver(self, arrived: tuple[str, bytes, NodeId]) -> None:
        """See Surface."""
        route, frame, node = arrived
        if route == "link":
            with self._requests.opened(node, control.Token) as pending:
                assert pending.number
                self._dispatcher.from_link(node, frame)
        else:
            identity = Identity(node=node) if route == "visitor" else Identity(client=_CLIENT)
            self._dispatcher.from_identity(identity, self._answer, frame)
        self._application.plan(None, self._now)
        self._perform()

    def rest(self) -> None:
        """See Surface."""
        self._now += _STEP_S
        self._count += 1
        if self._count % _REFOLLOW_EVERY == 0:
            holdings = encode(control.Holdings(MODEL, 7, CHUNKS, b"\1", 4), number=0)
            for node in self._nodes:
                self._driver.feed(events.EndSubscription(node, MODEL))
                self._driver.feed(events.StartSubscription(node, MODEL))
                self._dispatcher.from_identity(Identity(node=node), self._answer, holdings)
                self._deltas[node] = 0
            self._dial()

    def close(self) -> None:
        """See Surface."""

    def _post(self, event: events.Event) -> None:
        self.heard += 1
        self._application.post(event)

    def _perform(self) -> None:
        post, draw = self._application.post, self._rng.random
        commands, self._application.commands = self._application.commands, []
        for command in commands:
            if isinstance(command, events.StartFetch):
                if draw() < 0.1:
                    post(events.ChunkStored(MODEL, command.chunk, command.peer, 65_536, 0.01))
                else:
                    reason = pick(self._rng, tuple(events.FailReason))
                    post(events.FetchFailed(MODEL, command.chunk, command.peer, reason))
            elif isinstance(command, events.StartSourceRead):
                post(events.SourceReadFailed(MODEL, command.chunks, events.FailReason.SOURCE))
            elif isinstance(command, events.ProbeSource):
                post(events.SourceProbed(MODEL, draw() < 0.5))
            elif isinstance(command, events.SendHoldings | events.SendDelta):
                self._driver.feed(command)
        if draw() < 0.01:
            post(events.ChunkLost(MODEL, int(draw() * CHUNKS)))

    def _dial(self) -> None:
        """Connections succeed and carry all that waits, which nobody reads."""
        self._driver.advance(trio.current_time())
        for command in self._driver.take_transport():
            if isinstance(command, Dial):
                self._driver.feed(LinkUp(command.peer))
            while (outgoing := self._driver.take(command.peer)) is not None:
                message, number = outgoing
                if isinstance(message, DeltaPayload):
                    join(control.Delta, message.fields, number=number)
                else:
                    encode(message, number=number)

    def _answer(self, frame: bytes) -> bool:
        return True


def _genuine(nodes: list[NodeId]) -> list[tuple[control.Message, int]]:
    """One or more of each message, as they are said."""
    some, full = ChunkSet.of(CHUNKS, range(0, CHUNKS, 2)), ChunkSet.full(CHUNKS)
    held = (some, full, full - ChunkSet.of(CHUNKS, (3,)), ChunkSet(CHUNKS))
    big = ChunkSet.of(1_000_000, range(0, 1_000_000, 3))
    messages: list[control.Message] = [
        control.Hello("gossipd 0.1.0"), control.Subscribe(MODEL), control.Subscribe(_OTHER), control.Unsubscribe(MODEL),
        *(control.Holdings(MODEL, 7, CHUNKS, chunks.to_wire(), 4) for chunks in held),
        control.Holdings(_OTHER, 8, 1_000_000, big.to_wire(), 4),
        control.Delta(7, (3, 1, 1), (9,), (50, 2), 4), control.Delta(7, (), (), (), 0),
        control.Delta(7, (599,), (), (), 8), control.TokenWanted(), control.Token(b"t" * 32, 10), control.Ping(),
        control.Pong(), control.TriggerQuery(MODEL), control.TriggerQuery(b"", "org/name@3"),
        control.TriggerState(MODEL, 3, "deploy", 900), control.ManifestPart(MODEL, 900, 0, b"p" * 300),
        control.PartKept(300), control.TriggerOrder(b"s" * 150),
        control.TriggerReply("", "accepted", MODEL, 3, False), control.Refused("E_BUSY", "later"),
        control.SketchWanted(MODEL), control.Sketch(bytes(256), 3),
    ]  # fmt: skip
    return [(message, number % 5) for number, message in enumerate(messages)]


def _other_news(message: control.Delta | control.Holdings, number: int, rng: Random) -> bytes:
    """News that is well-formed and may be false, so that it gets to the planner."""
    if isinstance(message, control.Holdings):
        held = ChunkSet.of(
            CHUNKS, [chunk for chunk in range(CHUNKS) if rng.random() < 0.5][: int(rng.random() * CHUNKS)]
        )
        wire = held.to_wire() if rng.random() < 0.7 else mutate_bytes(held.to_wire(), rng)
        slots = mutate_integer(4, rng) & 0xFFFF
        return encode(control.Holdings(MODEL, 7, CHUNKS, wire[:125_001], slots), number=number)
    lists = []
    for _ in range(3):
        gaps = [int(rng.random() * 9) for _ in range(int(rng.random() * 20))]
        if gaps and rng.random() < 0.1:
            gaps[int(rng.random() * len(gaps))] = abs(mutate_integer(4, rng)) & 2**53 - 1
        lists.append(tuple(gaps))
    slots = int(pick(rng, (0, 1, 4, 4, 8, 65_535)))
    return encode(control.Delta(7, lists[0], lists[1], lists[2], slots), number=number)
