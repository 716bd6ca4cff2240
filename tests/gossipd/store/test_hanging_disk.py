"""What the event loop asks of a store is answered at once while the disk hangs, whatever another thread does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import cast

import pytest

from gossipd.core.ids import SOURCE
from gossipd.store import chunk_store
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.disk.condition import StoreHealth
from gossipd.store.disk.disk import Disk
from gossipd.store.disk.root_place import RootPlace
from gossipd.store.notices import DiskSlowChanged, StoreEvent
from gossipd.store.settings import StoreSettings
from tests.gossipd.daemon.quiet_store import quiet_store
from tests.gossipd.store.hanging_disk import WAIT_S, HangingDisk
from tests.gossipd.store.small_models import Model, small

ONE, TWO, COMING = small(version=1, seed=1), small(version=2, seed=2), small(name="coming", seed=3)
ID = TWO.manifest.id

Call = Callable[[ChunkStore], object]
ANSWERS: dict[str, Call] = {
    "place": lambda store: store.place(ID),
    "why_elsewhere": lambda store: store.why_elsewhere(),
    "why_unseen": lambda store: store.why_unseen(ID),
    "lacks_files": lambda store: store.lacks_files(),
    "is_published": lambda store: store.is_published(ID),
    "current": lambda store: store.current("m"),
    "pins": lambda store: store.pins(),
    "chunk_length": lambda store: store.chunk_length(ID, 0),
    "held": lambda store: store.held(COMING.manifest.id),
    "chunks_kept": lambda store: store.chunks_kept(ID),
    "verify": lambda store: store.verify("m", 2) is not None,
    "look_at_calls": lambda store: store.look_at_calls(),
    "check_answers": lambda store: store.check_answers(),
    "condition": lambda store: store.condition(),
    "statistics": lambda store: store.statistics(),
}
HANG: dict[str, Call] = {
    "look": lambda store: store.look(),
    "glance": lambda store: store.glance(),
    "space": lambda store: store.space(),
    "put": lambda store: store.put(COMING.manifest.id, 0, COMING.chunks[0], SOURCE, 0.0),
    "commit": lambda store: store.commit(COMING.manifest.id),
    "finish": lambda store: store.finish(ID),
    "rollback": lambda store: store.rollback("m"),
    "avoid_versions": lambda store: store.avoid_versions("m", frozenset({2})),
    "remove": lambda store: store.remove("m", 2),
    "open": lambda store: store.open(small(name="new", seed=4).manifest),
    "recheck": lambda store: store.recheck(ID, 0),
    "pin": lambda store: store.pin("m"),
    "uses": lambda store: store.uses(),
    "open_chunk": lambda store: store.open_chunk(ID, 0).close(),
}


@pytest.fixture
def disk() -> Iterator[HangingDisk]:
    made = HangingDisk()
    yield made
    made.answers.set()


def a_store(disk: HangingDisk, told: list[StoreEvent] | None = None) -> ChunkStore:
    """With two versions of a model, and a chunk of another that is not durable."""
    settings = StoreSettings(reserve_bytes=0)
    store = ChunkStore(
        Path("unused"),
        settings=settings,
        on_event=(told if told is not None else []).append,
        disk=cast(Disk, disk),
        background=False,
    )
    for model in (ONE, TWO, COMING):
        store.open(model.manifest)
    for model in (ONE, TWO):
        fill(store, model)
    store.put(COMING.manifest.id, 1, COMING.chunks[1], SOURCE, 0.0)
    assert store.look() == []
    return store


def fill(store: ChunkStore, model: Model) -> None:
    for chunk, body in enumerate(model.chunks):
        store.put(model.manifest.id, chunk, body, SOURCE, 0.0)
    store.finish(model.manifest.id)


def ask_all(store: ChunkStore) -> dict[str, object]:
    """What the event loop is told. Each in time, or the test fails."""
    told: dict[str, object] = {}

    def ask() -> None:
        for name, call in ANSWERS.items():
            told[name] = None
            told[name] = call(store)

    asker = Thread(target=ask, daemon=True)
    asker.start()
    asker.join(WAIT_S / 2)
    assert not asker.is_alive(), f"{list(told)[-1]} waits for the disk"
    return told


@pytest.mark.parametrize("name", HANG)
def test_a_call_that_hangs_holds_up_none_of_the_event_loop(disk: HangingDisk, name: str) -> None:
    store = a_store(disk)
    before = ask_all(store)
    disk.answers.clear()
    hanging = Thread(target=HANG[name], args=(store,), daemon=True)
    hanging.start()
    assert disk.was_asked.wait(WAIT_S), "the call does not hang"
    told = ask_all(store)
    assert told.keys() == ANSWERS.keys() and told["current"] == before["current"] == 2
    disk.answers.set()
    hanging.join(WAIT_S)
    assert not hanging.is_alive()


def test_writes_that_wait_for_seconds_are_told_before_the_disk_is_silent(disk: HangingDisk) -> None:
    told: list[StoreEvent] = []
    store = a_store(disk, told)
    assert store.look_at_calls() == ""
    told.clear()
    disk.hangs = frozenset({"write_some"})
    disk.answers.clear()
    hanging = Thread(target=HANG["put"], args=(store,), daemon=True)
    hanging.start()
    assert disk.was_asked.wait(WAIT_S)
    assert [store.look_at_calls() for _ in range(2)] == ["", ""] and told == []
    assert store.look_at_calls() == "" and told == [DiskSlowChanged(is_slow=True)]
    assert store.look_at_calls() == "" and store.condition().health is StoreHealth.OK
    disk.answers.set()
    hanging.join(WAIT_S)
    assert store.look_at_calls() == "" and told[-1] == DiskSlowChanged(is_slow=False)
    assert sum(isinstance(one, DiskSlowChanged) for one in told) == 2


def test_the_calls_of_the_event_loop_are_those_that_the_store_names() -> None:
    said = (chunk_store.__doc__ or "").partition("answer from memory")[2].partition("All others")[0]
    assert set(re.findall(r"``(\w+)``", said)) == set(ANSWERS)


def test_a_path_of_the_store_that_hangs_is_looked_at_by_looks_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, looks = quiet_store(tmp_path / "store"), [0]

    def look(place: RootPlace) -> str:
        looks[0] += 1
        return f"{place.path} cannot be reached"

    monkeypatch.setattr(RootPlace, "why_elsewhere", look)
    store.open(TWO.manifest)
    fill(store, TWO)
    assert (store.why_elsewhere(), store.why_unseen(ID), looks) == ("", "", [0])
    store.look()
    assert store.why_elsewhere() == store.why_unseen(ID) != ""
    assert looks == [1]
    store.close()
