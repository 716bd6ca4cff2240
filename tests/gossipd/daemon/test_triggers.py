"""What an order that came by trigger does, and that saying it again does nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from gossipd.control.authenticator import Identity
from gossipd.core.errors import GossipdError
from gossipd.daemon.deployment import LIVE_MAX
from gossipd.daemon.triggers import Triggers
from gossipd.deployment.progress import HostState
from gossipd.deployment.statement import Statement, Verb, sign_statement
from gossipd.identity.keys import SecretKey
from gossipd.manifest.manifest import Manifest, deployment_id, open_manifest, seal_manifest
from tests.gossipd.daemon.test_dissemination import SECRET, SentStatements
from tests.gossipd.manifest.making import PUBLISHER, TRUSTED, draft

STRANGER = SecretKey(b"a stranger's seed of 32 bytes...")
IDENTITY = Identity(client=SECRET.public.ed25519)


class Order:
    """A manifest and words about it."""

    def __init__(self, version: int = 1) -> None:
        self.envelope = seal_manifest(draft(version=version), PUBLISHER)

    def word(self, verb: Verb = Verb.DEPLOY, *, epoch: int = 1, secret: SecretKey = SECRET) -> Statement:
        identity, size = deployment_id(self.envelope), len(self.envelope)
        return sign_statement(secret, identity, epoch=epoch, verb=verb, manifest_bytes=size, now_s=1_790_000_000)


@pytest.fixture
def sent(tmp_path: Path) -> Iterator[SentStatements]:
    made = SentStatements(tmp_path)
    yield made
    made.state.close()


def triggers(sent: SentStatements) -> Triggers:
    deployments = cast(Any, sent.dissemination.deployments)

    def manifest_of(identity: object) -> Manifest | None:
        known = sent.by_id.get(cast(Any, identity))
        return known.manifest if known is not None else None

    def find(name: str, version: int) -> list[object]:
        return []

    deployments.manifest_of, deployments.find = manifest_of, find
    return Triggers(
        register=sent.register,
        deployments=deployments,
        dissemination=sent.dissemination,
        trusted=lambda: frozenset(TRUSTED),
        audit=lambda event, **fields: sent.audited.append((event, fields)),
    )


async def test_b31_the_same_order_again_is_known_already_and_starts_nothing(sent: SentStatements) -> None:
    order, trigger_host = Order(), triggers(sent)
    assert await trigger_host.trigger_order(IDENTITY, order.word(), order.envelope) == ("org/model@1 accepted", False)
    deployment = next(iter(sent.by_id.values()))
    deployment.manifest = open_manifest(order.envelope, TRUSTED)
    for envelope in (order.envelope, None):
        words, already = await trigger_host.trigger_order(IDENTITY, order.word(), envelope)
        assert (words, already) == ("org/model@1 is known already", True)
    assert list(sent.by_id.values()) == [deployment], "one deployment, whatever is said again"
    assert sent.register.next_epoch(deployment.id) == 2


async def test_an_old_order_that_is_played_back_after_a_cancel_brings_nothing_back(sent: SentStatements) -> None:
    order, trigger_host = Order(), triggers(sent)
    await trigger_host.trigger_order(IDENTITY, order.word(), order.envelope)
    next(iter(sent.by_id.values())).manifest = open_manifest(order.envelope, TRUSTED)
    assert (await trigger_host.trigger_order(IDENTITY, order.word(Verb.CANCEL, epoch=2), None))[
        0
    ] == "org/model@1 cancelled"
    words, already = await trigger_host.trigger_order(IDENTITY, order.word(), order.envelope)
    assert already
    assert words.endswith("is known already")
    last = sent.register.statement(order.word().deployment)
    assert last is not None
    assert last.verb is Verb.CANCEL


async def refusal(trigger_host: Triggers, statement: Statement, envelope: bytes | None) -> str:
    with pytest.raises(GossipdError) as caught:
        await trigger_host.trigger_order(IDENTITY, statement, envelope)
    return caught.value.code


async def test_b30_what_may_not_be_ordered_is_refused_with_its_code(sent: SentStatements) -> None:
    order, trigger_host = Order(version=9), triggers(sent)
    assert await refusal(trigger_host, order.word(), None) == "E_UNKNOWN_MANIFEST"
    assert await refusal(trigger_host, order.word(), order.envelope[:-1]) == "E_SIG_INVALID"
    assert await refusal(trigger_host, order.word(secret=STRANGER), order.envelope) == "E_KEY_UNKNOWN"
    await trigger_host.trigger_order(IDENTITY, order.word(), order.envelope)
    older = Order(version=8)
    assert await refusal(trigger_host, older.word(), older.envelope) == "E_ROLLBACK"
    assert trigger_host.trigger_state(None, "org/model@" + "9" * 299).code == "E_NOT_FOUND"


async def test_b33_more_than_a_host_takes_on_are_refused_at_this_door_too(sent: SentStatements) -> None:
    trigger_host = triggers(sent)
    for version in range(LIVE_MAX):
        order = Order(version)
        await trigger_host.trigger_order(IDENTITY, order.word(), order.envelope)
    late = Order(LIVE_MAX)
    assert await refusal(trigger_host, late.word(), late.envelope) == "E_QUEUE_FULL"
    next(iter(sent.by_id.values())).enter(HostState.COMPLETE)
    await trigger_host.trigger_order(IDENTITY, late.word(), late.envelope)
