"""What a client may order: frames of ``gossipd trigger``, through admission and orders to the register.

Real: the frame, orders with their uploads, statements, manifests, the register, who may sign. Made up: the life of a
deployment and the disk. An input is one conversation: frames one after the other. Changes before signing are in the
manifest (signed by a trusted publisher), in the statement (signed by the client), or in a message's fields.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import msgpack
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gossipd.control.authenticator import Identity
from gossipd.control.dispatcher import FrameDispatcher
from gossipd.control.requests import RequestTable
from gossipd.control.session_driver import SessionDriver
from gossipd.control.settings import ControlSettings
from gossipd.control.trigger_server import TriggerServer
from gossipd.core.ids import DeploymentId
from gossipd.daemon.control_delegate import BulkTokens, ControlDelegate
from gossipd.daemon.triggers import Triggers
from gossipd.deployment.commands import Answer
from gossipd.deployment.events import OrderTriggered
from gossipd.deployment.statement import _DOMAIN, _HEAD, Statement, Verb
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import deployment_id
from gossipd.runtime.quotas import Quotas
from gossipd.runtime.turn_loop import TurnLoop
from gossipd.transfer.tokens import ReceivedTokens
from gossipd.wire import control
from gossipd.wire.control_frame import FRAME_VERSION, encode
from membership.member import node_id
from tests.fuzz.mutations import mutate_bytes, mutate_integer, mutate_value, pick
from tests.fuzz.surface import Case
from tests.fuzz.surfaces.application import _CLIENT, MODEL, Application
from tests.fuzz.surfaces.manifest import ManifestSurface, genuine

_NOW_S = 1_800_000_000
_PART_BYTES = 400  # so that an upload takes a few parts


class _Nursery:
    """Keeps what is to be run, for the surface to run before the next input."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[..., Awaitable[None]], tuple[Any, ...]]] = []

    def start_soon(self, job: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """See trio.Nursery."""
        self.jobs.append((job, arguments))


class _Driver:
    """The deployment brain's turn, taken at once."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def trigger(self, statement: Statement, envelope: bytes | None) -> Answer:
        """See DeploymentDriver."""
        [answer] = self._application.deploy(OrderTriggered(1, statement, envelope))
        if answer.error is not None:
            raise answer.error
        return answer


class TriggerSurface:
    """See the module."""

    name = "trigger"
    share = 1.0

    def __init__(self, rng: Random) -> None:
        publics = [bytes([number + 1]) * 32 for number in range(2)]
        application = self._application = Application(publics)
        self._nursery = _Nursery()
        triggers = Triggers(
            statements=application.statements,
            lifecycle=application.brain.lifecycle,
            driver=cast(Any, _Driver(application)),
            budgets=cast(Any, SimpleNamespace(next_ms=lambda deployment: 1)),
        )
        server = self._trigger_server = TriggerServer(triggers, cast(Any, self._nursery))
        # The loop's clock stands still within a run, so a quota of requests a second would end it.
        server._requests = server._parts = Quotas(burst=1e9, per_s=1.0)
        delegate = ControlDelegate(
            directory=application.cluster, live=cast(Any, SimpleNamespace(clients=(_CLIENT.public,))),
            tokens=BulkTokens(None, ReceivedTokens()), driver=cast(Any, SimpleNamespace(post=application.post)),
            trigger_server=self._trigger_server, audit=cast(Any, SimpleNamespace(record=application.audit)),
            membership_host=cast(Any, None),
            self_checks=cast(Any, SimpleNamespace(explain=lambda *_: False)), sketches=cast(Any, None),
        )  # fmt: skip
        self._replies = 0
        requests = RequestTable(limit=8)
        driver = SessionDriver(
            host=delegate, requests=requests, settings=ControlSettings(), rng=Random(1), turn_loop=TurnLoop()
        )
        self._dispatcher = FrameDispatcher(host=delegate, requests=requests, driver=driver, counters=Counter())
        self._visitors = (
            Identity(client=_CLIENT.public.ed25519), Identity(client=b"x" * 32), Identity(node=node_id(publics[1])),
            Identity(node=node_id(publics[0])),
        )  # fmt: skip
        self._client = Ed25519PrivateKey.from_private_bytes(_CLIENT.seed)
        self._manifests = ManifestSurface(rng)
        self._envelopes = [genuine(f"org/pool{number % 4}", number, (100 + number,)) for number in range(12)]
        self._messages: list[control.Message] = [
            control.TriggerQuery(MODEL), control.TriggerQuery(b"", "org/pool3@3"),
            control.TriggerQuery(b"", "org/none@²"), control.ManifestPart(MODEL, 900, 0, b"p" * 300),
            control.ManifestPart(MODEL, 900, 300, b"p" * 300), control.Ping(), control.TokenWanted(),
            control.TriggerOrder(self._statement(self._envelopes[0], 1, rng=None)),
        ]  # fmt: skip
        self._frames = [encode(message, number=3) for message in self._messages]

    @property
    def accepted(self) -> int:
        """Orders that were carried out."""
        return self._application.audited_kinds["trigger accepted"]

    # ---- making --------------------------------------------------------------------------------------

    def case(self, rng: Random) -> Case:
        """See Surface."""
        identity = 0 if rng.random() < 0.85 else int(rng.random() * len(self._visitors))
        draw = rng.random()
        if draw < 0.35:
            frame = mutate_bytes(pick(rng, self._frames), rng, self._frames)
            return Case("frames", _joined([frame]), False, identity)
        if draw < 0.75:
            return Case("frames", _joined([self._changed_message(rng)]), True, identity)
        if draw < 0.87:
            made = self._manifests.case(rng)
            envelope = self._manifests.seal(made)
            if len(envelope) <= 20:
                envelope = self._envelopes[0]
        else:
            envelope = pick(rng, self._envelopes)
        frames = self._conversation(envelope, rng)
        return Case("frames", _joined(frames), True, identity)

    def _changed_message(self, rng: Random) -> bytes:
        message = pick(rng, self._messages)
        fields = list(msgspec.structs.astuple(message))
        if isinstance(message, control.TriggerOrder) and rng.random() < 0.3:
            fields = [self._statement(pick(rng, self._envelopes), int(rng.random() * 99), rng=rng)]
        elif fields:
            at = int(rng.random() * len(fields))
            fields[at] = mutate_value(fields[at], rng)
        try:
            packed = msgpack.packb([control.NUMBERS[type(message)], mutate_integer(3, rng) & 0xFFFF, *fields])
        except (OverflowError, ValueError, TypeError):
            packed = msgpack.packb([10, 1, MODEL, "x"])
        return bytes([FRAME_VERSION]) + bytes(packed)

    def _conversation(self, envelope: bytes, rng: Random) -> list[bytes]:
        try:
            deployment = deployment_id(envelope)
        except ManifestError:
            deployment = MODEL
        envelope = envelope[:8192]
        parts = [
            control.ManifestPart(deployment, len(envelope), at, envelope[at : at + _PART_BYTES])
            for at in range(0, len(envelope), _PART_BYTES)
        ]
        frames = [encode(control.TriggerQuery(deployment), number=1)]
        if rng.random() < 0.8:
            frames += [encode(part, number=2 + at) for at, part in enumerate(parts)]
        epoch = 1 + int(rng.random() * 1000)
        changing = rng if rng.random() < 0.4 else None
        order = self._statement(envelope, epoch, rng=changing, deployment=deployment)
        frames.append(encode(control.TriggerOrder(order), number=99))
        draw = rng.random()
        if draw < 0.1:
            rng.shuffle(frames)
        elif draw < 0.2:
            frames.insert(int(rng.random() * len(frames)), self._changed_message(rng))
        elif draw < 0.25:
            del frames[int(rng.random() * len(frames))]
        return frames

    def _statement(
        self, envelope: bytes, epoch: int, *, rng: Random | None, deployment: DeploymentId | None = None
    ) -> bytes:
        """An order about ``envelope``; with ``rng``, changed in a field and signed all the same."""
        fields: list[Any] = [
            1, int(Verb.DEPLOY) if epoch % 5 else int(Verb.CANCEL), deployment or deployment_id(envelope), epoch,
            max(1, len(envelope)), _NOW_S, _CLIENT.public.ed25519,
        ]  # fmt: skip
        if rng is not None:
            at = int(rng.random() * len(fields))
            if isinstance(fields[at], bytes):
                fields[at] = mutate_bytes(fields[at], rng)[:32].ljust(32, b"\0")
            else:
                width = (1, 1, 0, 8, 4, 8)[at]
                fields[at] = mutate_integer(fields[at], rng) & (1 << 8 * width) - 1
        head = _HEAD.pack(*fields)
        return head + self._client.sign(_DOMAIN + head)

    # ---- delivering ----------------------------------------------------------------------------------

    def seal(self, case: Case) -> tuple[Identity, list[bytes]]:
        """See Surface."""
        return self._visitors[case.context], _apart(case.body)

    async def deliver(self, arrived: tuple[Identity, list[bytes]]) -> None:
        """See Surface."""
        identity, frames = arrived
        for frame in frames:
            self._dispatcher.from_identity(identity, self._answer, frame)
        jobs, self._nursery.jobs = self._nursery.jobs, []
        for job, arguments in jobs:
            await job(*arguments)

    def rest(self) -> None:
        """See Surface."""

    def close(self) -> None:
        """See Surface."""

    def _answer(self, frame: bytes) -> bool:
        self._replies += 1
        return True


def _joined(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def _apart(body: bytes) -> list[bytes]:
    frames, at = [], 0
    while at + 4 <= len(body):
        end = at + 4 + int.from_bytes(body[at : at + 4], "big")
        frames.append(body[at + 4 : end])
        at = end
    return frames
