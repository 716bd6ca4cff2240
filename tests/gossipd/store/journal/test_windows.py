"""The order of writes, where two things happen at once: each test does the second inside a call of the first."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random
from threading import Thread

import pytest

from gossipd.core.ids import SOURCE
from gossipd.runtime.ports import StoreWriteError
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.disk.handles import Handles
from gossipd.store.journal import claims
from gossipd.store.settings import MIB, StoreSettings
from tests.gossipd.store.memory_disk import MemoryDisk
from tests.gossipd.store.set_clock import SetClock
from tests.gossipd.store.small_models import CHUNK, build, small
from tests.gossipd.store.waiting import hear_of_waits

WAIT_S = 120.0  # only reached when the test fails
ONE = small()
ID = ONE.manifest.id
TREE = f".incoming/{ID.hex()}"


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _store(disk: MemoryDisk, *, boot: str = "a", clock: Callable[[], float] = lambda: 0.0) -> ChunkStore:
    return ChunkStore(
        Path("unused"),
        settings=StoreSettings(reserve_bytes=0),
        on_event=lambda event: None,
        disk=disk,
        clock=SetClock(now=clock, boot=boot),
        background=False,
    )


def _put(store: ChunkStore, *chunks: int) -> bool:
    results = [store.put(ID, chunk, ONE.chunks[chunk], SOURCE, 0.0) for chunk in chunks]
    return all(results)


def _at_first_sync(disk: MemoryDisk, action: Callable[[], None], *, skip: int = 0) -> None:
    """Do ``action`` once, when the next data sync begins."""
    left = [skip]

    def before(name: str, number: int) -> None:
        if name == "sync_data":
            left[0] -= 1
            if left[0] == -1:
                action()

    disk.before = before


def _after_syncs(disk: MemoryDisk, count: int, action: Callable[[], None]) -> None:
    """Do ``action`` once, when so many data syncs have ended."""
    left = [count]
    whole = disk.sync_data

    def sync_data(descriptor: int) -> None:
        whole(descriptor)
        left[0] -= 1
        if not left[0]:
            action()

    disk.sync_data = sync_data  # type: ignore[method-assign]


def _rot(disk: MemoryDisk) -> None:
    file = disk.file(f"{TREE}/two.bin")
    file.data[7] ^= 1
    file.pending.append((7, bytes(file.data[7:8])))


def _claims_only_what_is_there(disk: MemoryDisk) -> set[int]:
    """After a power cut in which nothing that was not synced survived."""
    after = disk.cut(lambda: False, Random(1))
    store = _store(after, boot="b")
    held = set(store.open(ONE.manifest))
    for chunk in sorted(held):
        assert store.recheck(ID, chunk), f"chunk {chunk} is claimed and wrong"
    return held


def test_a_chunk_written_again_in_the_next_window_is_not_claimed_with_this_one() -> None:
    disk = MemoryDisk()
    store = _store(disk)
    store.open(ONE.manifest)
    _put(store, 0, 3)
    _rot(disk)
    assert not store.recheck(ID, 3)
    results: list[bool] = []
    _after_syncs(disk, 3, lambda: results.append(_put(store, 3)))  # the journal and both files of the window
    store.commit()
    assert results == [True], "it was written again when its first window had been synced and not yet claimed"
    assert _claims_only_what_is_there(disk) == {0}


def test_a_chunk_is_not_written_again_before_its_drop_is_durable() -> None:
    disk = MemoryDisk()
    store = _store(disk)
    store.open(ONE.manifest)
    _put(store, 0, 3)
    store.commit()
    _rot(disk)
    results: list[bool] = []
    _at_first_sync(disk, lambda: results.append(_put(store, 3)))
    assert not store.recheck(ID, 3)
    assert results == [False]
    assert _put(store, 3)
    assert _claims_only_what_is_there(disk) <= {0, 3}


def test_what_a_start_found_by_hashing_is_on_the_device_before_it_is_claimed() -> None:
    disk = MemoryDisk()
    store = _store(disk)
    store.open(ONE.manifest)
    _put(store, 0, 3)
    again = _store(disk.killed())
    assert set(again.open(ONE.manifest)) == {0, 3}
    assert _claims_only_what_is_there(disk) == {0, 3}


def test_a_record_that_could_not_be_written_leaves_no_gap_in_the_journal() -> None:
    disk, clock = MemoryDisk(), _Clock()
    store = _store(disk, clock=clock)
    store.open(ONE.manifest)
    refusals = [OSError(errno.ENOSPC, "injected")]

    def before(name: str, number: int) -> None:
        if name == "write" and refusals:
            raise refusals.pop()

    disk.before = before
    with pytest.raises(StoreWriteError):
        _put(store, 0)
    clock.now += 1.0
    store.upkeep.step()
    _put(store, 0, 1)
    store.commit()
    after = disk.cut(lambda: False, Random(1))
    again = _store(after, boot="b")
    assert set(again.open(ONE.manifest)) == {0, 1}
    assert again.statistics().models[ID].rehashed_count == 0


def test_giving_a_model_up_closes_its_files_and_refuses_late_chunks() -> None:
    disk = MemoryDisk()
    store = _store(disk)
    store.open(ONE.manifest)
    _put(store, 0, 3)
    sending = store.open_chunk(ID, 0)
    store.abandon(ID)
    with pytest.raises(Exception, match="not open here"):
        _put(store, 1)
    body = bytearray(10)
    assert disk.read_some(sending.spans[0].descriptor, memoryview(body), 0) == 10
    sending.close()
    assert store.statistics().open_files == 0
    assert disk.open_count == 1, "the lock"
    store.open(ONE.manifest)
    assert _put(store, *range(6))
    store.finish(ID)
    assert {path: disk.content(f"m/1/{path}") for path in ONE.files} == ONE.files


def test_a_handle_that_was_let_go_is_closed_by_its_last_user_and_not_leased_again() -> None:
    disk = MemoryDisk()
    disk.close(disk.open("f", write=True, create=True))
    handles = Handles(disk, idle_max=4)
    old = handles.lease(ID, 0, "f")
    assert handles.lease(ID, 0, "f") is old
    handles.detach(ID, 0)
    new = handles.lease(ID, 0, "f")
    assert new is not old
    handles.give_back(old)
    assert disk.open_count == 2
    handles.give_back(old)
    assert disk.open_count == 1
    handles.give_back(new)
    assert handles.lease(ID, 0, "f") is new


def test_a_chunk_of_more_files_than_may_be_open_is_durable_with_its_window() -> None:
    model = build({f"{number:03}.txt": bytes([number % 251]) * (number + 1) for number in range(300)})
    disk = MemoryDisk()
    store = _store(disk)
    store.open(model.manifest)
    store.put(model.manifest.id, 0, model.chunks[0], SOURCE, 0.0)
    store.commit()
    after = disk.cut(lambda: False, Random(1))
    assert set(_store(after, boot="b").open(model.manifest)) == {0}
    store.finish(model.manifest.id)
    after = disk.cut(lambda: False, Random(1))
    assert {path: after.content(f"m/1/{path}") for path in model.files} == model.files


def test_only_so_many_idle_files_stay_open() -> None:
    disk = MemoryDisk()
    disk.close(disk.open("f", write=True, create=True))
    handles = Handles(disk, idle_max=4)
    for number in range(20):
        handles.give_back(handles.lease(ID, number, "f"))
    assert handles.count == disk.open_count == 4
    handles.close_idle()
    assert disk.open_count == 0


def test_the_device_begins_to_write_before_the_window_ends() -> None:
    disk = MemoryDisk()
    big = build({"f": Random(1).randbytes(40 * CHUNK)})
    settings = StoreSettings(reserve_bytes=0, window_bytes=MIB)
    store = ChunkStore(
        Path("unused"), settings=settings, on_event=lambda event: None, disk=disk, clock=SetClock(), background=False
    )
    store.open(big.manifest)
    per_mib = MIB // CHUNK
    for chunk in range(per_mib - 1):
        store.put(big.manifest.id, chunk, big.chunks[chunk], SOURCE, 0.0)
    store.upkeep.step()
    assert disk.write_backs == 0
    for chunk in range(per_mib - 1, 2 * per_mib - 1):
        store.put(big.manifest.id, chunk, big.chunks[chunk], SOURCE, 0.0)
    store.upkeep.step()
    store.upkeep.step()
    assert disk.write_backs == 1, "once for each window_bytes, not at each step"
    assert store.statistics().models[big.manifest.id].uncommitted_bytes > 0, "nothing is claimed by that"


def test_the_device_begins_four_times_a_second_where_little_comes() -> None:
    disk, now = MemoryDisk(), 100.0
    model = build({"f": Random(1).randbytes(8 * CHUNK)})
    settings = StoreSettings(reserve_bytes=0)
    store = ChunkStore(
        Path("unused"),
        settings=settings,
        on_event=lambda event: None,
        disk=disk,
        clock=SetClock(now=lambda: now),
        background=False,
    )
    store.open(model.manifest)
    begun = []
    for chunk in range(4):
        store.put(model.manifest.id, chunk, model.chunks[chunk], SOURCE, 0.0)
        wait_s = store.upkeep.step()
        assert wait_s is not None
        begun.append(disk.write_backs)
        now += wait_s
    assert begun == [0, 1, 2, 3]
    assert now == pytest.approx(101.0)
    store.upkeep.step()
    now += 0.25
    store.upkeep.step()
    assert disk.write_backs == 3, "nothing new has come"
    assert store.statistics().models[model.manifest.id].uncommitted_bytes > 0


def test_a_chunk_of_many_small_files_is_copied_with_few_files_open_at_once() -> None:
    packed = {f"{number:03}.txt": bytes([number % 251]) * (number + 1) for number in range(300)}
    one = build({**packed, "weights": bytes(CHUNK)})
    two = build({"first.txt": b"", **packed, "weights": bytes(CHUNK) + b"new"}, version=2)
    disk = MemoryDisk()
    settings = StoreSettings(reserve_bytes=0, open_files_max=8)
    store = ChunkStore(
        Path("unused"), settings=settings, on_event=lambda event: None, disk=disk, clock=SetClock(), background=False
    )
    store.open(one.manifest)
    for chunk in range(len(one.chunks)):
        store.put(one.manifest.id, chunk, one.chunks[chunk], SOURCE, 0.0)
    whole, counts = disk.open, list[int]()

    def counted(path: str, *, write: bool = False, create: bool = False, mode: int = 0o644) -> int:
        descriptor = whole(path, write=write, create=create, mode=mode)
        counts.append(disk.open_count)
        return descriptor

    disk.open = counted  # type: ignore[method-assign]
    held = store.open(two.manifest)
    assert {two.manifest.digest(chunk) for chunk in held} == {one.manifest.digest(chunk) for chunk in (0, 1)}
    assert max(counts) < 32, "the handles that may be idle, the window's own, and a few"
    store.commit()
    tree = f".incoming/{two.manifest.id.hex()}"
    assert all(disk.content(f"{tree}/{path}") == body for path, body in packed.items())


def test_figures_are_told_while_the_disk_works_whatever_it_does() -> None:
    disk = MemoryDisk()
    store = _store(disk)
    asked: list[str] = []

    def before(name: str, number: int) -> None:
        asker = Thread(target=lambda: asked.append(str(store.statistics().free_bytes)), daemon=True)
        asker.start()
        asker.join(WAIT_S)
        assert not asker.is_alive(), f"{name} holds up who asks for figures"

    disk.before = before
    store.open(ONE.manifest)
    _put(store, *range(6))
    store.finish(ID)
    disk.file("m/1/two.bin").data[7] ^= 1
    assert not store.recheck(ID, 3)
    store.close()
    assert len(asked) > 20


def test_a_chunk_that_comes_while_the_journal_is_started_again_is_named_in_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    store = _store(disk)
    store.open(ONE.manifest)
    _put(store, 0)
    waits = hear_of_waits(monkeypatch)
    writer = Thread(target=_put, args=(store, 3), daemon=True)

    def before(name: str, number: int) -> None:
        if name == "rename":
            writer.start()
            assert waits.wait(WAIT_S), "it would be written down in the file that is being replaced"

    disk.before = before
    replica = store._models.get(ID)
    with replica.committing:
        claims.renew_journal(store._context, replica)
    writer.join(WAIT_S)
    assert not writer.is_alive()
    again = _store(disk.killed())
    assert set(again.open(ONE.manifest)) == {0, 3}
