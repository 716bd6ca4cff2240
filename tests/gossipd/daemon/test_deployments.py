"""Manifests that are pulled from hosts which may lie, and disks that refuse at any step and are cured."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import trio
import trio.testing

from gossipd.core.chunkset import ChunkSet
from gossipd.core.ids import DeploymentId
from gossipd.core.keys import SecretKey
from gossipd.core.manifest import FileEntry, Manifest, ManifestDraft, Targets, deployment_id, seal_manifest
from gossipd.core.progress import HostReason, HostState
from gossipd.core.register import Register
from gossipd.core.statement import Statement, Verb, sign_statement
from gossipd.daemon.deployment import Deployment
from gossipd.daemon.deployments import Deployments, Host
from gossipd.daemon.state import State
from gossipd.ports import StoreWriteError
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.errors import NotWholeError

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
    home: Path,
    pull: Callable[[Deployment], Awaitable[bytes | None]],
    *,
    trusted: SecretKey = PUBLISHER,
    name: str = "here",
    store: object = None,
) -> AsyncIterator[Deployments]:
    """Of a host that the model is not meant for, unless it is named ``elsewhere``: it accepts the manifest, no more."""
    state = State(home)
    async with trio.open_nursery() as nursery:
        yield Deployments(
            host=Host(name, "rack"), trusted=lambda: frozenset([trusted.public.ed25519]), register=Register(),
            state=state, store=cast(ChunkStore, store), post=lambda event: None, pull=pull,
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


class IllStore:
    """Refuses to open once, and to publish in both ways, before its disk is well."""

    def __init__(self) -> None:
        self.openings: list[Exception | None] = [StoreWriteError("the disk failed", code="E_STORE_IO"), None]
        self.endings: list[Exception | None] = [
            NotWholeError("1 chunk is not durable yet"), StoreWriteError("the disk is full", code="E_NO_SPACE"), None
        ]  # fmt: skip
        self.abandoned: list[DeploymentId] = []

    def open(self, manifest: Manifest) -> ChunkSet:
        if (error := self.openings.pop(0)) is not None:
            raise error
        return ChunkSet(manifest.chunk_count)

    def versions(self, name: str) -> list[int]:
        return []

    def finish(self, deployment: DeploymentId) -> None:
        if (error := self.endings.pop(0)) is not None:
            raise error

    def abandon(self, deployment: DeploymentId) -> None:
        self.abandoned.append(deployment)


async def test_a_disk_that_refuses_is_tried_again_and_nothing_verified_is_thrown_away(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async def pull(deployment: Deployment) -> bytes | None:
        return ENVELOPE

    store = IllStore()
    async with deployments(tmp_path / "state", pull, name="elsewhere", store=store) as made:
        deployment = made.act(statement())
        seen: list[tuple[HostState, HostReason]] = []
        while deployment.state is not HostState.COMPLETE and len(seen) < 100:
            if deployment.state is HostState.DOWNLOADING:
                made.finish(ID)
            if seen[-1:] != [(deployment.state, deployment.reason)]:
                seen.append((deployment.state, deployment.reason))
            await trio.sleep(1)
    assert deployment.state is HostState.COMPLETE
    assert (HostState.INIT, HostReason.DISK) in seen
    assert (HostState.DOWNLOADING, HostReason.DISK) in seen
    assert (HostState.VERIFYING, HostReason.DISK) in seen
    assert (store.openings, store.endings, store.abandoned) == ([], [], [])
