"""Before a question about models, or whether this host is ready, is answered: a look at what users find now.

What lives here: one look at a time, in a worker thread, and for how long its askers wait. What does not: the look
(``ChunkStore.glance``), and the answer, which is what the store remembers. On a disk that hangs the look does not end:
its askers wait in vain once each, no other look begins, and the loop goes on.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from gossipd.runtime.worker_threads import run_blocking

WAIT_S = 0.5
_AGAIN_S = 0.01


class FreshLook:
    """One per daemon, on the trio loop."""

    def __init__(self, glance: Callable[[], None]) -> None:
        """``glance`` is called in a thread; what it raises ends the question."""
        self._glance = glance
        self._is_looking = self._has_begun = False

    async def take(self) -> None:
        """Look, or wait for the look that goes on; not longer than ``WAIT_S``."""
        with trio.move_on_after(WAIT_S):
            while self._is_looking:
                await trio.sleep(_AGAIN_S)
            self._is_looking, self._has_begun = True, False
            try:
                await run_blocking(self._look, abandon_on_cancel=True)
            finally:
                self._is_looking &= self._has_begun  # without a free thread nothing has begun

    def _look(self) -> None:
        self._is_looking = self._has_begun = True
        try:
            self._glance()
        finally:
            self._is_looking = False
