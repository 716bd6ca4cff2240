"""The deployment brain, turned over real files and a real store: durability, and threads that end by themselves."""

from __future__ import annotations

import errno
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from gossipd.api.ports import Done
from gossipd.core.chunkset import ChunkSet
from gossipd.core.errors import ExitCode, QueueFullError
from gossipd.core.events import FinishModel, ProbeSource
from gossipd.core.ids import SOURCE, DeploymentId
from gossipd.core.reasons import HostReason
from gossipd.daemon import deployment_executor, manifest_judging
from gossipd.daemon.admin_operations import AdminOperations
from gossipd.daemon.deployment_driver import DeploymentDriver
from gossipd.daemon.deployment_executor import DeploymentExecutor
from gossipd.daemon.deployment_executor import _open as open_envelope
from gossipd.daemon.state_dir import StateDirectory, StateWriteError
from gossipd.daemon.store_calls import StoreCalls
from gossipd.deployment import commands, events
from gossipd.deployment.brain import DeploymentBrain
from gossipd.deployment.commands import OpenSwarm
from gossipd.deployment.context import BrainContext, DeploymentSettings, HostIdentity
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.progress_record import HostState
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.deployment.statement import Statement, Verb
from gossipd.deployment.statement_file import snapshot
from gossipd.deployment.statement_store import AcceptedManifest, StatementStore
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest
from gossipd.parts.want import EVERYTHING, Want
from gossipd.runtime.ports import StoreWriteError
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.disk.disk import FileKind
from gossipd.store.models import layout
from gossipd.store.notices import ModelEvicted
from gossipd.store.settings import StoreSettings
from tests.gossipd.deployment.scripted_host import KEY, OWN, PEER, ScriptedRoster, said
from tests.gossipd.store.memory_disk import MemoryDisk
from tests.gossipd.store.set_clock import SetClock
from tests.gossipd.store.small_models import SECRET, small

ONE = small(version=1)
WAIT_S = 120.0  # for a thread; it takes milliseconds


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
        self.loses: list[int] = []  # chunks, before its answer is heard
        self.abandoned: list[DeploymentId] = []

    def _before_evict(self, event: ModelEvicted) -> None:
        self.hears_evictions(event)

    def open(self, manifest: Manifest, want: Want = EVERYTHING, *, frees: bool = False) -> ChunkSet:
        self.has_begun.set()
        assert self.may_open.wait(WAIT_S)
        held = super().open(manifest, want, frees=frees)
        self._models.get(manifest.id).held.difference_update(self.loses)
        return held

    def abandon(self, deployment: DeploymentId, *, even_published: bool = False) -> None:
        if self.refusals:
            self.refusals -= 1
            raise StoreWriteError("Input/output error", code="E_STORE_IO")
        super().abandon(deployment, even_published=even_published)
        self.abandoned.append(deployment)

    def has(self, deployment: DeploymentId) -> bool:
        """Whether anything of it is on the disk."""
        places = (layout.incoming(deployment), layout.state(deployment))
        return any(self.disk.kind(place) is FileKind.DIRECTORY for place in places)


class _Swarm:
    """What the rest of the daemon would hear."""

    frees = False

    def __init__(self) -> None:
        self.opened: list[DeploymentId] = []
        self.held: list[ChunkSet] = []
        self.told: list[Statement] = []

    def trusted(self) -> dict[bytes, tuple[str, ...]]:
        return {SECRET.public.ed25519: ("*",)}

    def open_swarm(self, command: OpenSwarm) -> None:
        self.opened.append(command.manifest.id)
        self.held.append(command.held)

    def close_swarm(self, deployment: DeploymentId) -> None:
        pass

    def probe_source(self, command: ProbeSource) -> None:
        pass

    def tell_statement(self, statement: Statement) -> None:
        self.told.append(statement)


class _Client:
    """The one peer, which has the manifest, or does not answer for ever."""

    def __init__(self) -> None:
        self.answers = True

    async def pull(self, work: commands.PullManifest) -> bytes | None:
        if not self.answers:
            await trio.sleep_forever()
        return ONE.manifest.envelope


class _Node:
    """The brain, turned over a real statement store, real state files and a real store."""

    def __init__(self, tmp_path: Path, nursery: trio.Nursery, *, is_complete: bool) -> None:
        self.statements, self.state, self.store = StatementStore(), StateDirectory(tmp_path / "state"), _Store()
        self.audited: list[str] = []
        if is_complete:
            self.fill()
            self.store.finish(ONE.manifest.id)
        self.swarm, self.client = _Swarm(), _Client()
        roster = ScriptedRoster()
        context = BrainContext(
            identity=HostIdentity(OWN, "node-1", "rack-1", KEY), statements=self.statements, roster=roster,
            progress=ClusterProgress(), settings=DeploymentSettings(space_retry_s=0.01),
            complete_before=frozenset(model.deployment for model in self.store.models() if model.is_published),
        )  # fmt: skip
        brain = DeploymentBrain(context, Random(1))
        audit = SimpleNamespace(record=lambda event, **_: self.audited.append(event))
        executor = DeploymentExecutor(
            state=self.state,
            store=self.store,
            client=cast(Any, self.client),
            swarm=cast(Any, self.swarm),
            audit=cast(Any, audit),
        )
        self.lifecycle = brain.lifecycle
        self.driver = DeploymentDriver(brain)
        nursery.start_soon(self.driver.run, executor, nursery)

    def fill(self) -> None:
        """Everything is here."""
        self.store.open(ONE.manifest)
        for chunk, body in enumerate(ONE.chunks):
            self.store.put(ONE.manifest.id, chunk, body, SOURCE, 0.0)

    def say(self, epoch: int, verb: Verb) -> None:
        self.driver.post(
            events.StatementHeard(said(ONE.manifest.id, epoch, verb, issued_s=5.0).encode(), ONE.manifest.id, PEER)
        )

    async def remove(self, *, dry_run: bool = False) -> Done:
        nothing: Any = None
        operations = AdminOperations(
            membership_host=nothing, lifecycle=self.lifecycle, driver=self.driver, store=self.store,
            store_calls=StoreCalls(self.store, nothing, nothing), table=nothing, audit=nothing, reloader=nothing,
            witness=nothing, watermarks=nothing, wants=nothing, budgets=nothing,
        )  # fmt: skip
        return await operations.remove("m", 1, dry_run=dry_run, everywhere=False)

    @property
    def record(self) -> DeploymentRecord:
        found = self.lifecycle.get(ONE.manifest.id)
        assert found is not None
        return found

    async def until(self, holds: Callable[[], bool]) -> None:
        with trio.fail_after(WAIT_S):
            while not holds():
                await trio.sleep(0.001)

    async def until_in(self, state: HostState) -> None:
        await self.until(lambda: self.lifecycle.get(ONE.manifest.id) is not None and self.record.state is state)


@asynccontextmanager
async def living(tmp_path: Path, *, is_complete: bool = False) -> AsyncIterator[_Node]:
    async with trio.open_nursery() as nursery:
        node = _Node(tmp_path, nursery, is_complete=is_complete)
        yield node
        nursery.cancel_scope.cancel()
    node.state.close()


async def test_a_cancel_while_the_store_makes_room_fetches_nothing(tmp_path: Path) -> None:
    async with living(tmp_path) as node:
        node.store.may_open.clear()
        node.say(1, Verb.DEPLOY)
        await node.until(node.store.has_begun.is_set)
        node.say(2, Verb.CANCEL)
        node.store.may_open.set()
        await node.until_in(HostState.CANCELLED)
        node.driver.post(events.DiskConditionChanged("E_NO_SPACE"))
        await node.until(lambda: ONE.manifest.id in node.store.abandoned)
        assert not node.store.has(ONE.manifest.id), "kept until its space is needed"
        assert node.swarm.opened == []


async def test_a_chunk_that_is_lost_before_the_answer_is_heard_is_known_to_be(tmp_path: Path) -> None:
    async with living(tmp_path) as node:
        node.say(1, Verb.DEPLOY)
        await node.until_in(HostState.DOWNLOADING)
        for chunk in (0, 1):
            node.store.put(ONE.manifest.id, chunk, ONE.chunks[chunk], SOURCE, 0.0)
        node.record.held.update((0, 1))
        node.say(2, Verb.CANCEL)
        await node.until_in(HostState.CANCELLED)
        node.store.loses = [1]
        node.say(3, Verb.DEPLOY)
        await node.until_in(HostState.DOWNLOADING)
        assert list(node.swarm.held[-1]) == [0] and node.record.chunks_verified == 1


async def test_a_deploy_after_a_cancel_goes_on_from_what_the_store_holds(tmp_path: Path) -> None:
    async with living(tmp_path) as node:
        node.say(1, Verb.DEPLOY)
        await node.until_in(HostState.DOWNLOADING)
        node.store.put(ONE.manifest.id, 0, ONE.chunks[0], SOURCE, 0.0)
        deployment = node.record
        deployment.held.add(0)
        node.say(2, Verb.CANCEL)
        await node.until_in(HostState.CANCELLED)
        node.say(3, Verb.DEPLOY)
        await node.until_in(HostState.DOWNLOADING)
        assert deployment.chunks_verified == 1
        node.say(4, Verb.CANCEL)
        await node.until_in(HostState.CANCELLED)
        node.driver.post(events.DiskConditionChanged("E_NO_SPACE"))
        await node.until(lambda: not node.store.has(ONE.manifest.id))


async def test_deleting_is_tried_until_the_disk_does_it(tmp_path: Path) -> None:
    async with living(tmp_path) as node:
        node.say(1, Verb.DEPLOY)
        await node.until_in(HostState.DOWNLOADING)
        node.store.refusals = 3
        node.say(2, Verb.CANCEL)
        await node.until(lambda: ONE.manifest.id in node.store.abandoned)
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
        await node.until_in(HostState.DOWNLOADING)


_FLIPPED = bytes(byte ^ (at in (20, 60)) for at, byte in enumerate(ONE.manifest.envelope))  # key and signature alone


@pytest.mark.parametrize("kept", [None, b"", b"torn", ONE.manifest.envelope[:60], _FLIPPED, "a directory"], ids=str)
async def test_a_manifest_that_is_damaged_is_written_again_from_the_store(
    tmp_path: Path, kept: bytes | str | None
) -> None:
    async with living(tmp_path, is_complete=True) as node:
        node.client.answers = False  # no other host has it
        place = tmp_path / "state" / "manifests" / ONE.manifest.id.hex()
        if isinstance(kept, bytes):
            place.write_bytes(kept)
        elif kept is not None:
            place.mkdir()
        node.say(1, Verb.DEPLOY)
        await node.until_in(HostState.COMPLETE)
        assert place.is_dir() or place.read_bytes() == ONE.manifest.envelope


async def test_of_two_manifests_that_differ_the_one_that_an_accepted_key_has_signed_is_read(tmp_path: Path) -> None:
    """Also where that key is no longer trusted; else the kept one, which another host can replace."""
    async with living(tmp_path, is_complete=True) as node:
        node.state.keep_envelope(ONE.manifest.id, _FLIPPED)
        node.swarm.trusted = dict  # type: ignore[method-assign]
        executor = DeploymentExecutor(
            state=node.state, store=node.store, client=cast(Any, node.client), swarm=cast(Any, node.swarm),
            audit=cast(Any, None),
        )  # fmt: skip
        for signer, found in ((b"", _FLIPPED), (SECRET.public.ed25519, ONE.manifest.envelope)):
            ended = await executor.carry_out(commands.ReadManifest(1, ONE.manifest.id, signer))
            assert isinstance(ended, events.EnvelopeFound) and ended.envelope == found


async def test_a_manifest_in_a_store_that_does_not_answer_is_asked_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = Event()
    monkeypatch.setattr(deployment_executor, "READ_S", 0.01)
    async with living(tmp_path, is_complete=True) as node:
        executor = DeploymentExecutor(
            state=node.state, store=node.store, client=cast(Any, node.client), swarm=cast(Any, node.swarm),
            audit=cast(Any, None),
        )  # fmt: skip
        other = small(name="other").manifest
        monkeypatch.setattr(node.store, "manifest_bytes", lambda deployment: answers.wait(5.0) or other.envelope)
        try:
            ended = await executor.carry_out(commands.ReadManifest(1, other.id, b""))
            assert ended == events.EnvelopeFound(1, None)
        finally:
            answers.set()


async def test_an_eviction_is_durable_before_the_version_is_deleted(tmp_path: Path) -> None:
    async with living(tmp_path, is_complete=True) as node:
        two = small(version=2, seed=2)
        node.store.open(two.manifest)
        for chunk, body in enumerate(two.chunks):
            node.store.put(two.manifest.id, chunk, body, SOURCE, 0.0)
        remembered: list[bool] = []

        def before_evict(event: ModelEvicted) -> None:
            trio.from_thread.run(node.driver.ask, lambda request: events.EvictionBegun(request, event.deployment))
            remembered.append(node.state.register().is_removed(ONE.manifest.id) and node.store.versions("m") == [1, 2])

        node.store.hears_evictions = before_evict
        await trio.to_thread.run_sync(node.store.finish, two.manifest.id)
        assert remembered == [True]
        assert node.store.versions("m") == [2]


async def test_a_cancelled_complete_model_survives_a_restart_and_can_be_removed(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, is_complete=True) as node:
        node.say(2, Verb.CANCEL)
        await node.until_in(HostState.COMPLETE)
        assert (await node.remove()).changed
        assert node.store.versions("m") == []


async def test_publishing_at_the_end_of_the_daemon_gives_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with living(tmp_path) as node:
        node.say(1, Verb.DEPLOY)
        await node.until_in(HostState.DOWNLOADING)
        node.fill()
        finish, ended = node.store.finish, threading.Event()

        def finish_too_late(deployment: DeploymentId) -> None:
            node.store.close()
            try:
                finish(deployment)
            finally:
                ended.set()

        monkeypatch.setattr(node.store, "finish", finish_too_late)
        node.driver.post(FinishModel(ONE.manifest.id))
        await node.until(ended.is_set)
        await trio.testing.wait_all_tasks_blocked()
        assert node.record.state is HostState.VERIFYING
        assert node.store.abandoned == []
        assert node.store.has(ONE.manifest.id), "verified, and published at the next start"


async def test_a_dry_run_of_rm_says_who_would_miss_the_version(tmp_path: Path) -> None:
    async with living(tmp_path) as node:
        node.say(1, Verb.DEPLOY)
        await node.until_in(HostState.DOWNLOADING)
        assert (await node.remove(dry_run=True)).sentence.endswith(", from this host")
        node.fill()
        node.store.finish(ONE.manifest.id)
        node.store.pin("m@1")
        done = await node.remove(dry_run=True)
        assert not done.changed
        assert done.sentence.endswith(", from this host; current leads to it, it is pinned")
        assert node.store.has(ONE.manifest.id)


async def test_rm_on_a_full_disk_deletes_first_and_remembers_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with living(tmp_path) as node:
        node.say(1, Verb.DEPLOY)
        await node.until_in(HostState.DOWNLOADING)
        keep = node.state.keep_register

        def refuses_while_the_model_is_there(kept: bytes, revision: int) -> None:
            if node.store.has(ONE.manifest.id):
                raise StateWriteError("No space left on device")
            keep(kept, revision)

        monkeypatch.setattr(node.state, "keep_register", refuses_while_the_model_is_there)
        done = await node.remove()
        assert done.changed
        assert node.record.reason is HostReason.REMOVED
        assert node.state.register().is_removed(ONE.manifest.id)


async def test_rm_that_could_not_be_remembered_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with living(tmp_path) as node:
        node.say(1, Verb.DEPLOY)
        await node.until_in(HostState.DOWNLOADING)

        def refuses(*_: object) -> None:
            raise StoreWriteError("Input/output error", code="E_STORE_IO")

        with monkeypatch.context() as broken, pytest.raises(StoreWriteError):
            broken.setattr(node.store, "remove", refuses)
            await node.remove()
        await node.until(
            lambda: not node.store.has(ONE.manifest.id)
        )  # the deployment was closed, and gives up by itself
        again = await node.remove()
        assert not again.changed
        assert "before" in again.sentence


async def test_foreign_files_in_place_of_a_version_fail_it(tmp_path: Path) -> None:
    async with living(tmp_path) as node:
        node.fill()
        node.store.commit()
        for directory in ("m", "m/1"):
            node.store.disk.make_directory(directory)
        node.say(1, Verb.DEPLOY)
        await node.until_in(HostState.DOWNLOADING)
        node.driver.post(FinishModel(ONE.manifest.id))
        await node.until_in(HostState.FAILED)


async def test_a_dropped_manifest_is_opened_accepted_and_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def counted(holder: object, name: str, label: Callable[..., str]) -> None:
        call = getattr(holder, name)

        def count(*arguments: Any) -> Any:
            calls.append(label(*arguments))
            return call(*arguments)

        monkeypatch.setattr(holder, name, count)

    counted(manifest_judging, "open_manifest", lambda *_: "open")
    counted(StatementStore, "accept", lambda *_: "accept")
    counted(StateDirectory, "_write", lambda _self, name, _body: f"write {name.partition('/')[0]}")
    async with living(tmp_path) as node:
        assert await node.driver.offer(ONE.manifest.envelope, "one.manifest") == "m@1 accepted"
        await node.until_in(HostState.DOWNLOADING)
        node.state.keep_register(*snapshot(node.statements))  # as the state saver does, a second later
        node.fill()
        node.driver.post(FinishModel(ONE.manifest.id))
        await node.until_in(HostState.COMPLETE)
        node.state.keep_register(*snapshot(node.statements))
    assert calls == ["open", "accept", "write manifests", "write register"]


async def test_refusals_are_raised_to_the_inbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with living(tmp_path) as node:
        with pytest.raises(ManifestError):
            await node.driver.offer(ONE.manifest.envelope[:-1], "half.manifest")

        def refuses(*_: object) -> None:
            raise StateWriteError("No space left on device")

        with monkeypatch.context() as broken, pytest.raises(QueueFullError) as caught:
            broken.setattr(node.state, "keep_register", refuses)
            await node.driver.offer(ONE.manifest.envelope, "one.manifest")
        assert (caught.value.code, caught.value.code_of_exit) == ("E_STATE_WRITE", ExitCode.DISK)
        assert node.swarm.told == []
        await node.driver.offer(ONE.manifest.envelope, "one.manifest")
        assert [one.epoch for one in node.swarm.told] == [1]


async def test_a_pull_that_never_ends_is_cut_short_by_a_cancel(tmp_path: Path) -> None:
    async with living(tmp_path) as node:
        node.client.answers = False
        node.statements.state.accepted[ONE.manifest.id] = AcceptedManifest(SECRET.public.ed25519, 0)
        node.say(1, Verb.DEPLOY)
        await trio.testing.wait_all_tasks_blocked(0.05)
        node.say(2, Verb.CANCEL)
        await node.until_in(HostState.CANCELLED)
        node.client.answers = True
        node.say(3, Verb.DEPLOY)
        await node.until_in(HostState.DOWNLOADING)


async def test_an_order_whose_sender_has_gone_is_carried_out(tmp_path: Path) -> None:
    async with living(tmp_path) as node:
        with trio.CancelScope() as scope:
            scope.cancel()
            await node.driver.offer(ONE.manifest.envelope, "one.manifest")
        await node.until_in(HostState.DOWNLOADING)


@pytest.mark.parametrize(
    ("trusted", "code"),
    [
        ({SECRET.public.ed25519: ("*",)}, ""),
        ({SECRET.public.ed25519: ("train/*", "m")}, ""),
        ({SECRET.public.ed25519: ("train/*",)}, "E_KEY_NAME"),
        ({}, "E_KEY_UNKNOWN"),
    ],
)
async def test_a_key_signs_the_names_that_it_is_trusted_for(trusted: dict[bytes, tuple[str, ...]], code: str) -> None:
    work = commands.OpenManifest(1, ONE.manifest.envelope, ONE.manifest.id)
    ended = await open_envelope(work, trusted)
    assert (ended.error.code if isinstance(ended, events.ManifestRefused) else "") == code
    accepted = commands.OpenManifest(1, ONE.manifest.envelope, ONE.manifest.id, SECRET.public.ed25519)
    assert isinstance(await open_envelope(accepted, trusted), events.ManifestOpened), (
        "accepted once, it is not judged again"
    )
    other = commands.OpenManifest(1, ONE.manifest.envelope, DeploymentId(b"o" * 32), SECRET.public.ed25519)
    assert isinstance(await open_envelope(other, trusted), events.ManifestRefused) is bool(code), (
        "only that very content"
    )
