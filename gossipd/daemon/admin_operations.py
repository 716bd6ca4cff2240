"""What the operator of this host may order on the local socket: the body of ``api.ports.AdminPort``.

What lives here: the orders. What does not: who may give them (the socket's mode) and how they are worded on the wire.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import trio
from msgspec import Struct
from msgspec.structs import replace

from gossipd.api.calling_process import NO_PROCESS, CallingProcess
from gossipd.api.manifest_row import manifest_row
from gossipd.api.ports import Deployed, Done, Pruned, Reloaded, VerifyStep, WantInForce
from gossipd.audit.log import AuditLog
from gossipd.audit.witness import Witness
from gossipd.core.errors import LocalError, NotFoundError
from gossipd.core.reasons import HostReason
from gossipd.core.units import show_bytes
from gossipd.daemon.budget_orders import BudgetOrders
from gossipd.daemon.deploy_plan import deploy_costs
from gossipd.daemon.deployment_driver import DeploymentDriver
from gossipd.daemon.envelope_file import envelope_of_order
from gossipd.daemon.manifest_judging import judge_by_trust
from gossipd.daemon.membership_host import MembershipHost
from gossipd.daemon.reloading import Reloader
from gossipd.daemon.store_calls import StoreCalls
from gossipd.daemon.want_orders import WantOrders
from gossipd.daemon.watermarks import Watermarks
from gossipd.deployment.commands import Answer
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.deployment.events import (
    CancelOrdered,
    OverrideOrdered,
    PauseOrdered,
    RemoveOrdered,
    RollbackOrdered,
    UntrustOrdered,
)
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.models.scrub import Checked
from membership.member import MemberState, NodeId

VERIFY_STEP_S = 0.5  # how much hashing lies between two lines of progress


class MemberAliveError(LocalError):
    """A member that is alive cannot be forgotten. Fault: the operator. Retry: after it was stopped."""

    code = "E_MEMBER_ALIVE"


class AdminOperations(Struct, kw_only=True, eq=False):
    """The body of ``AdminPort``, which says what each order does."""

    membership_host: MembershipHost
    lifecycle: DeploymentTable
    driver: DeploymentDriver
    store: ChunkStore
    store_calls: StoreCalls
    table: ClusterProgress
    audit: AuditLog
    reloader: Reloader
    witness: Witness
    watermarks: Watermarks
    wants: WantOrders
    budgets: BudgetOrders

    async def deploy(self, manifest: str, *, dry_run: bool, budget: str) -> Deployed:
        path = Path(manifest)
        envelope = await envelope_of_order(path)
        judged = await judge_by_trust(envelope, self.reloader.live.trusted())
        row = manifest_row(judged)
        limit = self.budgets.judged(judged, budget) if budget else None
        if not dry_run:
            async with self.budgets.with_deployment(judged, limit):
                sentence = await self.driver.offer(envelope, path.name[:80])
            return Deployed(changed=True, sentence=sentence, manifest=row)
        judged.check_time(time.time())
        highest = max((one.manifest.version for one in self.lifecycle.find(judged.name) if one.manifest), default=-1)
        is_known = self.lifecycle.get(judged.id) is not None
        if judged.version < highest and not is_known:
            raise ManifestError(judged.rollback_words(highest), code="E_ROLLBACK")
        words = "is known here already" if is_known else "would be accepted here"
        swim = self.membership_host.swim
        heard = [one for one in swim.members() if not swim.is_unheard(one.record.node)]
        alive = [one.record for one in heard if one.state is MemberState.ALIVE]
        targets = {one.node: one.name for one in alive if judged.targets.include(name=one.name, rack=one.rack)}
        known = [one.manifest for one in self.lifecycle if one.manifest is not None]
        costs = await deploy_costs(judged, known, self.table, targets)
        return Deployed(
            changed=False, sentence=f"{judged.label} {words}", manifest=row, costs=costs
        )  # fmt: skip

    async def cancel(self, name: str, version: int, *, force: bool) -> Done:
        return _done(await self.driver.ask(lambda request: CancelOrdered(request, name, version, force)))

    async def pause(self, name: str, version: int, *, undo: bool) -> Done:
        return _done(await self.driver.ask(lambda request: PauseOrdered(request, name, version, undo)))

    async def remove(self, name: str, version: int, *, dry_run: bool, everywhere: bool) -> Done:
        if not dry_run and not everywhere:
            self.store.check_answers()
        done = _done(await self.driver.ask(lambda request: RemoveOrdered(request, name, version, dry_run, everywhere)))
        if not dry_run or everywhere:
            return done
        uses = await self.store_calls.order(self.store.uses)
        words = next((one.words for one in uses if (one.name, one.version) == (name, version)), "")
        return replace(done, sentence=f"{done.sentence}; {words}") if words else done

    async def rollback_everywhere(self, name: str, version: int | None) -> Done:
        return _done(await self.driver.ask(lambda request: RollbackOrdered(request, name, version)))

    async def pin(self, name: str, version: int | None, *, undo: bool) -> Done:
        return await self.watermarks.pin(name, version, undo=undo)

    async def warm(self, name: str, version: int | None) -> Done:
        found = await self.store_calls.order(self.store.warm, name, version)
        size = show_bytes(found.bytes_total)
        return Done(changed=True, sentence=f"{found.label}, {size}, is read into memory; gossipd status says how far")

    async def want(
        self, name: str, terms: list[str], *, clear: bool, free: bool, holder: str = "",
        process: CallingProcess = NO_PROCESS,
    ) -> WantInForce:  # fmt: skip
        return await self.wants.order(name, terms, clear=clear, free=free, holder=holder, process=process)

    async def prune(self, *, dry_run: bool) -> Pruned:
        return await self.watermarks.prune(dry_run=dry_run)

    async def rollback(self, name: str) -> Done:
        version, is_whole = await self.store_calls.order(_roll_back, self.store, name)
        link = "current" if is_whole else "current.part"
        label = self.lifecycle.version_label(name, version)
        self.audit.record("rolled back", label=f"{name}@{label}", name=name, version=version)
        self.lifecycle.currents.has_moved(name)
        return Done(changed=True, sentence=f"{name}/{link} leads to version {label} until a newer one is complete")

    async def untrust(self, key: str, name: str, version: int, *, undo: bool) -> Done:
        return _done(
            await self.driver.ask(lambda request: UntrustOrdered(request, bytes.fromhex(key), name, version, undo))
        )

    async def override(self, name: str) -> Done:
        return _done(await self.driver.ask(lambda request: OverrideOrdered(request, name)))

    async def forget(self, node: str) -> Done:
        found = [one for one in self.membership_host.swim.members() if node in (one.record.name, one.record.node.hex())]
        if not found:
            raise NotFoundError(f"no member {node} is on the roster")
        gone = [one for one in found if one.state in (MemberState.DEAD, MemberState.LEFT)]
        if not gone:
            raise MemberAliveError(f"{node} is {found[0].state.value}; stop its daemon first")
        for member in gone:
            self.membership_host.swim.forget(NodeId(member.record.node), trio.current_time())
            self.table.forget(member.record.node)
            self.witness.forget(member.record.node)
        self.membership_host.wake()
        self.audit.record("forgotten", member=node)
        return Done(changed=True, sentence=f"{node} is forgotten")

    async def reload(self) -> Reloaded:
        return await self.reloader.reload()

    async def verify(self, name: str, version: int) -> AsyncGenerator[VerifyStep, None]:
        found = self.lifecycle.find(name, version)
        manifest = found[0].manifest if found else None
        if manifest is None or not found[0].is_open:
            reason = found[0].reason if found else HostReason.NONE
            why = f": {reason.sentence}; {reason.cure}" if reason is not HostReason.NONE else ""
            raise NotFoundError(f"{self.lifecycle.label(name, version)} is not in use on this host{why}")
        checks = self.store.verify(name, version)
        checked = bad = missing = 0
        while True:
            batch = await self.store_calls.order(_some, checks)
            here = [one for one in batch if one.is_here]
            checked, missing = checked + len(here), missing + len(batch) - len(here)
            wrong = [_words(manifest, one.chunk) for one in here if not one.is_good]
            bad += len(wrong)
            yield VerifyStep(
                chunks_checked=checked, chunks_total=self.store.chunks_kept(manifest.id), bad_count=bad,
                missing_count=missing, bad_chunks=wrong, version_label=manifest.version_label, done=not batch,
            )  # fmt: skip
            if not batch:
                return


def _done(answer: Answer) -> Done:
    return Done(changed=answer.is_changed, sentence=answer.sentence)


def _roll_back(store: ChunkStore, name: str) -> tuple[int, bool]:
    """The version that is current now, and whether a whole one is shown. In a worker thread."""
    return store.rollback(name), bool(store.versions(name))


def _some(checks: Iterator[Checked]) -> list[Checked]:
    """As many chunks as fit into one step of progress; none at the end. In a worker thread."""
    until = time.monotonic() + VERIFY_STEP_S
    batch: list[Checked] = []
    for one in checks:
        batch.append(one)
        if time.monotonic() >= until:
            break
    return batch


def _words(manifest: Manifest, chunk: int) -> str:
    segment = manifest.segments(chunk)[0]
    end = segment.offset + segment.length
    return f"{manifest.files[segment.file_index].path} bytes {segment.offset}-{end} (chunk {chunk})"
