"""The store's own threads: windows that end by themselves, writers that wait for a disk that is slower than they."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random
from threading import Event, Thread

import pytest

from gossipd.core.events import ChunkLost
from gossipd.core.ids import SOURCE
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.disk.posix_disk import PosixDisk
from gossipd.store.models.background import BackgroundThread
from gossipd.store.notices import StoreEvent
from gossipd.store.settings import MIB, StoreSettings
from tests.gossipd.store.set_clock import SetClock
from tests.gossipd.store.small_models import CHUNK, Model, build
from tests.gossipd.store.waiting import hear_of_waits

WAIT_S = 120.0  # only reached when the test fails
MODEL = build({"f": Random(1).randbytes(40 * CHUNK)})


class GatedDisk(PosixDisk):
    """A disk whose data syncs wait at a gate; the test sees the first one come and opens it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.gate = Event()
        self.gate.set()
        self.came = Event()
        self.passed = Event()
        self.data: set[int] = set()

    def open(self, path: str, *, write: bool = False, create: bool = False, mode: int = 0o644) -> int:
        descriptor = super().open(path, write=write, create=create, mode=mode)
        if path.endswith("/f"):
            self.data.add(descriptor)
        else:
            self.data.discard(descriptor)
        return descriptor

    def sync_data(self, descriptor: int) -> None:
        if descriptor in self.data:
            self.came.set()
            assert self.gate.wait(WAIT_S)
        super().sync_data(descriptor)
        if descriptor in self.data:
            self.passed.set()


@contextmanager
def _running(root: Path, settings: StoreSettings, events: list[StoreEvent]) -> Iterator[tuple[ChunkStore, GatedDisk]]:
    disk = GatedDisk(root)
    ticks = count()  # a hundredth of a second passes between any two looks at the clock
    clock = SetClock(now=lambda: next(ticks) / 100)
    store = ChunkStore(root, settings=settings, on_event=events.append, disk=disk, clock=clock)
    try:
        yield store, disk
    finally:
        disk.gate.set()
        store.close()
        disk.shut()


def _put(store: ChunkStore, model: Model, *chunks: int) -> None:
    for chunk in chunks:
        store.put(model.manifest.id, chunk, model.chunks[chunk], SOURCE, 0.0)


def test_a_window_ends_by_itself(tmp_path: Path) -> None:
    with _running(tmp_path, StoreSettings(window_s=0.01), []) as (store, disk):
        store.open(MODEL.manifest)
        disk.passed.clear()
        _put(store, MODEL, 0, 1)
        assert disk.passed.wait(WAIT_S)


def test_writers_wait_when_the_disk_is_a_whole_window_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = StoreSettings(window_s=0.01, window_bytes=MIB)
    waits = hear_of_waits(monkeypatch)
    with _running(tmp_path, settings, []) as (store, disk):
        store.open(MODEL.manifest)
        disk.gate.clear()
        disk.came.clear()
        _put(store, MODEL, 0)
        assert disk.came.wait(WAIT_S), "the first window is being synced, and that takes as long as we like"
        writer = Thread(target=_put, args=(store, MODEL, *range(1, 40)))
        writer.start()
        assert waits.wait(WAIT_S), "the second window is full and late"
        assert store.statistics().models[MODEL.manifest.id].uncommitted_bytes <= MIB + CHUNK
        disk.gate.set()
        writer.join(WAIT_S)
        assert not writer.is_alive()
        assert store.held(MODEL.manifest.id).is_full


def test_reading_and_duplicates_do_not_wait_for_a_sync(tmp_path: Path) -> None:
    with _running(tmp_path, StoreSettings(window_s=0.01), []) as (store, disk):
        store.open(MODEL.manifest)
        disk.gate.clear()
        disk.came.clear()
        _put(store, MODEL, 0)
        assert disk.came.wait(WAIT_S)
        _put(store, MODEL, 0, 1)
        store.open_chunk(MODEL.manifest.id, 1).close()
        assert set(store.held(MODEL.manifest.id)) == {0, 1}


def test_closing_waits_for_the_window_and_says_so_in_the_journal(tmp_path: Path) -> None:
    events: list[StoreEvent] = []
    with _running(tmp_path, StoreSettings(), events) as (store, _):
        store.open(MODEL.manifest)
        _put(store, MODEL, *range(10))
    assert not [event for event in events if isinstance(event, ChunkLost)]
    again = ChunkStore(tmp_path, on_event=events.append, background=False)
    assert set(again.open(MODEL.manifest)) == set(range(10))
    assert again.statistics().models[MODEL.manifest.id].rehashed_count == 0
    again.close()


def test_the_scrub_waits_as_long_as_its_rate_makes_it() -> None:
    steps: list[float] = []
    done = Event()

    def scrub() -> float | None:
        steps.append(0.0)
        if len(steps) == 3:
            done.set()
            return None  # nothing more to read: a minute's rest, which stopping cuts short
        return 0.0

    thread = BackgroundThread("scrub", scrub, woken=Event(), idle_s=60.0)
    thread.start()
    assert done.wait(WAIT_S)
    thread.stop()
    assert len(steps) == 3
