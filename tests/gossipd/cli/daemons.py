"""A status socket in a thread of its own, so that commands can be run against it as a user runs them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from gossipd.api.local_socket import bind_unix
from gossipd.api.request_guard import RequestGuard
from gossipd.api.routes import status_app
from tests.gossipd.api.fake_daemon import FakeDaemon


@contextmanager
def running(path: Path, daemon: FakeDaemon) -> Iterator[FakeDaemon]:
    """Serve ``daemon`` at ``path`` until the block ends."""
    with guarded(path, daemon):
        yield daemon


@contextmanager
def guarded(path: Path, daemon: FakeDaemon) -> Iterator[RequestGuard]:
    """The same, with the guard of the socket."""
    ready = threading.Event()
    stop: list[tuple[trio.lowlevel.TrioToken, trio.CancelScope]] = []
    guard = RequestGuard(status_app(daemon, daemon, daemon, daemon.ring))

    async def serve() -> None:
        with trio.CancelScope() as scope:
            listener = bind_unix(path)
            stop.append((trio.lowlevel.current_trio_token(), scope))
            ready.set()
            await guard.serve(listener)

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    assert ready.wait(120)
    try:
        yield guard
    finally:
        token, scope = stop[0]
        token.run_sync_soon(scope.cancel)
        thread.join(120)
