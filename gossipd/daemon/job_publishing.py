"""Publishing for the users of this host: the body of ``api.ports.PublishPort``.

What lives here: the order of steps, and what is undone when one fails. What does not: who may (``publish.permits``),
which version (``publish.next_version``), hashing (``publish.publisher``), copying (``store``), deploying
(``deployment.orders``).

A directory is hashed and signed, or its manifest was signed elsewhere; its chunks are copied into the store, each
compared with its digest; only then the manifest is offered as one from the inbox is. So this host holds the version
whole before anybody hears of it, which matters: the manifest has no source, and the other hosts fetch from this one.
Where the offer is refused, the copy is deleted, by the next start if this one is killed: only what was noted before the
copy was begun (``leftovers``), because books without a statement may be what an operator keeps.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec
import trio

from gossipd.api.ports import PublishStep, StatusPort
from gossipd.api.readiness import HostsNeeded
from gossipd.core.errors import ExitCode, GossipdError, LocalError
from gossipd.core.ids import DeploymentId
from gossipd.core.versions import split_version
from gossipd.daemon.deployment_driver import DeploymentDriver
from gossipd.daemon.envelope_file import envelope_of_order, read_envelope
from gossipd.daemon.leftovers import settle_publication
from gossipd.daemon.live_settings import LiveSettings
from gossipd.daemon.manifest_judging import judge_manifest
from gossipd.daemon.progress_publisher import ProgressPublisher
from gossipd.daemon.publishing_job import ManifestMaker, PublishingJob
from gossipd.daemon.publishing_turns import PublishingTurns
from gossipd.daemon.state_dir import StateDirectory
from gossipd.daemon.untold_shards import LOOK_S as UNTOLD_LOOK_S
from gossipd.daemon.untold_shards import UntoldShards
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.progress_record import HostState
from gossipd.deployment.statement_store import StatementStore
from gossipd.deployment.states import FINAL
from gossipd.identity.keys import SecretKey
from gossipd.identity.trust import keys_for
from gossipd.manifest.annotations import Retention, check_retention, pack_about, read_about
from gossipd.manifest.manifest import Manifest, ManifestDraft, seal_manifest
from gossipd.manifest.names import check_model_name
from gossipd.manifest.shards import RANKS_MAX, Joined, join_shards, open_shards
from gossipd.parts.want import EVERYTHING
from gossipd.publish.adoption import ANY_OWNER, AdoptableFiles, AdoptableShards, opened
from gossipd.publish.errors import PublishError, TreeChangedError
from gossipd.publish.next_version import next_version
from gossipd.publish.permits import ROOT, check_permit, signing_key
from gossipd.publish.selection import selection_without
from gossipd.publish.step_watch import KnownSteps
from gossipd.runtime.file_access import user_number
from gossipd.runtime.look_interval import until_next_look
from gossipd.runtime.worker_threads import run_blocking
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.disk.syscalls import can_share_blocks

LINE_S = 1.0  # between two lines: a client gives up after ten seconds without one
LOOK_S = 0.02
_HIDDEN_PLACES = ("/tmp/", "/var/tmp/", "/home/", "/root/", "/run/user/")
_Run: TypeAlias = Callable[[PublishingJob], Awaitable[None]]


class CannotAdoptError(LocalError):
    """The directory cannot be taken over. Fault: the caller. State: unchanged. Retry: after the remedy. Codes:
    ``E_ADOPT``, also where this host wants only a part of the name; ``E_NO_REFLINK``, the file systems cannot share
    blocks."""

    code = "E_ADOPT"


class NotDeployedError(LocalError):
    """The version was held and told, and has ended here all the same. Fault: the sentence says whose. Retry: as it
    says."""

    code = "E_NOT_DEPLOYED"
    exit_code = ExitCode.PARTIAL


class TwoContentsError(NotDeployedError):
    """Two hosts have told of one version with different contents. Fault: both jobs. State: each host has its own.
    Retry: under a version above it."""

    code = "E_EQUIVOCATION"
    exit_code = ExitCode.TRUST


def _owner(user: int) -> int:
    """Whose files a user may publish."""
    return ANY_OWNER if user in (ROOT, os.geteuid()) else user


def _keep(last: int | None, every: int | None) -> Retention | None:
    """The two numbers of a job as its manifest has them. Raises ManifestError ``E_LIMIT``."""
    if last is None:
        return None
    keep = Retention(last=last, every=every or 0)
    check_retention(keep)
    return keep


def _joined(directory: Path, name: str, trusted: Collection[bytes]) -> Joined:
    """What all hosts have hashed, in the files of a directory. Raises ManifestError, PublishError."""
    paths = sorted(directory.iterdir())
    if len(paths) > RANKS_MAX:
        raise PublishError(f"{directory} has {len(paths)} files, at most {RANKS_MAX}: one for each host")
    return join_shards(name, [open_shards(read_envelope(path), trusted) for path in paths])


@dataclass(kw_only=True, eq=False)
class JobPublishing:
    """The body of ``PublishPort``, which says what each method does."""

    live: LiveSettings
    view: StatusPort
    driver: DeploymentDriver
    store: ChunkStore
    statements: StatementStore
    nursery: trio.Nursery
    state: StateDirectory
    """Also for a manifest that is being written."""
    progress: ProgressPublisher

    def __post_init__(self) -> None:
        self._turns = PublishingTurns()
        self._untold = UntoldShards()

    async def publish(
        self, user: int, directory: str, name: str, *, version: int | None, step: int | None, how: str,
        keep_last: int | None = None, keep_every: int | None = None, about: str = "", exclude: str = "",
    ) -> AsyncGenerator[PublishStep, None]:  # fmt: skip
        key, path, chosen_files = self._key_of(user, name), Path(directory), selection_without(exclude)
        told = pack_about(read_about(about.encode()))
        _next(self, name, version=version, step=step)  # refused at once, not after hashing
        keep = _keep(keep_last, keep_every)

        async def run(job: PublishingJob) -> None:
            async with self._turns.of_name(name):
                chosen = self._choose(job, name, version=version, step=step)
                make = ManifestMaker(
                    job, path, chosen_files, name, chosen, key, self.state.path, _owner(user), keep, told
                )
                manifest = await self._turns.run(job, make.manifest)
                await self._adopt(job, manifest, path, user, how)

        async for line in self._told(run, name):
            yield line

    async def adopt(self, user: int, directory: str, manifest: str, *, how: str) -> AsyncGenerator[PublishStep, None]:
        opened_manifest = await self._judged(user, Path(manifest))

        async def run(job: PublishingJob) -> None:
            async with self._turns.of_name(opened_manifest.name):
                await self._adopt(job, opened_manifest, Path(directory), user, how)

        async for line in self._told(run, opened_manifest.name):
            yield line

    # ---- files on several hosts ----------------------------------------------------------------------

    async def shards(
        self, user: int, directory: str, name: str, *, rank: int, ranks: int, chunk_bytes: int,
        exclude: str = "",
    ) -> AsyncGenerator[PublishStep, None]:  # fmt: skip
        key, chosen_files = self._key_of(user, name), selection_without(exclude)

        def hashed(job: PublishingJob) -> bytes:
            from gossipd.publish.shard_hashing import hash_shards  # see ManifestMaker

            return hash_shards(
                Path(directory), name, chosen_files, key, job, rank=rank, ranks=ranks, chunk_bytes=chunk_bytes,
                user=_owner(user),
            )  # fmt: skip

        async def run(job: PublishingJob) -> None:
            job.sign(await self._turns.run(job, hashed, job))

        async for line in self._told(run, name):
            yield line

    async def assemble(
        self, user: int, shards: str, name: str, *, version: int | None, step: int | None, keep_last: int | None,
        keep_every: int | None, about: str,
    ) -> AsyncGenerator[PublishStep, None]:  # fmt: skip
        trusted, key = self.live.trusted(), self._key_of(user, name)
        keep, told = _keep(keep_last, keep_every), pack_about(read_about(about.encode()))

        async def run(job: PublishingJob) -> None:
            async with self._turns.of_name(name):
                chosen = self._choose(job, name, version=version, step=step)
                joined = await run_blocking(_joined, Path(shards), name, keys_for(trusted, name))
                draft = ManifestDraft(
                    name=name, version=chosen, created_s=int(time.time()), files=joined.files,
                    chunk_bytes=joined.chunk_bytes, digests=joined.digests, sources=(), keep=keep,
                    about=told,
                )  # fmt: skip
                job.sign(await run_blocking(seal_manifest, draft, key))

        async for line in self._told(run, name):
            yield line

    async def adopt_shards(
        self, user: int, directory: str, manifest: str, *, is_told: bool
    ) -> AsyncGenerator[PublishStep, None]:
        opened_manifest = await self._judged(user, Path(manifest))

        async def run(job: PublishingJob) -> None:
            async with self._turns.of_name(opened_manifest.name):
                find = partial(AdoptableShards, Path(directory), opened_manifest, _owner(user))
                files = await self._turns.run(job, find)
                await self._take_over(job, opened_manifest, files, Path(directory), is_told=is_told)

        async for line in self._told(run, opened_manifest.name):
            yield line

    # ---- rights and versions -------------------------------------------------------------------------

    def _check_permit(self, user: int, name: str) -> None:
        section = self.live.config.publish
        watched = [(one.user, (one.name,)) for one in section.watch if one.user]
        check_permit(
            user, name, own_user=os.geteuid(), permits=(*section.users, *watched), number_of=user_number
        )  # fmt: skip

    def _key_of(self, user: int, name: str) -> SecretKey:
        """What signs the name for this user. Raises as ``publish`` does."""
        check_model_name(name)
        self._check_permit(user, name)
        _check_all_is_wanted(self.live, name)
        return signing_key(self.live.keys.signing, self.live.trusted(), name)

    async def _judged(self, user: int, path: Path) -> Manifest:
        """A manifest that was signed elsewhere, under a name that this user may publish. Raises as ``adopt`` does."""
        envelope = await envelope_of_order(path)
        manifest = await judge_manifest(envelope, self.live.trusted())
        self._check_permit(user, manifest.name)
        _check_all_is_wanted(self.live, manifest.name)
        return manifest

    def _choose(self, job: PublishingJob, name: str, *, version: int | None, step: int | None) -> int:
        """The version of a job, whose turn among those of the name has come."""
        chosen = _next(self, name, version=version, step=step)
        job.step = msgspec.structs.replace(job.step, version=chosen)
        return chosen

    def last_version(self, name: str) -> int | None:
        """The highest version that this host has heard of, complete or not."""
        trusted = self.statements.state.versions.get(name, {})
        known = [record.manifest.version for record in self.driver.lifecycle.find(name) if record.manifest]
        return max([*trusted, *known], default=None)

    def known_steps(self, name: str) -> KnownSteps:
        """For a watch of the name's steps."""
        manifests = [record.manifest for record in self.driver.lifecycle.find(name) if record.manifest]
        made = {split_version(one.version)[0]: float(one.created_s) for one in sorted(manifests, key=_version_of)}
        return KnownSteps(self.last_version(name), made, time.time())

    # ---- running -------------------------------------------------------------------------------------

    async def _told(self, run: _Run, name: str) -> AsyncGenerator[PublishStep, None]:
        """Run a job beside its caller, and tell the caller of it; a caller that goes ends the job."""
        self.store.check_answers()
        step = PublishStep(stage="hashing", name=name, version=0, bytes_done=0, bytes_total=0, file_count=0)
        job = PublishingJob(step)
        self.nursery.start_soon(_to_its_end, run, job)
        try:
            while not job.ended.is_set():
                with trio.move_on_after(LINE_S):
                    await job.ended.wait()
                    break
                yield msgspec.structs.replace(job.step, waiting=self._turns.why_still(job))
            if job.error is not None:
                raise job.error
            yield msgspec.structs.replace(job.step, done=True)
        finally:
            job.leave()

    async def _adopt(self, job: PublishingJob, manifest: Manifest, directory: Path, user: int, how: str) -> None:
        files = await self._turns.run(job, AdoptableFiles, directory, manifest, _owner(user))
        if how == "reflink":
            await run_blocking(_check_reflink, files, self.live.config.store.models)
        await self._take_over(job, manifest, files, directory, is_told=True)
        await self._complete(manifest)

    async def _take_over(
        self, job: PublishingJob, manifest: Manifest, files: AdoptableFiles, directory: Path, *, is_told: bool
    ) -> None:
        """Copy, then offer the manifest. What another host is to tell stays noted until a statement has come."""
        job.step = msgspec.structs.replace(
            job.step, stage="copying", version=manifest.version, id=manifest.id.hex(), bytes_done=0,
            bytes_total=manifest.bytes_total, file_count=len(manifest.files),
        )  # fmt: skip
        is_new = await run_blocking(self._note_new, manifest)
        was_untold = self._untold.told(manifest.id)  # nobody deletes what is worked on
        try:
            await self._turns.run(job, _copy, self.store, manifest, files, job, must_end=True)
            job.step = msgspec.structs.replace(job.step, stage="deploying", bytes_done=manifest.bytes_total)
            if is_told:
                await self.driver.offer(manifest.envelope, f"published from {directory.name[:80]}")
        except BaseException:
            if was_untold:
                self._untold.taken(manifest.id, trio.current_time())
            if is_new:
                with trio.CancelScope(shield=True):
                    await run_blocking(self._forget, manifest)
            raise
        if not is_told:
            self._untold.taken(manifest.id, trio.current_time())
        elif is_new:
            await run_blocking(self.state.forget_publication, manifest.id)

    async def settle_untold(self) -> None:
        """Never returns: shards that were taken and never told of go after an hour."""
        while True:
            await until_next_look(UNTOLD_LOOK_S)
            for deployment in self._untold.to_settle(self._is_stated, trio.current_time()):
                args = (deployment, self.state, self.statements, self.store)
                if self._untold.told(deployment) and not await run_blocking(settle_publication, *args):
                    self._untold.taken(deployment, trio.current_time())

    def _is_stated(self, deployment: DeploymentId) -> bool:
        return self.statements.statement(deployment) is not None

    def _note_new(self, manifest: Manifest) -> bool:
        """Note, for the next start too, that the copy may be deleted if it ends early. False, and nothing noted,
        where the version is here already."""
        is_held = any(model.deployment == manifest.id for model in self.store.models())
        if is_held or self.driver.lifecycle.get(manifest.id) is not None:
            return False
        self.state.note_publication(manifest.id)
        return True

    def _forget(self, manifest: Manifest) -> None:
        if self.driver.lifecycle.get(manifest.id) is None:
            self.store.abandon(manifest.id)
        self.state.forget_publication(manifest.id)

    async def _complete(self, manifest: Manifest) -> None:
        """Wait until the version is published here, and ``latest`` and ``wait`` say so. Raises NotDeployedError;
        TwoContentsError: another host has told of the same version with other content."""
        while True:
            record: DeploymentRecord | None = self.driver.lifecycle.get(manifest.id)
            if record is None:
                raise NotDeployedError(f"{manifest.label} was forgotten while it was deployed")
            if record.state is HostState.COMPLETE:
                if record.changed:  # at once, not with the next look, which is a second away on a host at rest
                    self.progress.tell_due(trio.current_time())
                if not record.is_target or _is_told(self.view, record, manifest):
                    return
            if record.state in FINAL and record.state is not HostState.COMPLETE:
                words = record.sentence or record.reason.value or record.state.value
                raise NotDeployedError(f"{record.label} is told to the cluster and has ended here: {words}")
            await trio.sleep(LOOK_S)


def _next(publishing: JobPublishing, name: str, *, version: int | None, step: int | None) -> int:
    last = publishing.last_version(name)
    label = "" if last is None else publishing.driver.lifecycle.version_label(name, last)
    return next_version(name, last, version=version, step=step, last_label=label)


def _version_of(manifest: Manifest) -> int:
    return manifest.version


def _is_told(view: StatusPort, record: DeploymentRecord, manifest: Manifest) -> bool:
    """Whether the rows of the version say that it is complete here. Raises TwoContentsError."""
    own = None
    for row in view.deployments(manifest.name, manifest.version):
        if row.id != manifest.id.hex():
            words = f"{record.label} was published by another host at the same time, with other content"
            cure = "nobody can tell which is meant, so publish again under a version above it"
            raise TwoContentsError(f"{words} ({row.id[:12]}); {cure}")
        own = row
    return own is not None and HostsNeeded(is_here=True).met_by(own, view.host_name())


async def _to_its_end(run: _Run, job: PublishingJob) -> None:
    try:
        with job.scope:
            await run(job)
    except GossipdError as error:
        job.error = error
    except OSError as error:
        job.error = CannotAdoptError(_why_unreadable(error, job.step.name))
    except (ImportError, MemoryError) as error:  # of what publishes, which the first job imports
        job.error = CannotAdoptError(f"{job.step.name}: this host cannot load what publishes ({error}); try again")
    finally:
        job.ended.set()


def _why_unreadable(error: OSError, name: str) -> str:
    path = str(error.filename or "")
    hidden = ""
    if isinstance(error, FileNotFoundError) and path.startswith(_HIDDEN_PLACES):
        hidden = ", or is hidden from the daemon: its unit may have PrivateTmp or ProtectHome"
    return f"{path or name}: {error.strerror or error}{hidden}"


def _check_all_is_wanted(live: LiveSettings, name: str) -> None:
    """Raises CannotAdoptError where this host would keep only a part of what nobody else has yet."""
    if not live.wants().get(name, EVERYTHING).is_everything:
        raise CannotAdoptError(
            f"this host wants only a part of {name}, so the rest would be on no host: gossipd want {name} all, then "
            "publish again"
        )


def _copy(store: ChunkStore, manifest: Manifest, files: AdoptableFiles, job: PublishingJob) -> None:
    wrong = store.adopt(manifest, files, files.files_here, on_copied=job.moved)
    files.check_still()
    if wrong is not None:
        path = manifest.files[manifest.segments(wrong)[0].file_index].path
        raise TreeChangedError(f"{path} is not what the manifest says; it changed, or is another's")


def _check_reflink(files: AdoptableFiles, models: Path) -> None:
    """Raises CannotAdoptError where the store cannot share the blocks of a file."""
    first = files.first()
    if first is None:
        return
    target = os.open(models, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        with opened(first) as source:
            if can_share_blocks(source, target):
                return
    finally:
        os.close(target)
    raise CannotAdoptError(
        f"the blocks of {first.path} cannot be shared with {models}: both must be on one XFS or Btrfs; use copy",
        code="E_NO_REFLINK",
    )
