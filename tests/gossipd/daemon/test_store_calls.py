"""On a disk that hangs orders keep few threads, are refused as soon as that is known, and go on when it answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
import trio

from gossipd.audit.log import AuditLog
from gossipd.core.ids import SOURCE
from gossipd.daemon.alarms import Alarms
from gossipd.daemon.state_dir import StateDirectory
from gossipd.daemon.store_calls import STATE_SILENT, STORE_SILENT, THREADS, StoreCalls
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.disk.condition import StoreHealth
from gossipd.store.disk.disk import Disk
from gossipd.store.disk.waiting_calls import LOOKS_MAX
from gossipd.store.errors import StoreSilentError
from gossipd.store.settings import StoreSettings
from tests.gossipd.store.hanging_disk import WAIT_S, HangingDisk
from tests.gossipd.store.small_models import small

ONE = small()


class Host:
    """A store with one model, on a disk that hangs when a test has it hang."""

    def __init__(self, path: Path) -> None:
        self.disk = HangingDisk()
        self.store = ChunkStore(
            Path("unused"), settings=StoreSettings(reserve_bytes=0), on_event=lambda event: None,
            disk=cast(Disk, self.disk), background=False,
        )  # fmt: skip
        self.state = StateDirectory(path / "state")
        self.alarms = Alarms(AuditLog(path / "audit.jsonl"))
        self.calls = StoreCalls(self.store, self.state, self.alarms)
        self.store.open(ONE.manifest)
        self.ended: list[str] = []

    async def pin(self) -> None:
        try:
            await self.calls.order(self.store.pin, "m")
            self.ended.append("pinned")
        except StoreSilentError as error:
            self.ended.append(error.code)

    def looks(self) -> list[str]:
        for _ in range(LOOKS_MAX + 1):  # before the first some call has ended
            self.calls.look()
        return [row.code for row in self.alarms.rows.values()]

    async def until(self, count: int) -> None:
        with trio.fail_after(WAIT_S):
            while len(self.ended) < count:
                await trio.sleep(0.001)


@asynccontextmanager
async def a_host(path: Path) -> AsyncIterator[tuple[Host, trio.Nursery]]:
    host = Host(path)
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield host, nursery
            finally:
                host.disk.answers.set()
    finally:
        host.state.close()


async def _asked(host: Host) -> None:
    await trio.to_thread.run_sync(host.disk.was_asked.wait, WAIT_S)
    assert host.disk.was_asked.is_set()


async def _orders_that_hang(host: Host, nursery: trio.Nursery, count: int) -> None:
    host.disk.answers.clear()
    for _ in range(count):
        nursery.start_soon(host.pin)
    await _asked(host)


async def test_orders_on_a_hanging_disk_keep_few_threads_and_end_when_it_is_known(tmp_path: Path) -> None:
    async with a_host(tmp_path) as (host, nursery):
        await _orders_that_hang(host, nursery, THREADS + 40)
        with trio.fail_after(WAIT_S / 2):
            assert await trio.to_thread.run_sync(lambda: 7) == 7, "a thread is left for what asks no disk"
        assert host.looks() == [STORE_SILENT]
        await host.until(40)
        assert host.ended == [STORE_SILENT] * 40
        await host.pin()
        assert host.ended[40:] == [STORE_SILENT], "at once"
        host.disk.answers.set()
        await host.until(41 + THREADS)
        assert host.ended[41:] == ["pinned"] * THREADS


async def test_a_disk_that_hangs_refuses_writes_until_a_probe_has_succeeded(tmp_path: Path) -> None:
    async with a_host(tmp_path) as (host, nursery):
        await _orders_that_hang(host, nursery, 1)
        host.looks()
        assert host.store.condition().health is StoreHealth.SILENT
        with pytest.raises(Exception, match="does not answer") as caught:
            host.store.put(ONE.manifest.id, 0, ONE.chunks[0], SOURCE, 0.0)
        assert getattr(caught.value, "code", "") == STORE_SILENT
        host.disk.answers.set()
        await host.until(1)
        with trio.fail_after(WAIT_S):
            while host.store.condition().health is not StoreHealth.OK:
                host.store.upkeep.step()
                await trio.sleep(0.01)
        host.calls.look()
        assert not host.alarms.rows
        assert host.store.put(ONE.manifest.id, 0, ONE.chunks[0], SOURCE, 0.0)


async def test_an_order_that_waits_for_a_thread_is_made_when_one_is_free(tmp_path: Path) -> None:
    async with a_host(tmp_path) as (host, nursery):
        await _orders_that_hang(host, nursery, THREADS + 1)
        host.disk.answers.set()
        await host.until(THREADS + 1)
        assert host.ended == ["pinned"] * (THREADS + 1)


async def test_a_state_directory_that_hangs_is_an_alarm_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_host(tmp_path) as (host, _):
        monkeypatch.setattr(host.state, "look_at_calls", lambda: "a sync")
        assert host.looks() == [STATE_SILENT]
        [row] = host.alarms.rows.values()
        assert "state/ does not answer a sync" in row.sentence


async def test_reads_that_hang_are_told_and_stop_orders_but_no_writes(tmp_path: Path) -> None:
    async with a_host(tmp_path) as (host, nursery):
        host.store.put(ONE.manifest.id, 0, ONE.chunks[0], SOURCE, 0.0)
        host.disk.hangs = frozenset({"read_some"})
        host.disk.answers.clear()
        nursery.start_soon(trio.to_thread.run_sync, host.store.recheck, ONE.manifest.id, 0)
        await _asked(host)
        assert host.looks() == [STORE_SILENT]
        assert host.store.condition().health is StoreHealth.OK
        assert host.store.put(ONE.manifest.id, 1, ONE.chunks[1], SOURCE, 0.0)
        await host.pin()
        assert host.ended == [STORE_SILENT]


async def test_a_disk_that_goes_on_slowly_is_told_as_nothing(tmp_path: Path) -> None:
    async with a_host(tmp_path) as (host, nursery):
        scratch = host.store._disk.open("scratch", write=True, create=True)
        host.disk.hangs = frozenset({"write_some"})
        host.disk.answers.clear()
        nursery.start_soon(host.pin)
        await _asked(host)
        for _ in range(LOOKS_MAX + 5):
            host.calls.look()
            host.disk.hangs = frozenset({"none"})
            host.store._disk.write_some(scratch, memoryview(b"."), 0)
            host.disk.hangs = frozenset({"write_some"})
        assert not host.alarms.rows
