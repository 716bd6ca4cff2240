"""Passes what the store tells from its threads on to the brains: which brain hears what.

What lives here: which brain hears what. What does not: the store, and what its events mean.
"""

from __future__ import annotations

import trio

from gossipd.audit.log import AuditLog
from gossipd.core.events import ChunkLost, ChunkStored
from gossipd.daemon.deployment_driver import DeploymentDriver
from gossipd.daemon.planner_driver import PlannerDriver
from gossipd.deployment.events import DiskConditionChanged, DiskWritesWait, EvictionBegun, VersionEvicted
from gossipd.runtime.logs import get_logger
from gossipd.store.notices import DiskSlowChanged, ModelEvicted, StoreConditionChanged, StoreEvent

log = get_logger("store")


class StoreEvents:
    """Made before the store; ``run`` takes events to the deployment brain, which is made after the store."""

    def __init__(self, driver: PlannerDriver) -> None:
        self._driver = driver
        self._token = trio.lowlevel.current_trio_token()
        # One entry for each change of the disk's condition, each spell of slow writes and each eviction: there are few.
        self._send, self._receive = trio.open_memory_channel[tuple[StoreEvent, trio.Event | None]](1024)

    def reported(self, event: StoreEvent) -> None:
        """From the store's threads."""
        if isinstance(event, ChunkStored | ChunkLost):
            self._driver.post(event)
        elif isinstance(event, StoreConditionChanged | DiskSlowChanged | ModelEvicted):
            self._token.run_sync_soon(self._send.send_nowait, (event, None))
        # SpaceFreed: a deployment that waits for space looks again by itself

    def before_evict(self, event: ModelEvicted) -> None:
        """From the thread in which a deployment publishes: returns when the eviction is remembered."""
        trio.from_thread.run(self._remember, event)

    async def _remember(self, event: ModelEvicted) -> None:
        remembered = trio.Event()
        await self._send.send((event, remembered))
        await remembered.wait()

    async def run(self, deployments: DeploymentDriver, audit: AuditLog) -> None:
        """Never returns."""
        async with trio.open_nursery() as nursery:
            async for event, remembered in self._receive:
                if remembered is not None:
                    assert isinstance(event, ModelEvicted)
                    nursery.start_soon(_evict, deployments, event, remembered)
                elif isinstance(event, ModelEvicted):
                    deployments.post(VersionEvicted(event.deployment, event.name, event.version, event.cause))
                elif isinstance(event, DiskSlowChanged):
                    deployments.post(DiskWritesWait(event.is_slow))
                elif isinstance(event, StoreConditionChanged):
                    _condition_changed(deployments, audit, event)


async def _evict(deployments: DeploymentDriver, event: ModelEvicted, remembered: trio.Event) -> None:
    with trio.CancelScope(shield=True):  # publishing goes on while the daemon stops, and waits for this
        await deployments.ask(lambda request: EvictionBegun(request, event.deployment))
    remembered.set()


def _condition_changed(deployments: DeploymentDriver, audit: AuditLog, event: StoreConditionChanged) -> None:
    condition = event.condition
    deployments.post(DiskConditionChanged(condition.code))
    log.warning("store", condition=condition.health.value, reason=condition.sentence)
    audit.record(
        "store condition", condition=condition.health.value, code=condition.code, reason=condition.sentence,
        need_bytes=condition.need_bytes, free_bytes=condition.free_bytes,
    )  # fmt: skip
