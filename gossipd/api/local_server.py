"""A local socket whose HTTP server is made when its first client comes.

What lives here: the wait for that client. What does not: the server (``request_guard``, ``routes``) and the socket
(``local_socket``).

The HTTP libraries are a quarter of all that a daemon would import at its start, and most daemons are never asked. They
are imported in a worker thread, so that the loop goes on; the kernel keeps clients in its queue meanwhile. While they
cannot be imported, as on a host without a free descriptor, the client waits, and the making is tried again.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from gossipd.runtime.logs import get_logger
from gossipd.runtime.system_refusals import note_refusal
from gossipd.runtime.worker_threads import run_blocking

if TYPE_CHECKING:
    from gossipd.api.request_guard import RequestGuard

MADE_AGAIN_S = 1.0
log = get_logger("status")


class LocalServers:
    """All local sockets of a daemon. Used on the trio loop; servers are made in a thread."""

    def __init__(self) -> None:
        self._guards: list[RequestGuard] = []

    async def serve(self, listener: trio.SocketListener, make: Callable[[], RequestGuard]) -> None:
        """Never returns: make the server when a client waits, then serve."""
        async with listener:
            await trio.lowlevel.wait_readable(listener.socket)
            guard = await _made(make)
            gc.freeze()  # the libraries stay: no collection of garbage need go through them (``daemon.main``)
            self._guards.append(guard)
            await guard.serve(listener)

    @property
    def refused(self) -> int:
        """Requests and connections that were refused, for metrics."""
        return sum(guard.refused for guard in self._guards)


async def _made(make: Callable[[], RequestGuard]) -> RequestGuard:
    """Tried until it succeeds; the first failure is told."""
    is_told = False
    while True:
        try:
            return await run_blocking(make)
        except (OSError, ImportError, MemoryError) as error:
            if isinstance(error, OSError):
                note_refusal(error)
            if not is_told:
                log.warning("a local socket's server cannot be made; clients wait", reason=str(error))
            is_told = True
        await trio.sleep(MADE_AGAIN_S)
