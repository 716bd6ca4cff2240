"""Chunks that are read back because a peer complained or a file could not be read.

What lives here: at most so many waiting, each chunk once a minute, and so many bytes of each member and of all, in a
thread of their own. What does not: the comparison (``store``). A complaint costs its author nothing and this host a
chunk read and hashed, so it is bounded by author; a chunk that was read back a moment ago needs no second look.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from gossipd.core.errors import GossipdError
from gossipd.core.ids import ChunkIndex, DeploymentId
from gossipd.daemon.alarms import BugTrap
from gossipd.runtime.logs import get_logger
from gossipd.runtime.ports import NotHeldError
from gossipd.runtime.quotas import Quotas
from gossipd.runtime.system_refusals import REFUSED_WORDS, thread_refused
from gossipd.runtime.thread_priority import lower_priority
from gossipd.store.chunk_store import ChunkStore
from membership.member import NodeId

RECHECKS_MAX = 64  # waiting to be read back: complaints without end make this host read no more than that
RECHECK_AGAIN_S = 60.0
RECENT_MAX = 4096  # chunks that were read back within that time; further ones wait for it to pass
MIB = 1024 * 1024
MEMBER_BYTES = 256 * MIB  # a minute; 16 of the largest chunks, far more than rots at once
ALL_BYTES = 1024 * MIB  # a minute, for all members together
CHUNK_COST_MIN = MIB  # also small chunks cost a look
log = get_logger("rechecks")


class Rechecks:
    """From any thread. ``ignored`` counts complaints that were over a bound."""

    def __init__(self, store: ChunkStore, bugs: BugTrap, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._bugs = bugs
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="recheck", initializer=lower_priority)
        self._lock = threading.Lock()
        self._waiting: set[tuple[DeploymentId, ChunkIndex]] = set()
        self._clock = clock
        self._recent: OrderedDict[tuple[DeploymentId, ChunkIndex], float] = OrderedDict()
        self._of_member = Quotas[NodeId](burst=MEMBER_BYTES, per_s=MEMBER_BYTES / RECHECK_AGAIN_S)
        self._of_all = Quotas[None](burst=ALL_BYTES, per_s=ALL_BYTES / RECHECK_AGAIN_S)
        self.ignored = 0

    def close(self) -> None:
        """No new ones; returns when the one that runs has ended."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def want(self, deployment: DeploymentId, chunk: ChunkIndex, member: NodeId | None = None) -> None:
        """Look at the chunk again soon, because ``member`` complained, or this host itself could not read it."""
        try:
            cost = max(CHUNK_COST_MIN, self._store.chunk_length(deployment, chunk))
        except NotHeldError:
            return
        key, now = (deployment, chunk), self._clock()
        with self._lock:
            while self._recent and next(iter(self._recent.values())) <= now - RECHECK_AGAIN_S:
                self._recent.popitem(last=False)
            if key in self._recent or not self._has_room(member, now, cost):
                self.ignored += 1
                return
            self._recent[key] = now
            self._waiting.add(key)
        try:
            self._pool.submit(self._recheck, deployment, chunk).add_done_callback(self._ended)
        except RuntimeError as error:
            if str(error) == REFUSED_WORDS:
                thread_refused()  # the next one that is wanted has the thread begin with this one
                return
            log.debug("too late for more work")  # the pool is shut down: the daemon is stopping

    def _has_room(self, member: NodeId | None, now: float, cost: int) -> bool:
        if len(self._waiting) >= RECHECKS_MAX or len(self._recent) >= RECENT_MAX:
            return False
        return member is None or (self._of_member.take(member, now, cost) and self._of_all.take(None, now, cost))

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
