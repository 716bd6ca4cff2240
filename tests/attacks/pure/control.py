"""The control port of one host behind libzmq: frames, who may say what, sessions, the server of triggers.

Real: the frame, the dispatcher, the sessions, the trigger server, the deployment brain, manifests. Made up: sockets,
and CURVE, which has proved who speaks. Events that would reach the planner are noted.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import trio
import trio.testing

from gossipd.control.authenticator import Identity
from gossipd.control.dispatcher import FrameDispatcher
from gossipd.control.requests import RequestTable
from gossipd.control.session_driver import SessionDriver
from gossipd.control.settings import ControlSettings
from gossipd.control.trigger_server import TriggerServer
from gossipd.core import events
from gossipd.core.chunkset import ChunkSet
from gossipd.core.model import Shape
from gossipd.core.targets import Targets
from gossipd.daemon.control_delegate import BulkTokens, ControlDelegate
from gossipd.daemon.triggers import Triggers
from gossipd.deployment.commands import Answer
from gossipd.deployment.events import OrderTriggered
from gossipd.deployment.statement import Statement
from gossipd.identity.cancel_rights import DEFAULT_ROLES
from gossipd.identity.keys import SecretKey
from gossipd.runtime.turn_loop import TurnLoop
from gossipd.sessions.events import Dial
from gossipd.transfer.tokens import ReceivedTokens
from gossipd.wire import control
from gossipd.wire.control_frame import decode
from membership.member import NodeId, node_id
from tests.attacks.builders.control import Frames
from tests.attacks.pure.gossip import any_stage
from tests.attacks.pure.orders import believed
from tests.attacks.stage import FOR_OTHERS, Stage
from tests.gossipd.deployment.scripted_host import ONE, ScriptedHost
from tests.gossipd.manifest.making import manifest

CHUNKS = 600
CLIENT = SecretKey(b"a client of the attacked host...")


class ControlSurface:
    """See Surface."""

    payload_bytes = 0

    def __init__(self) -> None:
        self._stage = any_stage(model=ONE.name)
        self._host = ScriptedHost(published=[ONE])
        records = (self._stage.target, self._stage.victim, self._stage.other, self._stage.liar)
        self._host.roster.signers = {one.public_key for one in records} | {CLIENT.public.ed25519}
        self._host.roster.clients = {CLIENT.public.ed25519}
        self._host.roster.roles = DEFAULT_ROLES
        self._host.drop(ONE)
        said = self._host.statements.statement(ONE.id)
        assert said is not None
        self._stage.said = said
        self._records = {one.node: one for one in records}
        self._counters: Counter[str] = Counter()
        self._replies: Counter[str] = Counter()
        self._planned: list[events.Event] = []
        self._dialed = 0

    @property
    def stage(self) -> Stage:
        """See Surface."""
        return self._stage

    def deliver(self, made: Frames) -> None:
        """See Surface."""
        trio.run(self._deliver, made, clock=trio.testing.MockClock())  # what comes without end comes at one time

    def seen(self) -> Counter[str]:
        """See Surface."""
        return self._counters + self._replies

    def state(self) -> dict[str, Any]:
        """See Surface."""
        rows = [(one.label, one.state.value, one.statement.rank) for one in self._host.brain.lifecycle]
        return {
            "deployments": rows,
            "planner": list(self._planned),
            "dialed": self._dialed,
            **believed(self._host.statements),
        }

    def state_after_restart(self) -> dict[str, Any]:
        """See Surface."""
        return believed(self._host.statements)

    def works(self) -> str:
        """See Surface."""
        error = self._host.drop(manifest(version=2)).error
        return "" if error is None else f"a manifest is refused: {error}"

    def close(self) -> None:
        """See Surface."""

    def _is_target(self, node: NodeId, targets: Targets) -> bool:
        one = self._records.get(node)
        return one is not None and targets.include(name=one.name, rack=one.rack)

    def _parts(self) -> dict[str, Any]:
        """What the delegate asks of the daemon; from one member's address no datagram has come."""
        unheard = self._stage.other.node
        return {
            "directory": SimpleNamespace(
                record=self._records.get, is_target=self._is_target, name_of=lambda node: node.hex()
            ),
            "audit": SimpleNamespace(record=lambda kind, **fields: None),
            "membership_host": SimpleNamespace(
                ask=lambda node: None, swim=SimpleNamespace(has_answered=lambda node: node != unheard)
            ),
            "self_checks": None,
            "sketches": None,
        }

    async def _deliver(self, made: Frames) -> None:
        async with trio.open_nursery() as nursery:
            driver = cast(Any, SimpleNamespace(trigger=self._trigger))
            triggers = Triggers(
                statements=self._host.statements, lifecycle=self._host.brain.lifecycle, driver=driver,
                budgets=cast(Any, SimpleNamespace(next_ms=lambda deployment: 1)),
            )  # fmt: skip
            delegate = ControlDelegate(
                live=cast(Any, SimpleNamespace(clients=(CLIENT.public,))),
                tokens=BulkTokens(None, ReceivedTokens()), driver=cast(Any, SimpleNamespace(post=self._planned.append)),
                trigger_server=TriggerServer(triggers, nursery), **self._parts(),
            )  # fmt: skip
            requests = RequestTable(limit=8)
            sessions = SessionDriver(
                host=delegate, requests=requests, settings=ControlSettings(), rng=Random(1), turn_loop=TurnLoop()
            )
            sessions.feed(events.DeploymentOpened(ONE.id, Shape(CHUNKS, 1, CHUNKS, 1), ChunkSet(CHUNKS)))
            sessions.feed(
                events.DeploymentOpened(
                    FOR_OTHERS, Shape(CHUNKS, 1, CHUNKS, 1), ChunkSet(CHUNKS), targets=Targets(names=("node-*",))
                )
            )
            sessions.feed(events.StartSubscription(self._stage.liar.node, ONE.id))
            dispatcher = FrameDispatcher(host=delegate, requests=requests, driver=sessions, counters=self._counters)
            before = len(self._planned)
            for frame in made.frames:
                self._say(dispatcher, made.who, frame)
            await trio.testing.wait_all_tasks_blocked()
            for one in self._planned[before:]:
                if isinstance(one, events.SubscribeHeard):  # the planner answers
                    sessions.put(one.peer, control.Subscribe(ONE.id))
            heard = self._planned[before:]
            self._planned[before:] = [one for one in heard if not _is_true(one)]
            self._counters += sessions.sessions.counters
            sessions.sessions.advance(trio.current_time())
            self._counters["asked"] += sessions.sessions.statistics()["link_asked"]
            dials = [one.peer for one in sessions.take_transport() if isinstance(one, Dial)]
            self._dialed += dials.count(self._stage.other.node)
            nursery.cancel_scope.cancel()

    def _say(self, dispatcher: FrameDispatcher, who: str, frame: bytes) -> None:
        if who == "link":
            dispatcher.from_link(self._stage.liar.node, frame)
            return
        identity = {
            "liar": Identity(node=self._stage.liar.node), "client": Identity(client=CLIENT.public.ed25519),
            "nobody": Identity(node=NodeId(node_id(b"n" * 32))), "unheard": Identity(node=self._stage.other.node),
        }[who]  # fmt: skip
        dispatcher.from_identity(identity, self._answer, frame)

    def _answer(self, frame: bytes) -> bool:
        decoded = decode(frame)
        assert decoded is not None
        code = getattr(decoded[0], "code", "")
        self._replies[code or type(decoded[0]).__name__] += 1
        return True

    async def _trigger(self, statement: Statement, envelope: bytes | None) -> Answer:
        answer = self._host.request(OrderTriggered, statement, envelope)
        if answer.error is not None:
            raise answer.error
        self._replies["accepted"] += answer.is_changed
        return answer


def _is_true(event: events.Event) -> bool:
    """Questions, and holdings of the one chunk that an attack begins with, so that what follows is heard."""
    if isinstance(event, events.HoldingsHeard):
        return event.chunks == ChunkSet.of(CHUNKS, (0,))
    return isinstance(event, events.SubscribeHeard)
