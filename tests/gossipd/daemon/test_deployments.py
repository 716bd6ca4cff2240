"""Manifests that are pulled from hosts which may lie, or between which bytes are damaged."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import trio
import trio.testing

from gossipd.core.ids import DeploymentId
from gossipd.core.keys import SecretKey
from gossipd.core.manifest import FileEntry, ManifestDraft, Targets, deployment_id, seal_manifest
from gossipd.core.progress import HostReason, HostState
from gossipd.core.register import Register
from gossipd.core.statement import Statement, Verb, sign_statement
from gossipd.daemon.deployment import Deployment
from gossipd.daemon.deployments import Deployments, Host
from gossipd.daemon.state import State
from gossipd.store.chunk_store import ChunkStore

PUBLISHER = SecretKey(b"p" * 32)
ENVELOPE = seal_manifest(
    ManifestDraft(
        name="m", version=1, created_s=1, files=(FileEntry("a", 10, 0o644),), chunk_bytes=65_536, digests=b"d" * 32,
        sources=("http://localhost/m/",), targets=Targets(names=("elsewhere",)),
    ),
    PUBLISHER,
)  # fmt: skip
ID = deployment_id(ENVELOPE)


def statement() -> Statement:
    return sign_statement(
        SecretKey(b"k" * 32), ID, epoch=1, verb=Verb.DEPLOY, manifest_bytes=len(ENVELOPE), now_s=1_000_000
    )


def altered(at: int) -> bytes:
    return ENVELOPE[:at] + bytes([ENVELOPE[at] ^ 1]) + ENVELOPE[at + 1 :]


@asynccontextmanager
async def deployments(
    home: Path, pull: Callable[[Deployment], Awaitable[bytes | None]], *, trusted: SecretKey = PUBLISHER
) -> AsyncIterator[Deployments]:
    """Of a host that the model is not meant for: it accepts the manifest, and nothing else is needed."""
    state = State(home)
    async with trio.open_nursery() as nursery:
        yield Deployments(
            host=Host("here", "rack"), trusted=lambda: frozenset([trusted.public.ed25519]), register=Register(),
            state=state, store=cast(ChunkStore, None), post=lambda event: None, pull=pull,
            audit=lambda event, **fields: None, rack_of=lambda node: None, begun=lambda deployment: None,
            opened=lambda deployment: None, closed=lambda deployment: None, nursery=nursery,
        )  # fmt: skip
        nursery.cancel_scope.cancel()
    state.close()


async def test_a_manifest_that_a_peer_alters_is_asked_of_another_until_it_comes_whole(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    lies = [b"", altered(0), altered(3), altered(30), altered(len(ENVELOPE) - 1), b"x" * len(ENVELOPE)] * 2
    answers: list[bytes | None] = [*lies[:6], None, *lies[6:8], ENVELOPE]

    async def pull(deployment: Deployment) -> bytes | None:
        return answers.pop(0)

    async with deployments(tmp_path / "state", pull) as made:
        deployment = made.act(statement())
        while deployment.manifest is None and deployment.state is HostState.INIT:
            await trio.sleep(1)
        assert deployment.manifest is not None
        assert (deployment.state, answers) == (HostState.INIT, [])


async def test_a_manifest_that_no_trusted_key_has_signed_is_refused_for_good(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    asked: list[DeploymentId] = []

    async def pull(deployment: Deployment) -> bytes | None:
        asked.append(deployment.id)
        return ENVELOPE

    async with deployments(tmp_path / "state", pull, trusted=SecretKey(b"o" * 32)) as made:
        deployment = made.act(statement())
        while deployment.state is HostState.INIT:
            await trio.sleep(1)
        assert (deployment.state, deployment.reason) == (HostState.FAILED, HostReason.REFUSED)
        assert deployment.sentence.startswith("E_KEY_UNKNOWN")
        assert asked == [ID] * 3
