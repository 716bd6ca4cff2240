"""Looks every five seconds whether this host takes a version again, because its rack has lost copies of it.

What lives here: which versions may come again, and room on the disk. What does not: what other hosts have told
(``rack_copies``), the decision (``deployment.lost_copies``), and taking it (``deployment.deployment_table``).

One at a time, and none while anything else is under way here. It must fit below the high watermark: nothing is evicted
for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from gossipd.core.reasons import HostReason
from gossipd.daemon.deployment_driver import DeploymentDriver
from gossipd.daemon.live_settings import LiveSettings
from gossipd.daemon.rack_copies import RackCopies
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.deployment.events import CopyWanted
from gossipd.deployment.lost_copies import LostCopies
from gossipd.deployment.progress_record import HostState
from gossipd.deployment.statement import Verb
from gossipd.runtime.logs import get_logger
from gossipd.runtime.look_interval import until_next_look
from gossipd.runtime.worker_threads import run_blocking
from gossipd.store.chunk_store import ChunkStore

LOOK_S = 5.0
log = get_logger("store")


@dataclass(slots=True, kw_only=True, eq=False)
class CopiesWatch:
    """One per daemon, on the trio loop."""

    live: LiveSettings
    store: ChunkStore
    lifecycle: DeploymentTable
    copies: RackCopies
    driver: DeploymentDriver
    _lost: LostCopies = field(init=False)

    def __post_init__(self) -> None:
        self._lost = LostCopies(self.copies.directory.own)

    async def run(self) -> None:
        """Never returns."""
        while True:
            await until_next_look(LOOK_S)
            await self.look(trio.current_time())

    async def look(self, now: float) -> None:
        """Take what has become due and fits."""
        settings = self.live.config.store
        views = {one.id: self.copies.view(one.id) for one in self.lifecycle if self._may_come_again(one)}
        due = self._lost.due(views, replicas=settings.replicas, after_s=settings.replicas_after_s, now=now)
        if any(map(_is_moving, self.lifecycle)):
            return
        for deployment in due:
            record = self.lifecycle.get(deployment)
            if record is not None and await self._fits(record):
                log.info("taken again", model=record.label, copies_in_rack=views[deployment].copies)
                self.driver.post(CopyWanted(deployment))
                return

    def _may_come_again(self, record: DeploymentRecord) -> bool:
        """Not what ``keep_versions`` would delete at once."""
        if record.state is not HostState.EVICTED or record.statement.verb is not Verb.DEPLOY:
            return False
        found = self.lifecycle.model_of(record.id)
        if found is None or found[0] in self.live.wants():
            return False
        name, version = found
        complete = [one.manifest for one in self.lifecycle.find(name) if one.told_state is HostState.COMPLETE]
        newer = sum(one is not None and one.version > version for one in complete)
        return newer < self.live.config.store.keep_versions

    async def _fits(self, record: DeploymentRecord) -> bool:
        space, high = await run_blocking(self.store.space), self.live.config.store.high_watermark_percent
        wanted = 0 if record.manifest is None else record.manifest.bytes_total
        used_bytes = space.total_bytes - space.free_bytes + wanted
        return wanted <= space.free_bytes and (not high or used_bytes * 100 < high * space.total_bytes)


def _is_moving(record: DeploymentRecord) -> bool:
    return record.is_live and not record.is_paused and record.stall is None and record.reason is HostReason.NONE
