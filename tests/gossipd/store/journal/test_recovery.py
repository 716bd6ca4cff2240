"""What a start believes: journals that are lost, foreign or torn, syncs that had failed, files that were cut."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from gossipd.core.events import ChunkLost
from gossipd.core.ids import SOURCE
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.errors import NoSpaceError, StoreFormatError
from gossipd.store.notices import SpaceFreed, StoreEvent
from gossipd.store.settings import StoreSettings
from tests.gossipd.store.memory_disk import MemoryDisk
from tests.gossipd.store.set_clock import SetClock
from tests.gossipd.store.small_models import CHUNK, Model, small

ONE = small()
ID = ONE.manifest.id
JOURNAL = f".manifests/{ID.hex()}/journal"
TREE = f".incoming/{ID.hex()}"


def _store(
    disk: MemoryDisk, events: list[StoreEvent] | None = None, *, boot: str = "a", reserve_bytes: int = 0
) -> ChunkStore:
    heard = events if events is not None else []
    return ChunkStore(
        Path("unused"),
        settings=StoreSettings(reserve_bytes=reserve_bytes),
        on_event=heard.append,
        disk=disk,
        clock=SetClock(boot=boot),
        background=False,
    )


def _put(store: ChunkStore, *chunks: int, model: Model = ONE) -> None:
    for chunk in chunks:
        store.put(model.manifest.id, chunk, model.chunks[chunk], SOURCE, 0.0)


def _rehashed(store: ChunkStore) -> int:
    return store.statistics().models[ID].rehashed_count


def test_after_a_kill_only_the_open_window_is_hashed() -> None:
    disk = MemoryDisk()
    store = _store(disk)
    store.open(ONE.manifest)
    _put(store, 0, 1, 2)
    store.commit()
    _put(store, 3)
    again = _store(disk.killed())
    assert set(again.open(ONE.manifest)) == {0, 1, 2, 3}
    assert _rehashed(again) == 1


def test_after_a_power_cut_what_had_reached_the_device_is_found_although_its_name_is_lost() -> None:
    disk = MemoryDisk()
    store = _store(disk)
    store.open(ONE.manifest)
    _put(store, 0)
    store.commit()
    _put(store, 3)
    disk.file(f"{TREE}/two.bin").sync()  # the kernel wrote the data back by itself, and not the journal
    after = disk.cut(lambda: False, Random(1))
    again = _store(after, boot="b")
    assert set(again.open(ONE.manifest)) == {0, 3}


def test_a_lost_journal_costs_hashing_and_no_chunk() -> None:
    disk = MemoryDisk()
    store = _store(disk)
    store.open(ONE.manifest)
    _put(store, 0, 3, 4, 5)
    store.close()
    disk.remove_file(JOURNAL)
    again = _store(disk.killed())
    assert set(again.open(ONE.manifest)) == {0, 3, 4, 5}


@pytest.mark.parametrize("published", [False, True])
def test_a_journal_torn_anywhere_costs_no_chunk_that_is_there(published: bool) -> None:
    whole = MemoryDisk()
    store = _store(whole)
    store.open(ONE.manifest)
    _put(store, *range(6 if published else 4))
    if published:
        store.finish(ID)
    store.close()
    body = whole.content(JOURNAL)
    for cut in [*range(1, 65), *range(65, len(body), 7)]:
        whole.file(JOURNAL).data[:] = body[:-cut]
        again = _store(whole.killed(), boot="b")
        assert set(again.open(ONE.manifest)) == set(range(6 if published else 4))
        again.close()


def test_a_foreign_journal_is_refused_and_left_alone() -> None:
    disk = MemoryDisk()
    store = _store(disk)
    store.open(ONE.manifest)
    store.close()
    disk.file(JOURNAL).data[:] = b"#!/bin/sh what is this"
    again = _store(disk.killed())
    with pytest.raises(StoreFormatError, match=rf"^{JOURNAL}: .*move it away, then SIGHUP") as caught:
        again.open(ONE.manifest)
    assert caught.value.code == "E_STORE_FORMAT"
    assert disk.content(JOURNAL) == b"#!/bin/sh what is this"
    assert disk.kind(TREE) is not None


def test_after_a_failed_sync_the_page_cache_is_not_believed_at_the_next_start() -> None:
    disk = MemoryDisk()
    events: list[StoreEvent] = []
    store = _store(disk, events)
    store.open(ONE.manifest)
    _put(store, 0, 1)
    store.commit()
    _put(store, 3, 4)

    def before(name: str, number: int) -> None:
        if name in ("sync_data", "create", "open") and len(disk.calls) > at:
            raise OSError(errno.EIO, "injected")

    at = len(disk.calls) + 1  # past the journal's own sync
    disk.before = before
    store.commit()
    assert [event.chunk for event in events if isinstance(event, ChunkLost)] == [3, 4]
    again = _store(disk.killed())  # killed before it could write that down
    assert set(again.open(ONE.manifest)) == {0, 1}


def test_a_claim_whose_sync_failed_is_made_again_before_it_is_believed() -> None:
    """Whichever sync of a commit fails: what was not told as lost is claimed in a journal that is on the device."""
    syncs = 0
    for failing in range(8):
        disk, events, seen = MemoryDisk(), list[StoreEvent](), [0]

        def fail(name: str, _: int, failing: int = failing, seen: list[int] = seen) -> None:
            if name == "sync_data":
                seen[0] += 1
                if seen[0] == failing + 1:
                    raise OSError(errno.EIO, "injected")

        store = _store(disk, events)
        store.open(ONE.manifest)
        _put(store, 0, 1, 2, 3)
        disk.before = fail
        store.commit()
        disk.before = lambda name, number: None
        store._context.tracker.probe_at = 0.0
        store.upkeep.step()
        store.commit()
        claimed = {0, 1, 2, 3} - {event.chunk for event in events if isinstance(event, ChunkLost)}
        after = _store(disk.cut(lambda: False, Random(0)), boot="b")
        assert claimed <= set(after.open(ONE.manifest))
        assert _rehashed(after) <= 4 - len(claimed), f"sync {failing + 1}: a claim was not on the device"
        syncs = max(syncs, seen[0])
    assert 3 <= syncs < 8, "every sync of the commit has failed once"


def test_an_older_version_that_is_finished_late_is_still_there_after_a_power_cut() -> None:
    disk = MemoryDisk()
    store = _store(disk)
    for version in (2, 1):
        model = small(version=version, seed=version)
        store.open(model.manifest)
        _put(store, *range(6), model=model)
        store.finish(model.manifest.id)
    after = disk.cut(lambda: False, Random(1))
    assert sorted(after.names("m")) == ["1", "2", "current"]
    assert after.read_link("m/current") == "2"


def test_files_that_were_cut_or_removed_lose_what_lay_there_and_nothing_else() -> None:
    disk = MemoryDisk()
    store = _store(disk)
    store.open(ONE.manifest)
    _put(store, *range(6))
    store.finish(ID)
    store.close()
    disk.file("m/1/shards/one.bin").put(CHUNK + 5, None)
    disk.remove_file("m/1/config.json")
    again = _store(disk.killed())
    assert set(again.open(ONE.manifest)) == {0, 3, 4}
    _put(again, 1, 2, 5)
    again.commit()
    assert {path: disk.content(f"m/1/{path}") for path in ONE.files} == ONE.files


def test_a_published_tree_that_was_deleted_by_hand_is_begun_again() -> None:
    disk = MemoryDisk()
    store = _store(disk)
    store.open(ONE.manifest)
    _put(store, *range(6))
    store.finish(ID)
    store.close()
    disk.rename("m/1", "elsewhere")
    again = _store(disk.killed())
    assert len(again.open(ONE.manifest)) == 0
    _put(again, *range(6))
    again.finish(ID)
    assert again.versions("m") == [1]


def test_a_directory_that_vanishes_while_chunks_arrive_is_made_again() -> None:
    disk = MemoryDisk()
    events: list[StoreEvent] = []
    store = _store(disk, events)
    store.open(ONE.manifest)
    _put(store, 0, 3)
    store.commit()
    disk.remove_file(f"{TREE}/shards/one.bin")
    disk.remove_directory(f"{TREE}/shards")
    store._context.handles.close_idle()
    with pytest.raises(Exception, match="made again"):
        _put(store, 1)
    assert [event.chunk for event in events if isinstance(event, ChunkLost)] == [0]
    _put(store, *(set(range(6)) - {3}))
    store.finish(ID)
    assert disk.content("m/1/shards/one.bin") == ONE.files["shards/one.bin"]


def test_a_file_that_vanishes_before_publishing_is_fetched_again_not_published() -> None:
    disk = MemoryDisk()
    store = _store(disk)
    store.open(ONE.manifest)
    _put(store, *range(6))
    disk.remove_file(f"{TREE}/two.bin")
    with pytest.raises(Exception, match="fetched again"):
        store.finish(ID)
    assert set(store.held(ID)) == {0, 1, 2, 5}
    _put(store, 3, 4)
    store.finish(ID)
    assert disk.content("m/1/two.bin") == ONE.files["two.bin"]


def test_a_model_that_does_not_fit_is_named_with_figures_and_told_when_it_does() -> None:
    disk = MemoryDisk(total_bytes=6 * CHUNK)
    events: list[StoreEvent] = []
    store = _store(disk, events)
    ballast = disk.open("ballast", write=True, create=True)
    disk.write_some(ballast, memoryview(bytes(3 * CHUNK)), 0)
    calls = len(disk.calls)
    with pytest.raises(NoSpaceError) as caught:
        store.open(ONE.manifest)
    assert caught.value.need_bytes == ONE.manifest.bytes_total
    assert caught.value.free_bytes < 3 * CHUNK
    assert len(disk.calls) == calls, "nothing was made"
    disk.truncate(ballast, 0)
    store._context.tracker.probe_at = 0.0
    store.upkeep.step()
    assert events == [SpaceFreed(ID)]
    assert len(store.open(ONE.manifest)) == 0


def test_a_disk_that_holds_one_version_keeps_it_until_it_is_removed_for_the_next() -> None:
    two = small(version=2, seed=2)
    events: list[StoreEvent] = []
    store = _store(MemoryDisk(total_bytes=int(1.5 * ONE.manifest.bytes_total)), events)
    store.open(ONE.manifest)
    _put(store, *range(6))
    store.finish(ID)
    for _ in range(2):
        with pytest.raises(NoSpaceError):
            store.open(two.manifest)
    assert (store.current("m"), store.versions("m")) == (1, [1])
    store.remove("m", 1)
    store._context.tracker.probe_at = 0.0
    store.upkeep.step()
    assert SpaceFreed(two.manifest.id) in events
    store.open(two.manifest)
    _put(store, *range(6), model=two)
    store.finish(two.manifest.id)
    assert store.current("m") == 2


def test_the_reserve_is_left_to_the_rest_of_the_host() -> None:
    total_bytes, need_bytes = 1 << 30, ONE.manifest.bytes_total
    for reserve_bytes, used_bytes, is_taken in (
        (CHUNK, 1 << 10, True),
        (CHUNK, total_bytes - need_bytes - CHUNK // 2, False),
        (1 << 40, total_bytes - need_bytes - total_bytes // 40, False),  # the reserve is a twentieth at most
        (1 << 40, total_bytes - need_bytes - total_bytes // 10, True),
        (0, total_bytes - need_bytes - CHUNK // 2, True),
    ):
        disk = MemoryDisk(total_bytes=total_bytes)
        store = _store(disk, reserve_bytes=reserve_bytes)
        disk.used_bytes = used_bytes
        if is_taken:
            store.open(ONE.manifest)
            continue
        with pytest.raises(NoSpaceError, match="a reserve of") as caught:
            store.open(ONE.manifest)
        assert caught.value.free_bytes >= need_bytes, "it would fit without the reserve"


def test_what_sparse_models_still_need_is_not_promised_twice() -> None:
    disk = MemoryDisk(total_bytes=8 * CHUNK)
    disk.can_allocate = False
    store = _store(disk)
    store.open(ONE.manifest)
    assert disk.file(f"{TREE}/two.bin").written == set()
    other = small(name="other", seed=2)
    with pytest.raises(NoSpaceError):
        store.open(other.manifest)
