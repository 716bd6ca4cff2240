"""``Client`` for coroutines, on any event loop that anyio knows.

What lives here: each call in a worker thread. What does not: any of its meaning (``client``). A call that is cancelled
is left to end by itself: a wait, also for events, ends with its round, a publication goes on.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from gossipd.client.client import Ancestor, Client, Hosts, LocalPart, Publication, Version, Where
from gossipd.client.events import Event
from gossipd.client.shards import AllGather, Patterns

WAITS_MAX = 1_000  # at once, in one event loop; each takes a thread
_limiter: RunVar[CapacityLimiter] = RunVar("gossipd waits")


def _waits() -> CapacityLimiter:
    """Of calls that wait for others' work, apart from those that do it: all of anyio's threads waiting would leave none
    to publish what they wait for."""
    try:
        return _limiter.get()
    except LookupError:
        _limiter.set(CapacityLimiter(WAITS_MAX))
        return _limiter.get()


class AsyncClient:
    """``Client``, whose methods say what each does."""

    def __init__(self, socket: str | Path | None = None, *, config: str | Path | None = None) -> None:
        self._client = Client(socket, config=config)

    async def publish(
        self, path: str | Path, *, name: str, version: int | None = None, step: int | None = None, how: str = "copy",
        keep_last: int | None = None, keep_every: int | None = None, about: Mapping[str, Any] | None = None,
        exclude: Patterns = (),
    ) -> Publication:  # fmt: skip
        call = partial(
            self._client.publish, path, name=name, version=version, step=step, how=how, keep_last=keep_last,
            keep_every=keep_every, about=about, exclude=exclude,
        )  # fmt: skip
        return await to_thread.run_sync(call, abandon_on_cancel=True)

    async def publish_shards(
        self, path: str | Path, *, name: str, rank: int, ranks: int, all_gather: AllGather, version: int | None = None,
        step: int | None = None, keep_last: int | None = None, keep_every: int | None = None,
        chunk_bytes: int | None = None, about: Mapping[str, Any] | None = None, exclude: Patterns = (),
    ) -> Publication:  # fmt: skip
        """``all_gather`` is called in a worker thread, and blocks it."""
        call = partial(
            self._client.publish_shards, path, name=name, rank=rank, ranks=ranks, all_gather=all_gather,
            version=version, step=step, keep_last=keep_last, keep_every=keep_every, chunk_bytes=chunk_bytes,
            about=about, exclude=exclude,
        )  # fmt: skip
        return await to_thread.run_sync(call, abandon_on_cancel=True)

    async def wait(
        self, name: str, version: int | None = None, *, hosts: Hosts = "here", timeout: float | None = None
    ) -> Version:
        over = threading.Event()
        call = partial(self._client.wait_until_over, name, version, hosts, timeout, over)
        try:
            return await to_thread.run_sync(call, abandon_on_cancel=True, limiter=_waits())
        finally:
            over.set()

    async def latest(self, name: str, where: Where = "everywhere", *, before: int | None = None) -> Version:
        ask = partial(self._client.latest, name, where, before=before)
        return await to_thread.run_sync(ask, abandon_on_cancel=True)

    async def last_version(self, name: str) -> int | None:
        return await to_thread.run_sync(self._client.last_version, name, abandon_on_cancel=True)

    async def events(
        self, name: str | None = None, *, since: str | None = None, follow: bool = True
    ) -> AsyncIterator[Event]:
        over = threading.Event()
        rows = self._client.events_until_over(name, since, follow, over)
        try:
            while (
                event := await to_thread.run_sync(next, rows, None, abandon_on_cancel=True, limiter=_waits())
            ) is not None:
                yield event
        finally:
            over.set()

    async def lineage(self, name: str, version: int | None = None) -> list[Ancestor]:
        return await to_thread.run_sync(self._client.lineage, name, version, abandon_on_cancel=True)

    async def path(self, name: str, version: int | None = None, *, part: bool = False) -> Path:
        return await to_thread.run_sync(partial(self._client.path, name, version, part=part), abandon_on_cancel=True)

    async def part(self, name: str, version: int | None = None) -> LocalPart:
        return await to_thread.run_sync(self._client.part, name, version, abandon_on_cancel=True)

    async def want(
        self, name: str, *parts: str, clear: bool = False, free: bool = False, holder: str = ""
    ) -> tuple[str, ...]:  # fmt: skip
        call = partial(self._client.want, name, *parts, clear=clear, free=free, holder=holder)
        return await to_thread.run_sync(call, abandon_on_cancel=True)

    @asynccontextmanager
    async def hold(self, name: str, version: int | None = None, *, part: bool = False) -> AsyncIterator[Path]:
        lock = self._client.hold(name, version, part=part)
        directory = await to_thread.run_sync(lock.__enter__)
        try:
            yield directory
        finally:
            lock.__exit__(None, None, None)  # closes a descriptor, waits for nothing
