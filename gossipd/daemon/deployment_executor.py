"""The deployment brain's commands as calls: its work in threads, everything else at once.

What lives here: which call each command is, and which failure each error is. What does not: deciding, and which work
is under way (``deployment_driver``).

Each kind of work at the store has a few threads of its own: trio's forty are shared by everything else, and forty
models that wait for a disk must not stop the audit log.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeVar

import trio

from gossipd.audit.log import AuditLog
from gossipd.core.chunkset import ChunkSet
from gossipd.core.errors import GossipdError, NotFoundError
from gossipd.core.events import ProbeSource
from gossipd.core.ids import DeploymentId, short
from gossipd.daemon.manifest_judging import judge_by_trust, judge_manifest
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.daemon.state_dir import StateDirectory, StateWriteError
from gossipd.daemon.swarm_actions import SwarmActions
from gossipd.daemon.unreached_peers import FailedPulls, UnreachedPeers
from gossipd.deployment import commands, events
from gossipd.deployment.events import Failure
from gossipd.manifest.envelope import open_envelope
from gossipd.manifest.equal_chunks import later_copies
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import ENVELOPE_TYPE, Manifest, deployment_id
from gossipd.parts.part import bytes_of, choose_part
from gossipd.runtime.logs import get_logger
from gossipd.runtime.ports import NotHeldError, StoreWriteError
from gossipd.runtime.worker_threads import run_blocking
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.errors import NoSpaceError, NotWholeError
from gossipd.transfer.client import BulkClient
from gossipd.transfer.errors import TransferError

STORE_THREADS = 4  # for each of opening, publishing, deleting, pointing, reading: one disk does little more at once
READ_S = 10.0  # a manifest of 50 MiB, twice
PULL_THREADS = 8  # at once: a host that announces many manifests must not hold all threads
PULL_TIMEOUT_S = 20.0  # the largest manifest, 50 MiB, over 100 Mbit/s is 6 s
_FAILURES: tuple[tuple[type[GossipdError], Failure], ...] = (  # the first that fits
    (NoSpaceError, Failure.NO_SPACE),
    (NotWholeError, Failure.NOT_WHOLE),
    (NotHeldError, Failure.GONE),
    (NotFoundError, Failure.GONE),
    (StoreWriteError, Failure.DISK),
    (StateWriteError, Failure.DISK),
    (GossipdError, Failure.FINAL),
)
log = get_logger("deployments")
T = TypeVar("T")


class ManifestClient:
    """Asks one peer for a manifest."""

    def __init__(
        self, client: BulkClient, directory: MemberDirectory, unreached: UnreachedPeers, pulls: FailedPulls
    ) -> None:
        self._client = client
        self._directory = directory
        self._unreached = unreached
        self._pulls = pulls
        self._pulling = trio.CapacityLimiter(PULL_THREADS)

    async def pull(self, work: commands.PullManifest) -> bytes | None:
        """The envelope; None when this peer does not give it. Cut short by cancelling, its thread ends by itself."""
        endpoint = self._directory.bulk_endpoint(work.peer)
        if endpoint is None:
            return None

        def fetch() -> bytes:
            return self._client.fetch_manifest(
                work.peer, endpoint, work.deployment, work.manifest_bytes,
                timeout_s=PULL_TIMEOUT_S, answer_s=work.answer_s,
            )  # fmt: skip

        try:
            envelope = await run_blocking(fetch, abandon_on_cancel=True, limiter=self._pulling)
        except TransferError as error:
            log.debug("manifest not to be had", deployment=short(work.deployment), code=error.code)
            now = time.monotonic()
            address = self._unreached.failed(work.peer, work.deployment, error, now, what="manifest")
            if address:
                self._pulls.failed(work.deployment, address, now)
            return None
        self._pulls.came(work.deployment)
        return envelope


class DeploymentExecutor:
    """Carries out commands; decides nothing."""

    def __init__(
        self, *, state: StateDirectory, store: ChunkStore, client: ManifestClient, swarm: SwarmActions, audit: AuditLog
    ) -> None:
        self.state = state
        self.store = store
        self.client = client
        self.swarm = swarm
        self.audit = audit
        # A disk that hangs keeps these, and none of trio's own threads.
        self._opening, self._publishing, self._deleting, self._pointing, self._reading = (
            trio.CapacityLimiter(STORE_THREADS) for _ in range(5)
        )

    def perform(self, command: commands.DeploymentCommand) -> None:
        """Do what takes no time."""
        match command:
            case commands.OpenSwarm():
                self.swarm.open_swarm(command)
            case commands.CloseSwarm(deployment):
                self.swarm.close_swarm(deployment)
            case commands.PauseSwarm():
                self.swarm.pause_swarm(command)
            case commands.TellStatement(statement):
                self.swarm.tell_statement(statement)
            case commands.ForgetStatement(deployment):
                self.swarm.forget_statement(deployment)
            case commands.JudgeStatements():
                self.swarm.judge_statements()
            case commands.RecordAudit(kind, fields, label):
                self.audit.record(kind, label=label, **fields)  # type: ignore[arg-type]  # a subject is among the fields
            case commands.RecordLog(level, sentence, fields):
                (log.warning if level == "warning" else log.info)(sentence, **fields)
            case ProbeSource():
                self.swarm.probe_source(command)
            case _:
                raise AssertionError(command)

    async def carry_out(self, work: commands.Work) -> events.WorkEnded:
        """Do what takes time; how it ended."""
        try:
            return await self._carry_out(work)
        except GossipdError as error:
            return events.WorkFailed(work.work, failure_of(error), error)

    async def _carry_out(self, work: commands.Work) -> events.WorkEnded:
        match work:
            case commands.ReadManifest(number):
                return events.EnvelopeFound(number, await self._kept_in_time(work))
            case commands.PullManifest(number):
                return events.EnvelopeFound(number, await self.client.pull(work))
            case commands.OpenManifest():
                return await _open(work, self.swarm.trusted())
            case commands.ReserveSpace():
                return await self._reserve(work)
            case commands.KeepManifest(_, manifest):
                await run_blocking(self.state.keep_envelope, manifest.id, manifest.envelope)
            case commands.KeepStatements(_, kept, revision):
                await _to_the_end(run_blocking(self.state.keep_register, kept, revision))
            case commands.PublishModel(_, deployment):
                await _to_the_end(run_blocking(self.store.finish, deployment, limiter=self._publishing))
            case commands.DeleteModel(_, deployment, even_published):
                delete = partial(self.store.abandon, deployment, even_published=even_published)
                await run_blocking(delete, limiter=self._deleting)
            case commands.PointCurrent(_, name, avoided):
                await run_blocking(self.store.avoid_versions, name, avoided, limiter=self._pointing)
            case commands.RemoveModel(_, name, version):
                await run_blocking(self.store.remove, name, version, limiter=self._deleting)
            case commands.EvictModel(_, deployment):
                await run_blocking(self.store.evict_superseded, deployment, limiter=self._deleting)
            case commands.ForgetManifests(_, deployments):
                await run_blocking(self.state.forget_envelopes, deployments)
        return events.WorkDone(work.work)

    async def _kept_in_time(self, work: commands.ReadManifest) -> bytes | None:
        """While the models directory does not answer, what ``state/`` has, or nothing: then a peer is asked."""
        with trio.move_on_after(READ_S):
            return await run_blocking(self._kept_envelope, work, limiter=self._reading, abandon_on_cancel=True)
        return await run_blocking(self.state.envelope, work.deployment)

    def _kept_envelope(self, work: commands.ReadManifest) -> bytes | None:
        """The manifest as it was kept, else the copy beside the model's chunks, which takes its place: a torn, rotted
        or lost file must not make a model unusable that is here."""
        deployment = work.deployment
        kept = self.state.envelope(deployment)
        try:
            copy = self.store.manifest_bytes(deployment)
        except NotHeldError:
            return kept
        keys = {*self.swarm.trusted(), work.accepted_signer}
        if kept == copy or _soundness(kept or b"", deployment, keys) >= _soundness(copy, deployment, keys):
            return kept
        words = "kept manifest was lost" if kept is None else "kept manifest is damaged"
        log.warning(words, deployment=short(deployment), cure="written again, from the store")
        with suppress(StateWriteError):  # the copy is good for as long as it stays
            self.state.keep_envelope(deployment, copy)
        return copy

    async def _reserve(self, work: commands.ReserveSpace) -> events.SpaceReserved:
        manifest, want = work.manifest, work.want
        open_part = partial(self.store.open, manifest, want, frees=self.swarm.frees or work.frees)
        held = await run_blocking(open_part, limiter=self._opening)
        if want.is_everything:
            return self._reserved(work, held, copies=await run_blocking(later_copies, manifest, held))
        part = await run_blocking(choose_part, manifest, want)
        bytes_wanted = await run_blocking(bytes_of, manifest, part.wanted)
        return self._reserved(work, held, wanted=part.wanted, bytes_wanted=bytes_wanted)

    def _reserved(
        self, work: commands.ReserveSpace, held: ChunkSet, *, copies: ChunkSet | None = None,
        wanted: ChunkSet | None = None, bytes_wanted: int = 0,
    ) -> events.SpaceReserved:  # fmt: skip
        """What the store holds now, as brain and planner hear this at once: what it has told since it opened the model,
        both have passed over. ``held``: then, for a model that was closed since."""
        deployment = work.manifest.id
        with suppress(NotHeldError):
            held = self.store.held(deployment)
        is_published = self.store.is_published(deployment)
        return events.SpaceReserved(work.work, held, is_published, copies, wanted, bytes_wanted)


def failure_of(error: GossipdError) -> Failure:
    """What an error of the store or the state directory means to the brain."""
    return next(failure for kind, failure in _FAILURES if isinstance(error, kind))


async def _to_the_end(call: Awaitable[T]) -> T:
    """Await a call that goes on while the daemon stops: publishing may evict, and waits then for the statements to be
    kept."""
    with trio.CancelScope(shield=True):
        result = await call
    return result


async def _open(
    work: commands.OpenManifest, trusted: Mapping[bytes, tuple[str, ...]]
) -> events.ManifestOpened | events.ManifestRefused:
    try:
        return events.ManifestOpened(work.work, await _judged(work, trusted))
    except ManifestError as error:
        is_announced = work.announced is not None and await run_blocking(_is_of, work)
        return events.ManifestRefused(work.work, error, is_announced)


async def _judged(work: commands.OpenManifest, trusted: Mapping[bytes, tuple[str, ...]]) -> Manifest:
    if bool(work.accepted_signer) and await run_blocking(_is_of, work):
        return await judge_manifest(work.envelope, (work.accepted_signer,))
    return await judge_by_trust(work.envelope, trusted)


def _is_of(work: commands.OpenManifest) -> bool:
    return work.announced is not None and _id_of(work.envelope) == work.announced


def _soundness(envelope: bytes, deployment: DeploymentId, keys: Collection[bytes]) -> int:
    """2: of this deployment and signed by one of these keys; 1: of this deployment; 0: neither."""
    if _id_of(envelope) != deployment:
        return 0
    try:
        open_envelope(ENVELOPE_TYPE, envelope, keys)
    except ManifestError:
        return 1
    return 2


def _id_of(envelope: bytes) -> DeploymentId | None:
    """None for bytes that are no envelope."""
    try:
        return deployment_id(envelope)
    except ManifestError:
        return None
