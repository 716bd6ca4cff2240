"""Keeping caches of the Hugging Face Hub in step with the complete models of this host.

What lives here: which repository is which name, and when to look. What does not: the cache's form
(``store.hub_cache``).
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import trio

from gossipd.daemon.live_settings import LiveSettings
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.deployment.progress_record import HostState
from gossipd.runtime.logs import get_logger
from gossipd.runtime.look_interval import until_next_look
from gossipd.runtime.worker_threads import run_blocking
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.errors import StoreUnreadableError
from gossipd.store.hub_cache import REVISION_DIGITS, HubEntry, settle_cache

LOOK_S = 0.5
RESTING_LOOK_S = 1.0  # without a cache: when the daemon is awake anyway
RETRY_S = 10.0
log = get_logger("hub cache")


class HubLinks:
    """One per daemon; does nothing without ``hf.caches``."""

    def __init__(self, live: LiveSettings, lifecycle: DeploymentTable, store: ChunkStore) -> None:
        self._live = live
        self._lifecycle = lifecycle
        self._store = store
        self._settled: object = None
        self._served: frozenset[str] = frozenset()
        self._said: tuple[str, ...] = ()

    async def run(self) -> None:
        """Never returns."""
        while True:
            delay_s = 0.0
            caches = self._live.config.hf.caches
            if caches or self._served:
                try:
                    wanted = self._wanted()
                    if (caches, wanted) != self._settled:
                        await run_blocking(self._settle, caches, wanted)
                        self._settled = (caches, wanted)
                except StoreUnreadableError as error:
                    delay_s = RETRY_S
                    self._say((str(error),))
                except OSError as error:
                    delay_s = RETRY_S
                    self._say((f"{error.filename}: {error.strerror}",))
            await trio.sleep(delay_s)
            await until_next_look(LOOK_S if caches else RESTING_LOOK_S)

    def _wanted(self) -> dict[str, HubEntry]:
        names = dict(self._live.config.hf.names)
        root = Path(self._live.config.store.models)
        complete: dict[str, dict[int, str]] = defaultdict(dict)
        for record in self._lifecycle:
            if record.manifest is None or record.wanted is not None:
                continue  # a part never passes for the repository
            if record.is_open and record.state is HostState.COMPLETE:
                complete[record.manifest.name][record.manifest.version] = record.id.hex()[:REVISION_DIGITS]
        wanted = {}
        for name, versions in complete.items():
            current = self._store.current(name)
            if current not in versions:
                continue
            snapshots = {revision: root / name / str(version) for version, revision in versions.items()}
            for repository in names.get(name, (name,)):
                wanted[repository] = HubEntry(snapshots, versions[current])
        return wanted

    def _settle(self, caches: tuple[Path, ...], wanted: dict[str, HubEntry]) -> None:
        known = self._served | frozenset(self._repositories_of_the_store())
        foreign = [
            one for cache in caches for one in settle_cache(cache, self._live.config.store.models, wanted, known)
        ]
        self._served = frozenset(wanted)
        self._say(tuple(f"{one} is somebody's download" for one in foreign))

    def _repositories_of_the_store(self) -> list[str]:
        """The repositories for which an earlier run may have left links."""
        names = dict(self._live.config.hf.names)
        found = {record.manifest.name for record in self._lifecycle if record.manifest is not None}
        return [repository for name in found for repository in names.get(name, (name,))]

    def _say(self, sentences: tuple[str, ...]) -> None:
        if sentences != self._said:
            self._said = sentences
            for sentence in sentences:
                log.warning("left alone", reason=sentence)
