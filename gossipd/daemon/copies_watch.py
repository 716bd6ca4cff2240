"""Looks every five seconds whether this host takes a version again, because its rack has lost copies of it.

What lives here: asking rack and disk, and the order that follows. What does not: what other hosts have told
(``rack_copies``), the decision (``deployment.lost_copies``), and taking it (``deployment.deployment_table``).
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from gossipd.core.errors import GossipdError
from gossipd.core.ids import DeploymentId
from gossipd.daemon.deployment_driver import DeploymentDriver
from gossipd.daemon.live_settings import LiveSettings
from gossipd.daemon.rack_copies import RackCopies
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.deployment.events import CopyWanted
from gossipd.deployment.lost_copies import CopyRules, LostCopies
from gossipd.deployment.progress_record import HostState
from gossipd.runtime.logs import get_logger
from gossipd.runtime.look_interval import until_next_look
from gossipd.runtime.worker_threads import run_blocking
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.disk.disk import Space

LOOK_S = 5.0
log = get_logger("store")


class CopiesWatch:
    """One per daemon, on the trio loop."""

    def __init__(
        self,
        *,
        live: LiveSettings,
        store: ChunkStore,
        lifecycle: DeploymentTable,
        copies: RackCopies,
        driver: DeploymentDriver,
    ) -> None:
        self.live = live
        self.store = store
        self.lifecycle = lifecycle
        self.copies = copies
        self.driver = driver
        self._turn: int = 0
        self._lost = LostCopies(self.copies.directory.own)

    async def run(self) -> None:
        """Never returns."""
        while True:
            await until_next_look(LOOK_S)
            try:
                await self.look(trio.current_time())
            except GossipdError as error:  # the disk; its condition is told elsewhere
                log.warning("no copy taken again", reason=error.sentence)

    async def look(self, now: float) -> None:
        """Take what has become due and fits."""
        settings = self.live.config.store
        evicted = [one.id for one in self.lifecycle if one.state is HostState.EVICTED]
        await self._look_again(evicted)
        views = {one: self.copies.view(one) for one in evicted}
        space = await run_blocking(self.store.space) if views else Space(0, 0)
        rules = CopyRules(
            replicas=settings.replicas, after_s=settings.replicas_after_s, versions_kept=settings.keep_versions,
            wanted_in_part=self.live.wants(), disk_bytes=space.total_bytes, free_bytes=space.free_bytes,
            high_percent=settings.high_watermark_percent,
        )  # fmt: skip
        record = self._lost.next(self.lifecycle, views, rules, now)
        if record is not None:
            log.info("taken again", model=record.label, copies_in_rack=views[record.id].copies)
            self.driver.post(CopyWanted(record.id))

    async def _look_again(self, evicted: Sequence[DeploymentId]) -> None:
        """Ask the copies of one version to be shown, the next one in turn of which that is due."""
        self._turn += 1
        first = self._turn % max(1, len(evicted))
        for one in (*evicted[first:], *evicted[:first]):
            if await self.copies.look_again(one):
                return
