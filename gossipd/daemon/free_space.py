"""How much room this host has for models, told to the others on its member record.

What lives here: when it is told. What does not: the step in which it is told (``swarm.capabilities``).

A change of the record goes to every host, so it is told coarsely, and once in five minutes at most: enough to say
before a deployment who has no room for it.
"""

from __future__ import annotations

import math

import trio

from gossipd.daemon.live_settings import LiveSettings
from gossipd.daemon.membership_host import MembershipHost
from gossipd.runtime.look_interval import until_next_look
from gossipd.store.chunk_store import ChunkStore
from gossipd.swarm.capabilities import free_step

LOOK_S, TOLD_AGAIN_S = 1.0, 300.0


class FreeSpace:
    """One per daemon."""

    def __init__(self, store: ChunkStore, live: LiveSettings, membership_host: MembershipHost) -> None:
        self._store = store
        self._live = live
        self._membership_host = membership_host
        self._told_s = -math.inf

    async def run(self) -> None:
        """Never returns."""
        while True:
            await until_next_look(LOOK_S)
            self.look(trio.current_time())

    def look(self, now: float) -> None:
        """Tell it if it is another, and was not told lately."""
        if now - self._told_s < TOLD_AGAIN_S:
            return
        self._told_s = now
        free = self._store.statistics().free_bytes - self._live.config.store.reserve_bytes
        self._membership_host.tell_free_space(free_step(max(0, free)))
