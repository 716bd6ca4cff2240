"""What operators order of the models directory, while it answers or does not: calls in threads of their own.

What lives here: those threads, a look each second whether the daemon's directories answer, and the alarms
``E_STORE_SILENT`` and ``E_STATE_SILENT``. What does not: the calls (``store.chunk_store``) and what counts as no answer
(``store.disk.waiting_calls``).

On a disk that hangs each call keeps its thread until it answers. In trio's own threads some forty orders would stop all
that needs one: names, manifests, the audit log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import trio

from gossipd.daemon.alarms import Alarms
from gossipd.daemon.state_dir import StateDirectory
from gossipd.runtime.look_interval import until_next_look
from gossipd.runtime.worker_threads import run_blocking
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.disk.condition import SILENT_CURE
from gossipd.store.errors import StoreSilentError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

STORE_SILENT, STATE_SILENT = StoreSilentError.code, "E_STATE_SILENT"
THREADS = 8
LOOK_S = 1.0
_AGAIN_S = 0.1


class StoreCalls:
    """One per daemon, on the trio loop."""

    def __init__(self, store: ChunkStore, state: StateDirectory, alarms: Alarms) -> None:
        self._store = store
        self._state = state
        self._alarms = alarms
        self._threads = trio.CapacityLimiter(THREADS)

    async def run(self) -> None:
        """Never returns."""
        while True:
            await until_next_look(LOOK_S)
            self.look()

    def look(self) -> None:
        """Begin or end the two alarms."""
        self._tell(STORE_SILENT, "the models directory", self._store.look_at_calls())
        self._tell(STATE_SILENT, "state/", self._state.look_at_calls())

    def _tell(self, code: str, directory: str, kind: str) -> None:
        if kind:
            self._alarms.ring_as(code, f"{directory} does not answer {kind}: {SILENT_CURE}")
        else:
            self._alarms.cured(code)

    async def order(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Make the call when a thread is free. Raises StoreSilentError: the disk does not answer, and the call was not
        made; what the call raises."""
        self._store.check_answers()
        while not self._threads.available_tokens:
            await trio.sleep(_AGAIN_S)
            self._store.check_answers()
        return await run_blocking(call, *args, limiter=self._threads)
