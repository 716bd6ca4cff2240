"""Chunks that are read back because a peer complained or a file could not be read.

What lives here: at most so many waiting, each once, in threads of their own. What does not: the comparison (``store``).
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import structlog

from gossipd.core.errors import GossipdError
from gossipd.core.ids import ChunkIndex, DeploymentId
from gossipd.daemon.reports import BugTrap
from gossipd.runtime.thread_priority import lower_priority
from gossipd.store.chunk_store import ChunkStore

RECHECKS_MAX = 64  # waiting to be read back: complaints without end make this host read no more than that
log = structlog.get_logger("rechecks")


class Rechecks:
    """From any thread."""

    def __init__(self, store: ChunkStore, bugs: BugTrap) -> None:
        self._store = store
        self._bugs = bugs
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="recheck", initializer=lower_priority)
        self._lock = threading.Lock()
        self._waiting: set[tuple[DeploymentId, ChunkIndex]] = set()

    def close(self) -> None:
        """No new ones; returns when the one that runs has ended."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def want(self, deployment: DeploymentId, chunk: ChunkIndex) -> None:
        """Look at the chunk again soon. One that waits already is not looked at twice."""
        with self._lock:
            if (deployment, chunk) in self._waiting or len(self._waiting) >= RECHECKS_MAX:
                return
            self._waiting.add((deployment, chunk))
        try:
            self._pool.submit(self._recheck, deployment, chunk).add_done_callback(self._ended)
        except RuntimeError:
            log.debug("too late for more work")  # the pool is shut down: the daemon is stopping

    def _recheck(self, deployment: DeploymentId, chunk: ChunkIndex) -> None:
        with self._lock:
            self._waiting.discard((deployment, chunk))
        try:
            if not self._store.recheck(deployment, chunk):
                log.warning("chunk has rotted", deployment=deployment.hex()[:12], chunk=chunk)
        except GossipdError as error:
            log.info("chunk could not be checked", code=error.code)

    def _ended(self, work: Future[None]) -> None:
        if not work.cancelled() and (error := work.exception()) is not None:
            self._bugs.report(error)
