"""Both ends of ``gossipd trigger`` on real sockets: orders, uploads, and every way in which it is turned down."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
import trio
import trio.testing

from gossipd.control.authenticator import Identity
from gossipd.control.delegate import Reply
from gossipd.control.trigger_client import (
    Acknowledgement,
    Conversation,
    KeyRefusedError,
    NodeSilentError,
    NodeUnreachableError,
    TriggerRefusedError,
    trigger,
)
from gossipd.control.trigger_server import (
    UPLOADS_MAX,
    UPLOADS_PER_IDENTITY_MAX,
    TriggerServer,
)
from gossipd.core.errors import ExitCode
from gossipd.core.ids import DeploymentId
from gossipd.deployment.progress_record import Budget
from gossipd.deployment.signed_budget import has_its_signature, order_bytes, sign_budget
from gossipd.deployment.statement import Statement, Verb, sign_statement
from gossipd.identity.keys import SecretKey
from gossipd.manifest.envelope import seal
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import deployment_id
from gossipd.runtime.quotas import Quotas
from gossipd.wire import control
from membership.member import node_id
from tests.gossipd.control.nodes import Node, secret_of, start

CLIENT = secret_of(77)
PUBLISHER = secret_of(88)
SMALL = seal("gossipd-manifest", b"a manifest's payload", [PUBLISHER])
LARGE = seal("gossipd-manifest", bytes(range(256)) * 3000, [PUBLISHER])
_Result = TypeVar("_Result")


@dataclass
class FakeTriggerHost:
    """A daemon that knows some deployments and remembers orders."""

    states: dict[bytes | str, control.TriggerState] = field(default_factory=dict)
    orders: list[tuple[Identity, Statement, bytes | None]] = field(default_factory=list)
    budgets: list[Budget | None] = field(default_factory=list)
    failure: ManifestError | None = None
    already: bool = False

    def trigger_state(self, deployment: DeploymentId | None, model: str) -> control.TriggerState:
        if deployment is not None:
            return self.states.get(deployment, control.TriggerState(deployment, 0, "", 0))
        return self.states.get(model, control.TriggerState(b"", 0, "", 0, "E_NOT_FOUND", f"nobody knows {model}"))

    async def trigger_order(
        self, identity: Identity, statement: Statement, envelope: bytes | None, budget: Budget | None
    ) -> tuple[str, bool]:
        await trio.lowlevel.checkpoint()
        self.orders.append((identity, statement, envelope))
        self.budgets.append(budget)
        if self.failure is not None:
            raise self.failure
        return "qwen@3 is being deployed", self.already


@dataclass
class ServedNode:
    node: Node
    host: FakeTriggerHost
    trigger_server: TriggerServer

    async def talk(
        self,
        what: Callable[[Conversation], _Result],
        *,
        secret: SecretKey = CLIENT,
        server_key: bytes | None = None,
        timeout_s: float = 5,
    ) -> _Result:
        """Hold a conversation in a thread, as the command does."""
        key = server_key or self.node.host.secret.public.curve25519

        def conversation() -> _Result:
            with Conversation("127.0.0.1", self.node.port, secret=secret, server_key=key, timeout_s=timeout_s) as held:
                return what(held)

        return await trio.to_thread.run_sync(conversation)

    async def order(
        self, order: bytes | str, verb: Verb = Verb.DEPLOY, *, secret: SecretKey = CLIENT,
        budget_bytes: int | None = None,
    ) -> Acknowledgement:  # fmt: skip
        return await self.talk(
            lambda held: trigger(held, secret=secret, order=order, verb=verb, now_s=1e9, budget_bytes=budget_bytes),
            secret=secret,
        )


@asynccontextmanager
async def served_node() -> AsyncIterator[ServedNode]:
    async with trio.open_nursery() as nursery:
        node = await start(nursery, 1)
        host = FakeTriggerHost()
        found = TriggerServer(host, nursery)

        def hear(identity: Identity, message: control.Message, reply: Reply) -> None:
            assert found.hear(identity, message, reply)

        node.host.on_request = hear  # type: ignore[method-assign]
        node.host.clients[CLIENT.public.curve25519] = CLIENT.public.ed25519
        yield ServedNode(node, host, found)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("envelope", [SMALL, LARGE], ids=["small", "large"])
async def test_a_manifest_is_sent_and_ordered_with_a_statement_by_the_clients_key(envelope: bytes) -> None:
    async with served_node() as d:
        told = await d.order(envelope)
        assert told == Acknowledgement(deployment_id(envelope), 1, False, "qwen@3 is being deployed")
        [(identity, statement, received)] = d.host.orders
        assert identity == Identity(client=CLIENT.public.ed25519)
        assert received == envelope
        assert (statement.verb, statement.epoch, statement.manifest_bytes) == (Verb.DEPLOY, 1, len(envelope))
        assert statement.signer == CLIENT.public.ed25519


async def test_a_budget_is_sent_signed_with_the_time_that_the_node_tells() -> None:
    async with served_node() as d:
        known = DeploymentId(deployment_id(SMALL))
        with pytest.raises(TriggerRefusedError, match="a version without budgets"):
            await d.order(SMALL, budget_bytes=600)
        d.host.states[known] = control.TriggerState(known, 0, "", 0, budget_ms=1_000_000_123_456)
        await d.order(SMALL, budget_bytes=600)
        [budget] = d.host.budgets
        assert budget is not None
        assert (budget.ordered_ms, budget.bytes_max, budget.signer) == (1_000_000_123_456, 600, CLIENT.public.ed25519)
        assert has_its_signature(budget, known) and not has_its_signature(budget, DeploymentId(b"x" * 32))
        d.host.states[known] = control.TriggerState(known, 0, "", 0, budget_ms=2_000_000_000_000)
        with pytest.raises(TriggerRefusedError, match="more than an hour apart"):
            await d.order(SMALL, budget_bytes=600)


async def test_an_order_has_the_next_epoch_of_its_verb() -> None:
    async with served_node() as d:
        known = deployment_id(SMALL)
        d.host.states[known] = control.TriggerState(known, 41, "cancel", 0)
        assert (await d.order(SMALL)).epoch == 43


async def test_a_manifest_that_is_there_already_is_not_sent_again() -> None:
    async with served_node() as d:
        known = deployment_id(LARGE)
        d.host.states[known] = control.TriggerState(known, 1, "deploy", len(LARGE))
        d.host.already = True
        assert (await d.order(LARGE)).already
        assert d.host.orders[0][2] is None


async def test_a_known_model_is_ordered_and_cancelled_by_name() -> None:
    async with served_node() as d:
        known = deployment_id(SMALL)
        d.host.states["qwen@3"] = control.TriggerState(known, 5, "deploy", len(SMALL))
        assert (await d.order("qwen@3")).epoch == 7
        assert (await d.order("qwen@3", Verb.CANCEL)).deployment == known
        assert [statement.verb for _, statement, _ in d.host.orders] == [Verb.DEPLOY, Verb.CANCEL]


async def test_a_node_orders_with_its_own_key() -> None:
    async with served_node() as d:
        member = secret_of(2)
        d.node.host.known[member.public.curve25519] = node_id(member.public.ed25519)
        d.node.host.directory[node_id(member.public.ed25519)] = d.node.host.directory[d.node.host.node]
        await d.order(SMALL, secret=member)
        assert d.host.orders[0][0] == Identity(node=node_id(member.public.ed25519))


async def test_an_unknown_name_is_not_found() -> None:
    async with served_node() as d:
        with pytest.raises(TriggerRefusedError, match="nobody knows") as caught:
            await d.order("qwen@4")
        assert (caught.value.code, caught.value.code_of_exit) == ("E_NOT_FOUND", ExitCode.NOT_FOUND)


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("E_SIG_INVALID", ExitCode.TRUST),
        ("E_ROLLBACK", ExitCode.TRUST),
        ("E_SOURCE_FORBIDDEN", ExitCode.TRUST),
        ("E_QUEUE_FULL", ExitCode.OTHER),
    ],
)
async def test_the_hosts_refusal_is_told_with_its_code_and_an_exit_code(code: str, exit_code: ExitCode) -> None:
    async with served_node() as d:
        d.host.failure = ManifestError("because", code=code)
        with pytest.raises(TriggerRefusedError, match="because") as caught:
            await d.order(SMALL)
        assert (caught.value.code, caught.value.code_of_exit) == (code, exit_code)


async def test_a_key_that_is_not_listed_is_told_so() -> None:
    async with served_node() as d:
        with pytest.raises(KeyRefusedError, match=r"security\.clients"):
            await d.order(SMALL, secret=secret_of(123))
        assert d.host.orders == []


async def test_a_wrong_server_key_is_told_apart() -> None:
    async with served_node() as d:
        with pytest.raises(KeyRefusedError, match="--server-key"):
            await d.talk(
                lambda held: held.ask(control.TriggerQuery(b"", "x@1"), control.TriggerState),
                server_key=CLIENT.public.curve25519,
            )


async def test_a_closed_port_is_told_at_once() -> None:
    async with served_node() as d:
        d.node.scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(NodeUnreachableError, match="nothing listens"):
            await d.order(SMALL)


async def test_a_listener_that_never_greets_is_not_told_as_a_refused_key() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        conversation = Conversation("127.0.0.1", port, secret=CLIENT, server_key=bytes(32), timeout_s=0.5)

        def ask_it() -> None:
            with conversation as held:
                held.ask(control.TriggerQuery(b"", "x@1"), control.TriggerState)

        with pytest.raises(NodeSilentError, match="stuck, or it is no gossipd control port"):
            await trio.to_thread.run_sync(ask_it)


async def test_a_node_that_does_not_answer_costs_the_timeout_and_no_more() -> None:
    async with served_node() as d:
        d.node.host.on_request = lambda *_: None  # type: ignore[method-assign]
        with pytest.raises(NodeSilentError, match=r"\b2 s"):  # in which a busy machine connects, too
            await d.talk(lambda held: held.ask(control.TriggerQuery(b"", "x@1"), control.TriggerState), timeout_s=2.0)


async def ask(d: ServedNode, message: control.Message, client: bytes = CLIENT.public.ed25519) -> control.Message:
    """One reply of whatever kind."""
    replies: list[control.Message] = []
    d.trigger_server.hear(Identity(client=client), message, replies.append)
    with trio.fail_after(120):
        while not replies:
            await trio.lowlevel.checkpoint()
    return replies[0]


def signed(secret: SecretKey = CLIENT, *, size: int = len(SMALL), verb: Verb = Verb.DEPLOY) -> bytes:
    deployment = deployment_id(SMALL)
    return sign_statement(secret, deployment, epoch=1, verb=verb, manifest_bytes=size, now_s=1e9).encode()


def budget_by(secret: SecretKey) -> bytes:
    return order_bytes(sign_budget(secret, deployment_id(SMALL), Budget(1, 600)))


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (control.TriggerQuery(b"", ""), "E_TRIGGER_FIELD"),
        (control.TriggerQuery(b"x" * 32, "qwen@3"), "E_TRIGGER_FIELD"),
        (control.TriggerQuery(b"x" * 31, ""), "E_TRIGGER_FIELD"),
        (control.TriggerOrder(b"\x07" + bytes(100)), "E_SCHEMA_VERSION"),
        (control.TriggerOrder(signed()[:-1]), "E_DECODE"),
        (control.TriggerOrder(signed()[:-1] + b"\x00"), "E_SIG_INVALID"),
        (control.TriggerOrder(signed(PUBLISHER)), "E_TRIGGER_FIELD"),
        (control.TriggerOrder(signed(), b"short"), "E_TRIGGER_FIELD"),
        (control.TriggerOrder(signed(), budget_by(PUBLISHER)), "E_TRIGGER_FIELD"),
        (control.TriggerOrder(signed(verb=Verb.CANCEL), budget_by(CLIENT)), "E_TRIGGER_FIELD"),
    ],
)
async def test_a_malformed_request_gets_a_reply_that_names_the_field(message: control.Message, code: str) -> None:
    async with served_node() as d:
        reply = await ask(d, message)
        assert isinstance(reply, control.TriggerState | control.TriggerReply)
        assert reply.code == code
        assert d.host.orders == []


async def test_a_statement_about_another_manifest_than_the_one_sent_is_refused() -> None:
    async with served_node() as d:
        other = LARGE[:500]
        deployment = deployment_id(SMALL)
        assert await ask(d, control.ManifestPart(deployment, 500, 0, other)) == control.PartKept(500)
        reply = await ask(d, control.TriggerOrder(signed(size=500)))
        assert isinstance(reply, control.TriggerReply)
        assert reply.code == "E_TRIGGER_FIELD"


async def test_parts_out_of_order_are_asked_for_again_and_parts_outside_refused() -> None:
    async with served_node() as d:
        deployment = deployment_id(SMALL)
        assert await ask(d, control.ManifestPart(deployment, 300, 100, b"x")) == control.PartKept(0)
        assert await ask(d, control.ManifestPart(deployment, 300, 0, b"a" * 100)) == control.PartKept(100)
        assert await ask(d, control.ManifestPart(deployment, 300, 200, b"c" * 100)) == control.PartKept(100)
        assert await ask(d, control.ManifestPart(deployment, 300, 0, b"a" * 100)) == control.PartKept(100)
        assert isinstance(await ask(d, control.ManifestPart(deployment, 300, 299, b"xx")), control.Refused)
        assert isinstance(await ask(d, control.ManifestPart(deployment, 299, 100, b"x")), control.Refused)


async def test_uploads_are_bounded_and_forgotten_after_a_while() -> None:
    async with served_node() as d:
        for number in range(UPLOADS_MAX):
            part = control.ManifestPart(DeploymentId(bytes([number]) * 32), 1000, 0, b"x")
            assert await ask(d, part, bytes([number]) * 32) == control.PartKept(1)
        one_more = control.ManifestPart(DeploymentId(b"z" * 32), 1000, 0, b"x")
        reply = await ask(d, one_more)
        assert isinstance(reply, control.Refused)
        assert reply.code == "E_BUSY"
        for upload in d.trigger_server._uploads.values():
            upload.until_s = trio.current_time()
        assert await ask(d, one_more) == control.PartKept(1)


async def test_one_identity_leaves_room_for_uploads_of_others() -> None:
    async with served_node() as d:
        replies = [
            await ask(d, control.ManifestPart(DeploymentId(bytes([number]) * 32), 1000, 0, b"x"))
            for number in range(UPLOADS_MAX)
        ]
        assert sum(isinstance(reply, control.PartKept) for reply in replies) == UPLOADS_PER_IDENTITY_MAX
        part = control.ManifestPart(DeploymentId(b"z" * 32), 1000, 0, b"x")
        assert await ask(d, part, b"another client".ljust(32)) == control.PartKept(1)


async def test_an_identity_that_asks_without_end_is_refused_and_another_is_answered() -> None:
    async with served_node() as d:
        d.trigger_server._requests, d.trigger_server._parts = Quotas(burst=3, per_s=0), Quotas(burst=3, per_s=0)
        part = control.ManifestPart(DeploymentId(b"z" * 32), 1000, 0, b"x")
        for message, kind in ((control.TriggerQuery(b"", "x@1"), control.TriggerState), (part, control.PartKept)):
            replies = [await ask(d, message) for _ in range(5)]
            assert [type(reply) for reply in replies] == [kind] * 3 + [control.Refused] * 2
            assert type(await ask(d, message, b"another client".ljust(32))) is kind


async def test_what_uploads_claim_together_is_bounded_before_it_arrives() -> None:
    async with served_node() as d:
        whole = control.MANIFEST_BYTES_MAX
        part = control.ManifestPart(DeploymentId(b"z" * 32), 1, 0, b"x")
        for number in range(2):
            large = control.ManifestPart(DeploymentId(bytes([number]) * 32), whole, 0, b"x")
            assert await ask(d, large, bytes([number]) * 32) == control.PartKept(1)
            assert isinstance(await ask(d, part, bytes([number]) * 32), control.Refused)
        assert isinstance(await ask(d, part), control.Refused)


async def test_an_upload_that_drips_or_repeats_itself_is_forgotten() -> None:
    async with served_node() as d:
        ids = [DeploymentId(bytes([number]) * 32) for number in range(2)]
        for one in ids:
            assert await ask(d, control.ManifestPart(one, 1000, 0, b"x")) == control.PartKept(1)
        repeats, drips = d.trigger_server._uploads.values()
        until_s = repeats.idle_until_s
        assert await ask(d, control.ManifestPart(ids[0], 1000, 0, b"x")) == control.PartKept(1)
        assert repeats.idle_until_s == until_s
        assert await ask(d, control.ManifestPart(ids[1], 1000, 1, b"x")) == control.PartKept(2)
        assert drips.idle_until_s > until_s
        drips.until_s = trio.current_time()
        assert await ask(d, control.ManifestPart(ids[1], 1000, 2, b"x")) == control.PartKept(0)
