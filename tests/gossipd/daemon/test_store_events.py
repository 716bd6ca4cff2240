"""What the store tells reaches the right brain, from its threads, and evictions wait until they are remembered."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import trio
import trio.testing

from gossipd.core.events import ChunkLost
from gossipd.core.ids import DeploymentId
from gossipd.daemon.store_events import StoreEvents
from gossipd.deployment.events import DiskWritesWait, EvictionBegun, VersionEvicted
from gossipd.store.notices import DiskSlowChanged, ModelEvicted

MODEL = DeploymentId(b"m" * 32)


async def test_each_event_reaches_its_brain() -> None:
    planner: list[object] = []
    deployments: list[object] = []
    events = StoreEvents(cast(Any, SimpleNamespace(post=planner.append)))

    async def ask(order_of: Callable[[int], object]) -> None:
        await trio.sleep(0)
        deployments.append(order_of(1))

    brain = cast(Any, SimpleNamespace(post=deployments.append, ask=ask))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(events.run, brain, cast(Any, None))
        evicted = ModelEvicted(MODEL, "m", 1)
        await trio.to_thread.run_sync(events.reported, ChunkLost(MODEL, 3))
        await trio.to_thread.run_sync(events.before_evict, evicted)
        assert deployments == [EvictionBegun(1, MODEL)], "the store waited for it"
        await trio.to_thread.run_sync(events.reported, evicted)
        await trio.to_thread.run_sync(events.reported, DiskSlowChanged(is_slow=True))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert planner == [ChunkLost(MODEL, 3)]
    assert deployments[1:] == [VersionEvicted(MODEL, "m", 1, "keep_versions"), DiskWritesWait(is_so=True)]
