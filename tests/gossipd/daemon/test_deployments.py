"""What is said about deployments, which of it begins one, and how a life ends while the store is at work."""

from __future__ import annotations

import errno
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import ChunkLost, ChunkStored, DeploymentOpened, Event
from gossipd.core.ids import SOURCE, DeploymentId
from gossipd.daemon.admin_operations import AdminOperations
from gossipd.daemon.deployments import Deployments, HostIdentity
from gossipd.daemon.state_dir import StateDirectory, StateWriteError
from gossipd.deployment.progress import HostReason, HostState
from gossipd.deployment.statement import Statement, Verb, sign_statement
from gossipd.deployment.statement_store import STATEMENTS_MAX, StatementStore
from gossipd.identity.keys import SecretKey
from gossipd.manifest.manifest import Manifest
from gossipd.runtime.ports import StoreWriteError
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.disk.disk import FileKind
from gossipd.store.models import layout
from gossipd.store.notices import ModelEvicted
from gossipd.store.settings import StoreSettings
from tests.gossipd.store.memory_disk import MemoryDisk
from tests.gossipd.store.set_clock import SetClock
from tests.gossipd.store.small_models import SECRET, small

KEY = SecretKey(b"k" * 32)
ONE = small(version=1)
WAIT_S = 20.0  # for a thread; it takes milliseconds


class _Nursery:
    """Counts what is begun and runs nothing."""

    def __init__(self) -> None:
        self.begun = 0

    def start_soon(self, *_: object) -> None:
        self.begun += 1


class _Store(ChunkStore):
    """The real store on a disk in memory, that can be held up while it opens a model, and refuse to delete."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        super().__init__(
            Path("unused"), settings=StoreSettings(reserve_bytes=0, keep_versions=1), on_event=lambda _event: None,
            disk=self.disk, clock=SetClock(), background=False, before_evict=self._before_evict,
        )  # fmt: skip
        self.hears_evictions: Callable[[ModelEvicted], None] = lambda _event: None
        self.may_open, self.has_begun = threading.Event(), threading.Event()
        self.may_open.set()
        self.refusals = 0
        self.abandoned: list[DeploymentId] = []

    def _before_evict(self, event: ModelEvicted) -> None:
        self.hears_evictions(event)

    def open(self, manifest: Manifest) -> ChunkSet:
        self.has_begun.set()
        assert self.may_open.wait(WAIT_S)
        return super().open(manifest)

    def abandon(self, deployment: DeploymentId) -> None:
        if self.refusals:
            self.refusals -= 1
            raise StoreWriteError("Input/output error", code="E_STORE_IO")
        super().abandon(deployment)
        self.abandoned.append(deployment)

    def has(self, deployment: DeploymentId) -> bool:
        """Whether anything of it is on the disk."""
        places = (layout.incoming(deployment), layout.state(deployment))
        return any(self.disk.kind(place) is FileKind.DIRECTORY for place in places)


class _Node:
    """Deployments over a real register, real state and a real store."""

    def __init__(self, tmp_path: Path, nursery: trio.Nursery, *, is_complete: bool) -> None:
        self.register, self.state, self.store = StatementStore(), StateDirectory(tmp_path / "state"), _Store()
        self.audited: list[str] = []
        if is_complete:
            self.store.open(ONE.manifest)
            for chunk, body in enumerate(ONE.chunks):
                self.store.put(ONE.manifest.id, chunk, body, SOURCE, 0.0)
            self.store.finish(ONE.manifest.id)
        self.register.set_signers([KEY.public.ed25519])
        self.posted: list[Event] = []
        self.deployments = Deployments(
            host=HostIdentity("node-1", "rack-1"),
            trusted=lambda: frozenset([SECRET.public.ed25519]),
            register=self.register,
            state=self.state,
            store=self.store,
            post=self.posted.append,
            pull=self._pull,
            audit=lambda event, **_: self.audited.append(event),
            rack_of=lambda _node: None,
            begun=lambda _one: None,
            opened=lambda _one: None,
            closed=lambda _one: None,
            nursery=nursery,
            complete_before=frozenset(model.deployment for model in self.store.models() if model.is_published),
        )

    async def _pull(self, _deployment: object) -> bytes:
        return ONE.manifest.envelope

    def say(self, epoch: int, verb: Verb) -> None:
        statement = said(ONE.manifest.id, epoch, verb)
        self.register.hear(statement)
        self.deployments.act(statement)

    def orders(self) -> AdminOperations:
        nothing: Any = None
        return AdminOperations(
            swim=nothing, wake=nothing, register=self.register, deployments=self.deployments, dissemination=nothing,
            store=self.store, state=self.state, progress_publisher=nothing, audit=lambda *_, **__: None,
        )  # fmt: skip

    @property
    def state_now(self) -> HostState:
        return self.deployments.by_id[ONE.manifest.id].state

    async def until(self, holds: Callable[[], bool]) -> None:
        with trio.fail_after(WAIT_S):
            while not holds():
                await trio.sleep(0.001)


def said(deployment: DeploymentId, epoch: int, verb: Verb = Verb.DEPLOY, now_s: float = 1_000_000) -> Statement:
    return sign_statement(KEY, deployment, epoch=epoch, verb=verb, manifest_bytes=100, now_s=now_s)


@asynccontextmanager
async def living(tmp_path: Path, *, is_complete: bool = False) -> AsyncIterator[_Node]:
    async with trio.open_nursery() as nursery:
        node = _Node(tmp_path, nursery, is_complete=is_complete)
        yield node
        nursery.cancel_scope.cancel()
    node.state.close()


def deployments_that_run_nothing(register: Any) -> tuple[Deployments, _Nursery]:
    nursery, nothing = _Nursery(), SimpleNamespace()
    as_any: Any = nothing
    runs_nothing: Any = nursery
    return Deployments(
        host=HostIdentity("node-1", "rack-1"), trusted=frozenset, register=register, state=as_any, store=as_any,
        post=lambda _event: None, pull=as_any, audit=lambda *_, **__: None, rack_of=lambda _node: None,
        begun=lambda _one: None, opened=lambda _one: None, closed=lambda _one: None, nursery=runs_nothing,
    ), nursery  # fmt: skip


async def test_a_statement_that_gossip_brings_before_the_start_acts_on_it_begins_one_life() -> None:
    deployments, nursery = deployments_that_run_nothing(StatementStore())
    statement = said(DeploymentId(b"d" * 32), 1)
    first = deployments.act(statement)
    assert deployments.act(statement) is first
    assert nursery.begun == 1, "two lives would share one cancel scope, which trio refuses: the daemon ended"


async def test_no_more_deployments_are_kept_than_the_register_has_last_words() -> None:
    register = StatementStore()
    register.set_signers([KEY.public.ed25519])
    deployments, _ = deployments_that_run_nothing(register)
    for number in range(STATEMENTS_MAX + 200):
        statement = said(DeploymentId(number.to_bytes(32, "big")), 1, now_s=1_000_000 + number)
        register.hear(statement)
        deployments.act(statement)
    assert len(deployments.by_id) <= STATEMENTS_MAX + 1
    assert all(register.statement(deployment) for deployment in list(deployments.by_id)[-STATEMENTS_MAX:])


async def test_a_cancel_that_comes_while_the_store_makes_room_is_not_lost_and_nothing_of_it_stays(
    tmp_path: Path,
) -> None:
    async with living(tmp_path) as node:
        node.store.may_open.clear()
        node.say(1, Verb.DEPLOY)
        await node.until(node.store.has_begun.is_set)
        node.say(2, Verb.CANCEL)
        node.store.may_open.set()
        await node.until(lambda: ONE.manifest.id in node.store.abandoned)
        assert not node.store.has(ONE.manifest.id)
        assert node.state_now is HostState.CANCELLED
        assert not any(isinstance(event, DeploymentOpened) for event in node.posted)


async def test_a_deploy_that_follows_a_cancel_at_once_counts_what_the_store_holds_then(tmp_path: Path) -> None:
    async with living(tmp_path) as node:
        node.say(1, Verb.DEPLOY)
        await node.until(lambda: node.state_now is HostState.DOWNLOADING)
        node.store.put(ONE.manifest.id, 0, ONE.chunks[0], SOURCE, 0.0)
        deployment = node.deployments.by_id[ONE.manifest.id]
        deployment.chunks_verified = 1
        node.say(2, Verb.CANCEL)
        await node.until(lambda: not node.store.has(ONE.manifest.id))
        node.say(3, Verb.DEPLOY)
        await node.until(lambda: node.state_now is HostState.DOWNLOADING)
        assert deployment.chunks_verified == 0, "what was cancelled is deleted; its chunks came again on top of those"


async def test_what_was_cancelled_in_a_run_that_ended_before_it_was_deleted_is_deleted_at_the_next_start(
    tmp_path: Path,
) -> None:
    async with living(tmp_path) as node:
        node.store.open(ONE.manifest)
        assert node.store.has(ONE.manifest.id)
        node.say(2, Verb.CANCEL)
        await node.until(lambda: not node.store.has(ONE.manifest.id))


async def test_a_disk_that_refuses_to_delete_is_asked_again_until_it_does(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    del autojump_clock
    async with living(tmp_path) as node:
        node.store.open(ONE.manifest)
        node.store.refusals = 3
        node.say(2, Verb.CANCEL)
        with trio.fail_after(1_000_000):  # of the clock that jumps while the thread is at work
            while ONE.manifest.id not in node.store.abandoned:
                await trio.sleep(1)
        assert node.store.refusals == 0
        assert not node.store.has(ONE.manifest.id)


async def test_a_manifest_that_the_disk_does_not_give_is_pulled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with living(tmp_path) as node:
        node.state.keep_envelope(ONE.manifest.id, ONE.manifest.envelope)

        def refuses(*_: object, **__: object) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr("gossipd.daemon.state_dir.read_file", refuses)
        node.say(1, Verb.DEPLOY)
        await node.until(lambda: node.state_now is HostState.DOWNLOADING)


async def test_an_eviction_is_remembered_on_disk_before_the_old_version_is_deleted(tmp_path: Path) -> None:
    async with living(tmp_path, is_complete=True) as node:
        two = small(version=2, seed=2)
        node.store.open(two.manifest)
        for chunk, body in enumerate(two.chunks):
            node.store.put(two.manifest.id, chunk, body, SOURCE, 0.0)
        remembered: list[bool] = []

        def before_evict(event: ModelEvicted) -> None:
            trio.from_thread.run(node.deployments.remember_removed, event.deployment)
            remembered.append(node.state.register().is_removed(ONE.manifest.id) and node.store.versions("m") == [1, 2])

        node.store.hears_evictions = before_evict
        await trio.to_thread.run_sync(node.store.finish, two.manifest.id)
        assert remembered == [True]
        assert node.store.versions("m") == [2]


async def test_what_was_complete_when_it_was_cancelled_is_complete_after_a_restart_and_can_be_removed(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, is_complete=True) as node:
        node.say(2, Verb.CANCEL)
        await node.until(lambda: node.state_now is HostState.COMPLETE)
        assert (await node.orders().remove("m", 1, dry_run=False)).changed
        assert node.store.versions("m") == []


async def test_a_chunk_of_a_complete_model_that_is_lost_and_repaired_leaves_a_trace(tmp_path: Path) -> None:
    async with living(tmp_path, is_complete=True) as node:
        node.say(1, Verb.DEPLOY)
        await node.until(lambda: node.state_now is HostState.COMPLETE)
        node.deployments.note(ChunkLost(ONE.manifest.id, 3))
        node.deployments.note(ChunkStored(ONE.manifest.id, 3, SOURCE, 100, 0.1))
        assert node.audited == ["chunk lost", "chunk repaired"]
        assert node.deployments.by_id[ONE.manifest.id].chunks_verified == ONE.manifest.chunk_count


async def test_a_publication_that_meets_the_end_of_the_daemon_gives_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with living(tmp_path) as node:
        node.say(1, Verb.DEPLOY)
        await node.until(lambda: node.state_now is HostState.DOWNLOADING)
        for chunk, body in enumerate(ONE.chunks):
            node.store.put(ONE.manifest.id, chunk, body, SOURCE, 0.0)
        finish, ended = node.store.finish, threading.Event()

        def finish_too_late(deployment: DeploymentId) -> None:
            node.store.close()
            try:
                finish(deployment)
            finally:
                ended.set()

        monkeypatch.setattr(node.store, "finish", finish_too_late)
        node.deployments.finish(ONE.manifest.id)
        await node.until(ended.is_set)
        await trio.testing.wait_all_tasks_blocked()
        assert node.state_now is HostState.VERIFYING
        assert node.store.abandoned == []
        assert node.store.has(ONE.manifest.id), "verified, and published at the next start"


async def test_rm_on_a_disk_too_full_to_remember_it_deletes_first_and_remembers_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with living(tmp_path) as node:
        node.say(1, Verb.DEPLOY)
        await node.until(lambda: node.state_now is HostState.DOWNLOADING)
        keep = node.state.keep_register

        def refuses_while_the_model_is_there(kept: bytes, revision: int) -> None:
            if node.store.has(ONE.manifest.id):
                raise StateWriteError("No space left on device")
            keep(kept, revision)

        monkeypatch.setattr(node.state, "keep_register", refuses_while_the_model_is_there)
        done = await node.orders().remove("m", 1, dry_run=False)
        assert done.changed
        assert node.deployments.by_id[ONE.manifest.id].reason is HostReason.REMOVED
        assert node.state.register().is_removed(ONE.manifest.id)


async def test_rm_that_could_not_be_remembered_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with living(tmp_path) as node:
        node.say(1, Verb.DEPLOY)
        await node.until(lambda: node.state_now is HostState.DOWNLOADING)

        def refuses(*_: object) -> None:
            raise StoreWriteError("Input/output error", code="E_STORE_IO")

        with monkeypatch.context() as broken, pytest.raises(StoreWriteError):
            broken.setattr(node.store, "remove", refuses)
            await node.orders().remove("m", 1, dry_run=False)
        await node.until(
            lambda: not node.store.has(ONE.manifest.id)
        )  # the deployment was closed, and gives up by itself
        again = await node.orders().remove("m", 1, dry_run=False)
        assert not again.changed
        assert "before" in again.sentence


async def test_a_kept_manifest_that_has_rotted_is_asked_of_others(tmp_path: Path) -> None:
    async with living(tmp_path) as node:
        rotten = bytearray(ONE.manifest.envelope)
        rotten[-1] ^= 1
        node.state.keep_envelope(ONE.manifest.id, bytes(rotten))
        node.say(1, Verb.DEPLOY)
        await node.until(lambda: node.state_now is HostState.DOWNLOADING)
        assert node.state.envelope(ONE.manifest.id) == ONE.manifest.envelope


async def test_something_foreign_in_the_place_of_a_version_is_no_complete_model(tmp_path: Path) -> None:
    async with living(tmp_path) as node:
        node.store.open(ONE.manifest)
        for chunk, body in enumerate(ONE.chunks):
            node.store.put(ONE.manifest.id, chunk, body, SOURCE, 0.0)
        node.store.commit()
        for directory in ("m", "m/1"):
            node.store.disk.make_directory(directory)
        node.say(1, Verb.DEPLOY)
        await node.until(lambda: node.state_now is HostState.DOWNLOADING)
        node.deployments.finish(ONE.manifest.id)
        await node.until(lambda: node.state_now is HostState.FAILED)
