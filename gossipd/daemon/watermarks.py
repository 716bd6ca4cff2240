"""Looks every ten seconds whether the disk is too full, and makes room; and the orders that concern it.

What lives here: asking store and cluster, evicting in the planned order, the alarm, ``pin`` and ``prune``. What does
not: the order (``deployment.eviction_plan``), what keeps a version and deleting it (``store.models.eviction``).

At ``store.high_watermark_percent`` of the file system, used by anybody, versions are evicted until no more than
``store.low_watermark_percent`` are. Between the two nothing happens, so that the disk is not at the mark all the time.
"""

from __future__ import annotations

import trio

from gossipd.api.ports import Done, Pruned
from gossipd.api.schema import PrunedRow, WatermarkRow
from gossipd.audit.log import AuditLog
from gossipd.core.errors import GossipdError, NotFoundError
from gossipd.core.units import show_bytes, show_count, timestamp
from gossipd.daemon.alarms import Alarms
from gossipd.daemon.live_settings import LiveSettings
from gossipd.daemon.rack_copies import RackCopies
from gossipd.daemon.store_calls import StoreCalls
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.deployment.eviction_plan import DEPLOYING, REPLICA, EvictionCandidate, EvictionPlan, plan_eviction
from gossipd.deployment.progress_record import DELETED
from gossipd.runtime.logs import get_logger
from gossipd.runtime.look_interval import until_next_look
from gossipd.runtime.worker_threads import run_blocking
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.disk.disk import Space
from gossipd.store.errors import StoreSilentError
from gossipd.store.models.eviction import ModelUse

LOOK_S = 10.0
TURN_S = 8.0  # clients wait for ten
ALARM = "E_WATERMARK"
_NAMED_MAX = 5  # in the alarm
log = get_logger("store")


class Watermarks:
    """One per daemon."""

    def __init__(
        self, live: LiveSettings, store: ChunkStore, lifecycle: DeploymentTable, alarms: Alarms, audit: AuditLog,
        *, copies: RackCopies, calls: StoreCalls,
    ) -> None:  # fmt: skip
        self._live = live
        self._store = store
        self._lifecycle = lifecycle
        self._alarms = alarms
        self._audit = audit
        self._copies = copies
        self._calls = calls
        self._space = Space(0, 0)
        self._pins = store.pins()
        self._evicted = 0
        self._one_at_a_time = trio.Lock()

    async def run(self) -> None:
        """Never returns."""
        while True:
            try:
                await self.look()
            except GossipdError as error:  # the disk; its condition is told elsewhere
                log.warning("no room made", reason=error.sentence)
            await until_next_look(LOOK_S)

    async def look(self) -> None:
        """Make room if the disk is at the high mark."""
        async with self._one_at_a_time:
            self._space = await run_blocking(self._store.space)
            high = self._live.config.store.high_watermark_percent
            if not high or not self._is_at(high):
                self._alarms.cured(ALARM)
                return
            plan = await self._plan(is_prune=False)
            await self._evict(plan, "watermark")
            if self._is_at(high):
                self._alarms.ring_as(ALARM, _sentence(high, await self._plan(is_prune=False)))
            else:
                self._alarms.cured(ALARM)

    async def prune(self, *, dry_run: bool) -> Pruned:
        """See AdminPort."""
        self._store.check_answers()
        with trio.move_on_after(TURN_S) as turn:
            await self._one_at_a_time.acquire()
        if turn.cancelled_caught:  # later nobody waits for the answer
            raise StoreSilentError(f"a look at the disk has not ended for {TURN_S:g} s; nothing is evicted")
        try:
            self._space = await self._calls.order(self._store.space)
            plan = await self._plan(is_prune=True)
            done = plan.chosen if dry_run else await self._evict(plan, "prune")
            if not dry_run:
                plan = await self._plan(is_prune=True)
        finally:
            self._one_at_a_time.release()
        total = show_bytes(sum(one.byte_count for one in done))
        words = (
            f"{'would evict' if dry_run else 'evicted'} {show_count(len(done), 'version')}, {total}"
            if done
            else "nothing to evict"
        )
        rows = [_row(one) for one in done]
        return Pruned(
            changed=bool(done) and not dry_run, sentence=words, evicted=rows, kept=[_row(one) for one in plan.kept]
        )

    async def pin(self, name: str, version: int | None, *, undo: bool) -> Done:
        """See AdminPort."""
        found = self._lifecycle.find(name, version)
        label, pin = self._lifecycle.label(name, version), name if version is None else f"{name}@{version}"
        if not found and not undo:
            raise NotFoundError(f"no deployment {label} is known here; see: gossipd status")
        if found and version is not None and found[0].state in DELETED and not undo:
            reason = found[0].reason
            raise NotFoundError(f"{label} is not on this host: {reason.sentence}; {reason.cure}")
        is_changed = await self._calls.order(lambda: self._store.pin(pin, is_undone=undo))
        self._pins = self._store.pins()
        word = "unpinned" if undo else "pinned"
        if not is_changed:
            return Done(changed=False, sentence=f"{label} is {'not pinned' if undo else 'pinned already'}")
        self._audit.record(word, subject=pin, label=label)
        return Done(changed=True, sentence=f"{label} is {word} on this host")

    def row(self) -> WatermarkRow:
        """The disk and its marks for the status; as old as the last look."""
        settings, space = self._live.config.store, self._space
        used = 100 * (space.total_bytes - space.free_bytes) / space.total_bytes if space.total_bytes else 0.0
        return WatermarkRow(
            used_percent=round(used, 1), high_percent=settings.high_watermark_percent,
            low_percent=settings.low_watermark_percent, pinned=list(self._pins),
            pinned_labels=self._pinned_labels(), evicted=self._evicted,
        )  # fmt: skip

    def _pinned_labels(self) -> list[str]:
        if not self._pins:
            return []
        manifests = [one.manifest for one in self._lifecycle if one.manifest is not None]
        labels = {f"{one.name}@{one.version}": one.label for one in manifests}
        return [labels.get(pin, pin) for pin in self._pins]

    def _is_at(self, percent: int) -> bool:
        return self._used_bytes() * 100 >= percent * self._space.total_bytes > 0

    def _used_bytes(self) -> int:
        return self._space.total_bytes - self._space.free_bytes

    async def _plan(self, *, is_prune: bool) -> EvictionPlan:
        settings = self._live.config.store
        uses = await run_blocking(self._store.uses)
        target = self._space.total_bytes * settings.low_watermark_percent // 100
        return plan_eviction(
            [self._candidate(one) for one in uses], used_bytes=self._used_bytes(),
            target_bytes=target if settings.high_watermark_percent else None, is_prune=is_prune,
        )  # fmt: skip

    def _candidate(self, use: ModelUse) -> EvictionCandidate:
        record = self._lifecycle.get(use.deployment)
        is_deploying = record is None or self._lifecycle.is_under_way(record)
        kept = use.kept or (DEPLOYING if is_deploying else REPLICA if self._copies.keeps(use.deployment) else "")
        model = f"{use.name}@{use.version}"
        label = record.manifest.label if record is not None and record.manifest is not None else model
        return EvictionCandidate(
            use.deployment, label, use.byte_count, use.last_used_s, use.is_current, kept, model=model
        )  # fmt: skip

    async def _evict(self, plan: EvictionPlan, cause: str) -> list[EvictionCandidate]:
        """What was planned and is kept by nothing now. A version that somebody uses meanwhile is left for the next
        look, and so is one of which others do not show the copies that they say they have."""
        done = []
        for one in plan.chosen:
            is_spare = await self._copies.is_spare(one.deployment)
            kept = await run_blocking(self._store.make_room, one.deployment, cause) if is_spare else REPLICA
            if kept:
                log.info("not evicted", model=one.label, kept=kept)
                continue
            self._evicted += 1
            done.append(one)
            log.info("evicted", model=one.label, cause=cause, bytes=one.byte_count)
        self._space = await run_blocking(self._store.space)
        return done


def _row(one: EvictionCandidate) -> PrunedRow:
    return PrunedRow(
        model=one.model, label=one.label, bytes_total=one.byte_count, last_used_at=timestamp(one.last_used_s),
        current=one.is_current, kept=one.kept,
    )  # fmt: skip


def _sentence(high: int, plan: EvictionPlan) -> str:
    told = ", ".join(f"{one.label} ({one.kept})" for one in plan.kept[:_NAMED_MAX])
    more = f" and {len(plan.kept) - _NAMED_MAX} more" if len(plan.kept) > _NAMED_MAX else ""
    what = f"kept are {told}{more}" if plan.kept else "no complete model is left"
    return (
        f"the disk is at its high watermark of {high} %, and nothing more may be evicted: {what}; unpin a model, "
        "lower store.replicas, or delete what is not gossipd's"
    )
