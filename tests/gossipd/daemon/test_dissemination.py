"""What becomes of a manifest that an operator drops here: refusals, and how many are taken on at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gossipd.core.ids import DeploymentId
from gossipd.daemon.deployment import LIVE_MAX, Deployment
from gossipd.daemon.dissemination import Dissemination
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.daemon.state_dir import StateDirectory
from gossipd.deployment.progress import HostState
from gossipd.deployment.statement import Statement, Verb, sign_statement
from gossipd.deployment.statement_store import StatementStore
from gossipd.identity.keys import SecretKey
from gossipd.inbox.inbox import QueueFullError
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import seal_manifest
from gossipd.transfer.errors import PeerNotHoldingError
from membership.member import NodeId, node_id
from tests.gossipd.daemon.test_state_dir import record
from tests.gossipd.manifest.making import PUBLISHER, TRUSTED, draft

SECRET = SecretKey(bytes([1]) * 32)
OTHERS = range(2, 12)


class AllLive(MemberDirectory):
    """Whoever belongs lives."""

    def live(self) -> set[NodeId]:
        return set(self.records) - {node_id(record(1).public_key)}


class SentStatements:
    """A Dissemination over a real register and real state, with a table of deployments that only fills."""

    def __init__(self, tmp_path: Path) -> None:
        own = record(1)
        self.register, self.state = StatementStore(), StateDirectory(tmp_path / "state")
        self.by_id: dict[DeploymentId, Deployment] = {}
        self.audited: list[tuple[str, dict[str, Any]]] = []
        cluster = AllLive(node_id(own.public_key))
        cluster.begin(own, [record(number) for number in OTHERS])
        self.told: list[Statement] = []
        self.asked: list[NodeId] = []
        self.dissemination = Dissemination(
            secret=SECRET, own=node_id(own.public_key), cluster=cluster, register=self.register, state=self.state,
            client=cast(Any, SimpleNamespace(fetch_manifest=self._fetch)), clients=tuple,
            trusted=lambda: frozenset(TRUSTED), publish=self.told.append,
            audit=lambda event, **fields: self.audited.append((event, fields)), rng=Random(1),
        )  # fmt: skip
        self.dissemination.deployments = cast(Any, SimpleNamespace(by_id=self.by_id, act=self._act, keep=self._keep))

    def _fetch(self, node: NodeId, *_: object, **__: object) -> bytes:
        self.asked.append(node)
        raise PeerNotHoldingError("not here")

    def _act(self, statement: Statement) -> Deployment:
        return self.by_id.setdefault(statement.deployment, Deployment(statement.deployment, statement))

    async def _keep(self, manifest: object) -> None:
        pass

    async def drop(self, version: int) -> str:
        return await self.dissemination.offer(seal_manifest(draft(version=version), PUBLISHER), f"{version}.manifest")


@pytest.fixture
def sent(tmp_path: Path) -> Iterator[SentStatements]:
    made = SentStatements(tmp_path)
    yield made
    made.state.close()


async def test_b33_more_than_a_host_takes_on_wait_their_turn_and_nothing_of_them_is_believed(
    sent: SentStatements,
) -> None:
    for version in range(LIVE_MAX):
        assert (await sent.drop(version)).endswith("accepted")
    with pytest.raises(QueueFullError) as caught:
        await sent.drop(LIVE_MAX)
    assert caught.value.code == "E_QUEUE_FULL"
    assert f"at most {LIVE_MAX}" in caught.value.sentence
    assert LIVE_MAX not in sent.register.trusted("org/model"), "refused before it was accepted"
    assert (await sent.drop(LIVE_MAX - 1)).endswith("deployed again"), "one that is under way needs no room"
    next(iter(sent.by_id.values())).enter(HostState.COMPLETE)
    assert (await sent.drop(LIVE_MAX)).endswith("accepted")


async def test_what_this_host_only_passes_on_takes_no_room(sent: SentStatements) -> None:
    for version in range(LIVE_MAX):
        await sent.drop(version)
    for deployment in sent.by_id.values():
        deployment.is_target = False
    await sent.drop(LIVE_MAX)


def test_a_statement_under_the_key_of_another_deployment_is_refused(sent: SentStatements) -> None:
    statement = sign_statement(
        SECRET, DeploymentId(b"d" * 32), epoch=1, verb=Verb.DEPLOY, manifest_bytes=100, now_s=1_000_000
    )
    sent.dissemination.heard(statement.encode(), None, b"e" * 32)
    assert sent.by_id == {}
    assert [(event, fields["code"]) for event, fields in sent.audited] == [("statement refused", "E_DECODE")]
    sent.dissemination.heard(statement.encode(), None, b"d" * 32)
    assert list(sent.by_id) == [b"d" * 32]


def heard_of(*, epoch: int = 1) -> Statement:
    return sign_statement(
        SECRET, DeploymentId(b"d" * 32), epoch=epoch, verb=Verb.DEPLOY, manifest_bytes=100, now_s=1_000_000
    )


def test_what_gossip_brought_is_not_said_anew_but_what_a_client_ordered_is_told(sent: SentStatements) -> None:
    sent.dissemination.heard(heard_of().encode(), node_id(record(2).public_key))
    assert sent.told == []
    assert sent.dissemination.order(heard_of(epoch=2))
    assert not sent.dissemination.order(heard_of(epoch=2))
    assert sent.told == [heard_of(epoch=2)]


async def test_a_manifest_is_asked_of_who_told_us_first_and_then_of_anybody(sent: SentStatements) -> None:
    first, *others = (node_id(record(number).public_key) for number in (7, 3, 2, 4, 8, 11))
    for forwarder in (first, *others, first):
        sent.dissemination.heard(heard_of().encode(), forwarder)
    [deployment] = sent.by_id.values()
    assert await sent.dissemination.pull(deployment) is None
    assert sent.asked == [first]
    for _ in range(60):
        await sent.dissemination.pull(deployment)
    assert {first, *others} < set(sent.asked), "others that have it, and now and then any other"
    assert sent.asked.count(first) < 30, "who could not help is one among others"


async def test_a_manifest_of_which_nobody_told_us_is_asked_of_any_member(sent: SentStatements) -> None:
    sent.dissemination.heard(heard_of().encode())
    [deployment] = sent.by_id.values()
    for _ in range(100):
        await sent.dissemination.pull(deployment)
    assert set(sent.asked) == {node_id(record(number).public_key) for number in OTHERS}


async def test_the_same_manifest_twice_is_one_deployment(sent: SentStatements) -> None:
    await sent.drop(1)
    assert (await sent.drop(1)).endswith("was known already; deployed again")
    assert len(sent.by_id) == 1


async def test_a_refusal_is_written_down_with_its_code_and_changes_nothing(sent: SentStatements) -> None:
    envelope = bytearray(seal_manifest(draft(version=1), PUBLISHER))
    envelope[-1] ^= 1
    with pytest.raises(ManifestError):
        await sent.dissemination.offer(bytes(envelope), "broken.manifest")
    assert sent.by_id == {}
    assert [(event, fields["code"]) for event, fields in sent.audited] == [("manifest refused", "E_SIG_INVALID")]
