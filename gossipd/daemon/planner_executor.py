"""The planner's commands as calls of the adapters.

What lives here: which adapter does what, in which threads, and how it ends as an event. What does not: deciding, and
counting (``deployment.deployment_table``).

A fetch holds one thread from its request to the last byte written: at most ``fetches_max`` are in flight, so threads
are few, and nothing is queued behind a slow peer. Source reads have threads of their own, so that a stalled store
of objects never holds up fetches from peers. Every command that starts work ends in exactly one event per chunk.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from msgspec.structs import replace

from gossipd.control.control_plane import ControlPlane
from gossipd.core import events
from gossipd.core.errors import GossipdError
from gossipd.core.events import Command, Event, FailReason
from gossipd.core.ids import COPIED, LOCAL, SOURCE, DeploymentId, short
from gossipd.daemon.alarms import Reports
from gossipd.daemon.budget_check import BudgetCheck
from gossipd.daemon.data_plane import DataPlane
from gossipd.daemon.deployment_driver import DeploymentDriver
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.daemon.membership_host import MembershipHost
from gossipd.daemon.planner_driver import PlannerDriver
from gossipd.deployment.events import SourceTroubled
from gossipd.runtime.logs import get_logger
from gossipd.runtime.ports import DigestMismatchError, NotHeldError, StoreWriteError
from gossipd.runtime.worker_pool import WorkerPool
from gossipd.transfer.errors import TransferError

FETCH_THREADS = 48  # twice the planner's limit: those that were cancelled end a little later
CHORE_THREADS = 2
COMPLAIN_TIMEOUT_S = 5.0
log = get_logger("performer")


@dataclass(kw_only=True, eq=False)
class CommandExecutor:
    """Performs commands; called on the trio loop, never blocks."""

    directory: MemberDirectory
    plane: ControlPlane
    data_plane: DataPlane
    driver: PlannerDriver
    deployments: DeploymentDriver
    membership_host: MembershipHost
    reports: Reports
    budget: BudgetCheck

    def __post_init__(self) -> None:
        # What an adapter may raise is caught where it is called: anything else is our own bug and stops the node.
        failed = self.reports.bugs.report
        self._fetchers = WorkerPool(FETCH_THREADS, "fetch", failed)
        self._readers = WorkerPool(self.data_plane.read_threads, "read", failed)
        self._chores = WorkerPool(CHORE_THREADS, "chore", failed)
        self._waiting_reads: deque[events.StartSourceRead] = deque()  # as many as the planner reads at once at most

    def close(self) -> None:
        """No new work; what runs is ended by closing the client and the reader, which come first."""
        for pool in (self._fetchers, self._readers, self._chores):
            pool.close()

    def note(self, event: Event) -> None:
        """See PlannerPort: the deployment brain counts chunks, and upload slots have a rate to compare with."""
        if isinstance(event, events.ChunkStored | events.ChunkLost):
            self.deployments.post(event)
        if isinstance(event, events.ChunkStored) and event.supplier is SOURCE:
            self.budget.reads_ended(event.deployment, (event.chunk,))
        elif isinstance(event, events.SourceReadFailed):
            self.budget.reads_ended(event.deployment, event.chunks)
        if isinstance(event, events.ChunkStored) and event.supplier not in (LOCAL, COPIED):
            self.data_plane.server.note_received(event.length, event.elapsed_s)

    def perform(self, command: Command) -> None:
        """See PlannerPort."""
        match command:
            case events.StartFetch():
                self._fetchers.queue(self._fetch, command)
            case events.CancelFetch():
                self.data_plane.client.cancel(command.peer, command.deployment, command.chunk)
            case events.StartSourceRead() | events.ProbeSource():
                self._begin_reading(command)
            case events.StartSubscription() | events.EndSubscription() | events.SendHoldings() | events.SendDelta():
                self.plane.hear(command)
            case events.ClaimSeed():
                self._claim_seed(command.term)
            case events.FinishModel():
                self.deployments.post(command)
            case events.ReportStall():
                self.deployments.post(replace(command, read_bytes_per_s=self.data_plane.external.rate))
            case events.LimitUploads():
                self.data_plane.server.limit_uploads(command.slots)
            case events.PreferFirstCopies():
                self.data_plane.prefer_first_copies(command.deployment, command.chunk_count)

    def _begin_reading(self, command: events.StartSourceRead | events.ProbeSource) -> None:
        """A budget that is spent is told as storage that refuses: it is asked again now and then."""
        chunks = command.chunks if isinstance(command, events.StartSourceRead) else ()
        verdict = self.budget.judge(command.deployment, chunks)
        if verdict.refusal is not None:
            log.warning("reads are held", reason=verdict.refusal.sentence)
            self.deployments.post(SourceTroubled(command.deployment, verdict.refusal))
        if isinstance(command, events.ProbeSource):
            if verdict.refusal is not None:
                self.driver.post(events.SourceProbed(command.deployment, False, False))
            else:
                self._chores.submit(self._probe, command.deployment)
        elif verdict.refusal is not None:
            self.driver.post(events.SourceReadFailed(command.deployment, command.chunks, FailReason.SOURCE))
        elif verdict.must_wait:
            self._waiting_reads.append(command)
        else:
            self.budget.reads_begun(command.deployment, command.chunks)
            self._readers.queue(self._read, command)

    def start_threads(self) -> None:
        """See PlannerPort. Of each deployment the first read that waits for its budget is asked about."""
        still_waiting = set[DeploymentId]()
        for _ in range(len(self._waiting_reads)):
            command = self._waiting_reads.popleft()
            if command.deployment in still_waiting:
                self._waiting_reads.append(command)
                continue
            self._begin_reading(command)
            if self._waiting_reads and self._waiting_reads[-1] is command:
                still_waiting.add(command.deployment)
        self._fetchers.wake()
        self._readers.wake()

    # ---- in threads --------------------------------------------------------------------------------

    def _fetch(self, command: events.StartFetch) -> None:
        reason = self._fetched(command)
        if reason is not None:
            self.driver.post(events.FetchFailed(command.deployment, command.chunk, command.peer, reason))

    def _fetched(self, command: events.StartFetch) -> FailReason | None:
        """None when the store has told of the chunk."""
        manifest = self.deployments.lifecycle.manifest_of(command.deployment)
        endpoint = self.directory.bulk_endpoint(command.peer)
        if manifest is None or endpoint is None:
            return FailReason.GONE
        length = manifest.chunk_length(command.chunk)
        peer = self.directory.name_of(command.peer)
        log.debug("fetch", deployment=short(command.deployment), chunk=command.chunk, peer=peer)
        began = time.monotonic()
        try:
            incoming = self.data_plane.client.fetch_chunk(
                command.peer, endpoint, command.deployment, command.chunk, length,
                timeout_s=command.timeout_s, behind=command.behind,
            )  # fmt: skip
        except TransferError as error:
            if error.reason is FailReason.CORRUPT:
                self._blame(command, error)
            now = time.monotonic()
            self.data_plane.unreached.failed(command.peer, command.deployment, error, now, what="chunks")
            return error.reason
        try:
            is_new = self.data_plane.store.put(
                command.deployment, command.chunk, incoming.view, command.peer, time.monotonic() - began
            )
            incoming.land()
        except DigestMismatchError as error:
            self._blame(command, error)
            self._chores.submit(self._complain, command)
            return FailReason.CORRUPT
        except StoreWriteError:
            return FailReason.DISK
        except NotHeldError:
            return FailReason.CANCELLED
        finally:
            incoming.release()
        return None if is_new else FailReason.CANCELLED

    def _blame(self, command: events.StartFetch, error: GossipdError) -> None:
        """A chunk never comes from two peers, so a bad one is its sender's; the planner asks it no more for a while."""
        peer, deployment = self.directory.name_of(command.peer), command.deployment.hex()
        log.warning("corrupt chunk", peer=peer, chunk=command.chunk, code=error.code)
        record = self.reports.audit.record
        by = command.peer.hex()
        record("quarantined", subject=peer, by=by, deployment=deployment, chunk=command.chunk, code=error.code)

    def _complain(self, command: events.StartFetch) -> None:
        peer, endpoint = command.peer, self.directory.bulk_endpoint(command.peer)
        if endpoint is None:
            return
        complain = self.data_plane.client.complain
        try:
            complain(peer, endpoint, command.deployment, command.chunk, timeout_s=COMPLAIN_TIMEOUT_S)
        except TransferError as error:
            log.info("complaint not delivered", peer=self.directory.name_of(peer), code=error.code)

    def _read(self, command: events.StartSourceRead) -> None:
        manifest = self.deployments.lifecycle.manifest_of(command.deployment)
        if manifest is None:
            self.driver.post(events.SourceReadFailed(command.deployment, command.chunks, FailReason.CANCELLED))
            return
        log.debug("read", deployment=short(command.deployment), chunks=list(command.chunks))
        read = self.data_plane.reader.read_chunks
        outcome = read(manifest, command.chunks, is_awaited=command.is_awaited, from_start=command.from_start)
        if outcome.failed:
            if outcome.reason is FailReason.WHOLE_ONLY:
                log.info("a server without ranges is read from the beginning", reason=outcome.errors[-1].sentence)
            elif outcome.errors:
                log.warning("source read failed", reason=outcome.errors[-1].sentence, chunks=len(outcome.failed))
                troubled = SourceTroubled(command.deployment, outcome.errors[-1], outcome.failed)
                self.deployments.post_from_thread(troubled)
            reason = outcome.reason or FailReason.SOURCE
            self.driver.post(events.SourceReadFailed(command.deployment, outcome.failed, reason))
        elif outcome.errors:
            log.warning("another mirror was read", reason=outcome.errors[-1].sentence)

    def _probe(self, deployment: DeploymentId) -> None:
        manifest = self.deployments.lifecycle.manifest_of(deployment)
        if manifest is None:
            return
        outcome = self.data_plane.reader.probe(manifest)
        if not outcome.readable and outcome.errors:
            log.warning("source is not readable", reason=outcome.errors[-1].sentence)
            self.deployments.post_from_thread(SourceTroubled(deployment, outcome.errors[-1]))
        self.driver.post(events.SourceProbed(deployment, outcome.readable, outcome.is_whole_only))

    def _claim_seed(self, term: int) -> None:
        self.membership_host.claim_seed(term)
        self.reports.audit.record("seed claimed" if term else "seed given up", term=term)
