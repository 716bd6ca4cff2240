"""The life of every deployment on this host, from a heard statement to a published directory.

What lives here: the steps and their order, one task per deployment. What does not: which chunk comes from where (the
planner), bytes (the store), who said what (``dissemination``), what an operator wants (``admin_operations``).

One deployment goes through these steps, each of which may end it with a state, a reason and a sentence::

    statement heard        INIT          body pulled from a holder and verified, or found on disk
    manifest accepted      INIT          register: rollback, equivocation, expiry; is this host a target?
    space reserved         INIT          store.open; repeated while the disk is too full
    given to the planner   DOWNLOADING   until it says that everything is held
    finish                 VERIFYING     sync, one rename, ``current``
    published              COMPLETE      stays open: it serves others and repairs what rots

A cancel statement, ``rm`` or an eviction closes it in whatever step it is. What the store does meanwhile cannot be cut
short (making room may copy for minutes), so whoever deletes, and the next life, wait for their turn. Everything is
owned by the trio loop.

The store is asked in threads, and each kind of question has its own few: trio's forty are shared by everything else,
and forty models that wait for a disk must not stop the audit log.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import structlog
import trio

from gossipd.core.chunkset import ChunkSet
from gossipd.core.errors import GossipdError
from gossipd.core.events import ChunkLost, ChunkStored, DeploymentClosed, DeploymentOpened, Event, ReportStall
from gossipd.core.ids import LOCAL, SOURCE, DeploymentId, Origin, short
from gossipd.daemon.deployment import Deployment
from gossipd.daemon.judging import judge_manifest
from gossipd.daemon.state_dir import StateDirectory, StateWriteError
from gossipd.deployment.progress import HostReason, HostState
from gossipd.deployment.statement import Statement, Verb
from gossipd.deployment.statement_file import snapshot
from gossipd.deployment.statement_store import STATEMENTS_MAX, StatementStore
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest, deployment_id
from gossipd.runtime.ports import NotHeldError, StoreWriteError
from gossipd.runtime.worker_threads import run_blocking
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.errors import NoSpaceError, NotWholeError, StoreError
from membership.member import NodeId

SPACE_RETRY_S = 5.0  # a freed disk is noticed within the 10 s that the fault table allows
PULL_RETRY_FIRST_S, PULL_RETRY_MAX_S = 0.05, 5.0  # doubled in between; holders multiply as fast as we wait
# What came has the announced content and is refused: its signatures were altered on the way, or no trusted key is among
# them. Other content than was announced is always the fault of whoever sent it, and another holder is asked.
PULLS_REFUSED_MAX = 3
STORE_THREADS = 4  # for each of opening, publishing, deleting: one disk does little more at once

# What a flipped bit in a manifest that was right when it was kept can look like.
_ROTTEN = ("E_SIG_INVALID", "E_SIG_MISSING", "E_SIG_THRESHOLD", "E_DECODE", "E_SCHEMA_VERSION", "E_LIMIT")
_ENDINGS = {
    "E_ROLLBACK": (HostState.EXPIRED, HostReason.ROLLBACK),
    "E_EXPIRED": (HostState.EXPIRED, HostReason.OTHER),
}
_SOURCE_TROUBLES = {
    "E_SOURCE_AUTH": HostReason.SOURCE_AUTH,
    "E_SOURCE_NOT_FOUND": HostReason.SOURCE_NOT_FOUND,
    "E_SOURCE_CHANGED": HostReason.SOURCE_CHANGED,
    "E_SOURCE_UNREACHABLE": HostReason.SOURCE_UNREACHABLE,
    "E_SOURCE_FORBIDDEN": HostReason.SOURCE_FORBIDDEN,
}
log = structlog.get_logger("deployments")


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """Who we are, as targets name us."""

    name: str
    rack: str


Pull = Callable[[Deployment], Awaitable[bytes | None]]
"""Ask one holder for the manifest; None when it had none to give."""


class Deployments:
    """All of them, by id. ``start`` gives one a task; the nursery is the daemon's."""

    def __init__(
        self,
        *,
        host: HostIdentity,
        trusted: Callable[[], frozenset[bytes]],
        register: StatementStore,
        state: StateDirectory,
        store: ChunkStore,
        post: Callable[[Event], None],
        pull: Pull,
        audit: Callable[..., None],
        rack_of: Callable[[NodeId], str | None],
        begun: Callable[[Deployment], None],
        opened: Callable[[Deployment], None],
        closed: Callable[[Deployment], None],
        nursery: trio.Nursery,
        complete_before: frozenset[DeploymentId] = frozenset(),
    ) -> None:
        """
        Args:
            complete_before: what the store had published when the daemon started.
        """
        self._host = host
        self._trusted = trusted
        self._register = register
        self._state = state
        self._store = store
        self._post = post
        self._pull = pull
        self._audit = audit
        self._rack_of = rack_of
        self._begun = begun
        self._opened_here = opened
        self._closed_here = closed
        self._nursery = nursery
        self._complete_before = complete_before
        self._opening, self._publishing, self._deleting = (trio.CapacityLimiter(STORE_THREADS) for _ in range(3))
        self.by_id: dict[DeploymentId, Deployment] = {}

    # ---- what is said about a deployment ----------------------------------------------------------

    def act(self, statement: Statement) -> Deployment:
        """Bring this host in line with the last word on a deployment."""
        deployment = self.by_id.get(statement.deployment)
        is_new = deployment is None
        if deployment is None:
            self._make_room()
            deployment = self.by_id[statement.deployment] = Deployment(statement.deployment, statement)
            self._begun(deployment)
        deployment.statement = statement
        is_kept = is_new and statement.deployment in self._complete_before  # cancelled when it was complete: it stays
        if self._register.is_removed(statement.deployment):
            self.close(deployment, HostState.CANCELLED, HostReason.REMOVED)
        elif statement.verb is Verb.CANCEL and not is_kept:
            self.close(deployment, HostState.CANCELLED)
        elif is_new or deployment.state in (HostState.FAILED, HostState.CANCELLED, HostState.EXPIRED):
            self._begin(deployment)
        return deployment

    def _make_room(self) -> None:
        """Forget what the register has forgotten as too old, or a member could have us keep words without end."""
        if len(self.by_id) < STATEMENTS_MAX:
            return
        for one in [one for one in self.by_id.values() if not one.is_open]:
            if self._register.statement(one.id) is None:
                one.scope.cancel()
                del self.by_id[one.id]

    def close(
        self, deployment: Deployment, state: HostState, reason: HostReason = HostReason.NONE, sentence: str = ""
    ) -> None:
        """Stop whatever runs for it. A complete model stays on disk; an incomplete one is deleted."""
        deployment.scope.cancel()
        was_complete = deployment.state is HostState.COMPLETE
        if was_complete and reason is not HostReason.REMOVED:
            return
        was_open, deployment.is_open = deployment.is_open, False
        if was_open:
            self._post(DeploymentClosed(deployment.id))
            self._closed_here(deployment)
        # A cancelled one may be just about to open, or was left by a run that ended before it was deleted.
        if not was_complete and (was_open or state is HostState.CANCELLED):
            self._nursery.start_soon(self._give_up, deployment)
        deployment.enter(state, reason, sentence)
        log.info("deployment ended", deployment=deployment.label, state=state.value, reason=reason.value)

    async def _give_up(self, deployment: Deployment) -> None:
        """Delete what is not published. A disk that refuses is tried again; a next life waits for it."""
        async with deployment.turn:
            while True:
                try:
                    await run_blocking(self._store.abandon, deployment.id, limiter=self._deleting)
                except StoreWriteError as error:
                    log.warning("not deleted yet", deployment=deployment.label, reason=error.sentence)
                else:
                    return
                await trio.sleep(SPACE_RETRY_S)

    def _begin(self, deployment: Deployment) -> None:
        deployment.scope = scope = trio.CancelScope()
        deployment.finish_wanted = trio.Event()
        deployment.elapsed_s = 0
        deployment.enter(HostState.INIT)
        if not deployment.started_s:
            deployment.started_s = int(time.time())
        self._nursery.start_soon(self._live, deployment, scope)

    # ---- the steps ---------------------------------------------------------------------------------

    async def _live(self, deployment: Deployment, scope: trio.CancelScope) -> None:
        with scope:
            async with deployment.turn:
                await self._steps(deployment, scope)

    async def _steps(self, deployment: Deployment, scope: trio.CancelScope) -> None:
        try:
            manifest = await self._accept(deployment)
            deployment.manifest = manifest
            deployment.is_target = manifest.is_target(self._host.name, self._host.rack)
            deployment.changed = True
            log.info(
                "manifest accepted", deployment=deployment.label, id=short(manifest.id), target=deployment.is_target
            )
            if not deployment.is_target:
                return
            held = await self._reserve(deployment, manifest)
            await self._fetch_and_publish(deployment, manifest, held)
        except NotHeldError:
            return  # given up while it was published, which has a reason of its own; or the store is being closed
        except GossipdError as error:
            if scope.cancel_called:
                return  # whoever closed it has said why
            state, reason = _ENDINGS.get(error.code, (HostState.FAILED, HostReason.REFUSED))
            if isinstance(error, StoreError | StoreWriteError):
                reason = HostReason.DISK
            self._audit("refused", deployment=deployment.id.hex(), code=error.code, reason=error.args[0])
            self.close(deployment, state, reason, error.sentence)

    async def _accept(self, deployment: Deployment) -> Manifest:
        manifest = await self._kept(deployment) or await self._pulled(deployment)
        self._register.accept(manifest, time.time())
        while True:
            try:
                await self.keep(manifest)
            except StateWriteError as error:
                deployment.enter(HostState.INIT, HostReason.DISK, error.sentence)
                await trio.sleep(SPACE_RETRY_S)
            else:
                return manifest

    async def _kept(self, deployment: Deployment) -> Manifest | None:
        """The manifest in our own files; None when there is none, or one that has rotted."""
        envelope = await run_blocking(self._state.envelope, deployment.id)
        if envelope is None:
            return None
        try:
            manifest = await self._opened(envelope)
        except ManifestError as error:
            if error.code not in _ROTTEN:
                raise
            log.warning("kept manifest is damaged", deployment=short(deployment.id), code=error.code)
            return None
        return manifest if manifest.id == deployment.id else None

    async def _pulled(self, deployment: Deployment) -> Manifest:
        """From whoever has it. Raises ManifestError when the manifest is at fault, not a host that altered it."""
        delay_s = PULL_RETRY_FIRST_S
        refused = 0
        while True:
            body = await self._pull(deployment)
            if body is not None:
                try:
                    opened = await self._opened(body)
                except ManifestError as error:
                    refused += _is_content_of(body, deployment.id)
                    log.warning("wrong manifest received", deployment=short(deployment.id), code=error.code)
                    if refused >= PULLS_REFUSED_MAX:
                        raise
                else:
                    if opened.id == deployment.id:
                        return opened
            await trio.sleep(delay_s)
            delay_s = min(delay_s * 2, PULL_RETRY_MAX_S)

    async def _opened(self, envelope: bytes) -> Manifest:
        return await judge_manifest(envelope, self._trusted())

    async def keep(self, manifest: Manifest) -> None:
        """Make what was accepted durable, before anything is done with it."""
        await run_blocking(self._state.keep_envelope, manifest.id, manifest.envelope)
        await run_blocking(self._state.keep_register, *snapshot(self._register))

    async def _reserve(self, deployment: Deployment, manifest: Manifest) -> ChunkSet:
        while True:
            try:
                return await run_blocking(self._store.open, manifest, limiter=self._opening)
            except NoSpaceError as error:
                if deployment.reason is not HostReason.NO_SPACE:
                    log.warning("no space", deployment=deployment.label, reason=error.sentence)
                deployment.enter(HostState.INIT, HostReason.NO_SPACE, error.sentence)
            except StoreWriteError as error:
                deployment.enter(HostState.INIT, HostReason.DISK, error.sentence)
            await trio.sleep(SPACE_RETRY_S)

    async def _fetch_and_publish(self, deployment: Deployment, manifest: Manifest, held: ChunkSet) -> None:
        complete = held.is_full and self._store.is_published(manifest.id)
        await trio.lowlevel.checkpoint_if_cancelled()  # closed while the store made room: then it stays closed
        deployment.chunks_verified = len(held)
        deployment.is_open = True
        deployment.base = replace(deployment.counters)
        deployment.enter(HostState.COMPLETE if complete else HostState.DOWNLOADING)
        self._post(DeploymentOpened(manifest.id, manifest.shape(), held, manifest.priority, manifest.targets))
        self._opened_here(deployment)
        if complete:
            deployment.chunks_verified = manifest.chunk_count
            return
        await deployment.finish_wanted.wait()
        await self._publish(deployment, manifest)
        self._audit("published", deployment=manifest.id.hex(), name=manifest.name, version=manifest.version)
        await trio.lowlevel.checkpoint_if_cancelled()  # cancelled meanwhile: it stays on disk as what is complete does
        deployment.chunks_verified = manifest.chunk_count
        deployment.enter(HostState.COMPLETE)
        log.info("model complete", deployment=deployment.label)

    async def _publish(self, deployment: Deployment, manifest: Manifest) -> None:
        """Until it is done: a disk that refuses is tried again, and what its sync lost is fetched again meanwhile."""
        deployment.enter(HostState.VERIFYING)
        while True:
            try:
                with trio.CancelScope(shield=True):
                    await run_blocking(self._store.finish, manifest.id, limiter=self._publishing)
            except NotWholeError as error:
                log.warning("not whole", deployment=deployment.label, reason=error.sentence)
                deployment.enter(HostState.DOWNLOADING, HostReason.DISK, error.sentence)
            except StoreWriteError as error:
                deployment.enter(HostState.VERIFYING, HostReason.DISK, error.sentence)
            else:
                return
            await trio.sleep(SPACE_RETRY_S)

    async def remember_removed(self, deployment: DeploymentId) -> bool:
        """It is about to be deleted here, by an operator or by ``keep_versions``, and must not come back.

        Returns: whether that is durable, so that the next start goes on with it when we are killed in between. A disk
        that is too full for it is what deleting cures; it is kept within a second after that.
        """
        self._register.mark_removed(deployment)
        try:
            await run_blocking(self._state.keep_register, *snapshot(self._register))
        except StateWriteError:
            return False
        return True

    def evicted(self, evicted: DeploymentId) -> None:
        """``keep_versions`` has deleted it."""
        deployment = self.by_id.get(evicted)
        if deployment is not None:
            self.close(deployment, HostState.CANCELLED, HostReason.REMOVED)

    # ---- what the hands tell ---------------------------------------------------------------------

    def note(self, event: Event) -> None:
        """Count what the planner is about to hear."""
        if isinstance(event, ChunkStored):
            deployment = self.by_id.get(event.deployment)
            if deployment is None or not deployment.is_open or event.supplier is LOCAL:
                return  # local copies are counted when the store has opened the model
            deployment.chunks_verified += 1
            if deployment.state is HostState.COMPLETE:
                self._audit("chunk repaired", subject=deployment.label, chunk=event.chunk)
            deployment.rate_in.add(event.length)
            if event.supplier is SOURCE:
                deployment.source_trouble = HostReason.NONE
            rack = self._rack_of(event.supplier) if not isinstance(event.supplier, Origin) else None
            deployment.counters.add(event.supplier, event.length, same_rack=rack == self._host.rack)
        elif isinstance(event, ChunkLost):
            deployment = self.by_id.get(event.deployment)
            if deployment is not None and deployment.is_open:
                deployment.chunks_verified -= 1
                if deployment.state is HostState.COMPLETE:
                    self._audit("chunk lost", subject=deployment.label, chunk=event.chunk)
                    log.warning("chunk lost, fetched again", deployment=deployment.label, chunk=event.chunk)

    def finish(self, deployment: DeploymentId) -> None:
        """The planner says that everything is held."""
        known = self.by_id.get(deployment)
        if known is not None:
            known.finish_wanted.set()

    def stalled(self, report: ReportStall) -> None:
        """Progress stopped, or goes on."""
        known = self.by_id.get(report.deployment)
        if known is not None and known.stall is not report.reason:
            known.stall = report.reason
            known.changed = True
            if report.reason is not None:
                log.warning("no progress", deployment=known.label, reason=report.reason.value)

    def source_trouble(self, deployment: DeploymentId, error: GossipdError) -> None:
        """This host could not read the source."""
        known = self.by_id.get(deployment)
        if known is not None:
            trouble = _SOURCE_TROUBLES.get(error.code, HostReason.STORAGE)
            if trouble is not known.source_trouble:
                self._audit("source trouble", subject=known.label, code=error.code, reason=str(error.args[0]))
            known.source_trouble = trouble
            known.sentence = error.sentence
            known.changed = True

    # ---- for those who ask -------------------------------------------------------------------------

    def is_coming(self, deployment: DeploymentId) -> bool:
        """Whether its manifest is being pulled, or kept. From any thread."""
        known = self.by_id.get(deployment)
        return known is not None and known.manifest is None and known.state is HostState.INIT

    def manifest_of(self, deployment: DeploymentId) -> Manifest | None:
        """The manifest, once accepted."""
        known = self.by_id.get(deployment)
        return known.manifest if known is not None else None

    def find(self, name: str, version: int | None = None) -> list[Deployment]:
        """Deployments of that model, newest version first."""
        found = [
            one
            for one in self.by_id.values()
            if one.manifest is not None and one.manifest.name == name and version in (None, one.manifest.version)
        ]
        return sorted(found, key=lambda one: one.manifest.version if one.manifest else 0, reverse=True)


def _is_content_of(envelope: bytes, deployment: DeploymentId) -> bool:
    try:
        return deployment_id(envelope) == deployment
    except ManifestError:
        return False
