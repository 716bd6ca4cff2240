"""The store dies at every call it makes to the disk, by a kill and by power cuts, and comes back each time.

One script (``_live``) goes through everything a store does: two versions, shared chunks, rot and repair, publishing,
rolling back, removing. It is run once to count its calls and then once for each, crashing there. What must hold
after the next start is in ``_check``. The same on a real file system, with real kills and real power cuts
of a loop device, is in ``tests/chaos``.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from gossipd.core.errors import NotFoundError
from gossipd.core.ids import SOURCE
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.settings import StoreSettings
from tests.gossipd.store.memory_disk import Crash, MemoryDisk
from tests.gossipd.store.set_clock import SetClock
from tests.gossipd.store.small_models import Model, small

ONE = small(version=1, seed=1)
TWO = small(version=2, seed=1, config=b"changed")
ROT = 1  # the chunk of TWO that rots


@dataclass
class Diary:
    """What the script knows at the moment of the crash."""

    committed: set[tuple[int, int]] = field(default_factory=set)
    finished: set[int] = field(default_factory=set)
    is_rotten: bool = False
    is_removing: bool = False


def _store(disk: MemoryDisk, *, boot: str = "a") -> ChunkStore:
    return ChunkStore(
        Path("unused"),
        settings=StoreSettings(reserve_bytes=0),
        on_event=lambda event: None,
        disk=disk,
        clock=SetClock(boot=boot),
        background=False,
    )


def _live(disk: MemoryDisk, diary: Diary) -> None:
    store = _store(disk)
    store.open(ONE.manifest)
    for chunk in (5, 0, 3):
        store.put(ONE.manifest.id, chunk, ONE.chunks[chunk], SOURCE, 0.0)
    store.commit()
    diary.committed |= {(1, chunk) for chunk in (5, 0, 3)}
    for chunk in (1, 2, 4):
        store.put(ONE.manifest.id, chunk, ONE.chunks[chunk], SOURCE, 0.0)
    store.finish(ONE.manifest.id)
    diary.committed |= {(1, chunk) for chunk in range(6)}
    diary.finished.add(1)
    store.open(TWO.manifest)
    store.commit()
    diary.committed |= {(2, chunk) for chunk in range(5)}
    _rot(disk, TWO, diary)
    assert not store.recheck(TWO.manifest.id, ROT)
    diary.is_rotten = False
    store.put(TWO.manifest.id, ROT, TWO.chunks[ROT], SOURCE, 0.0)
    store.put(TWO.manifest.id, 5, TWO.chunks[5], SOURCE, 0.0)
    store.finish(TWO.manifest.id)
    diary.committed |= {(2, chunk) for chunk in range(6)}
    diary.finished.add(2)
    assert store.rollback("m") == 1
    diary.is_removing = True
    diary.finished.discard(2)
    store.remove("m", 2)
    store.close()


def _rot(disk: MemoryDisk, model: Model, diary: Diary) -> None:
    segment = model.manifest.segments(ROT)[0]
    file = disk.file(f".incoming/{model.manifest.id.hex()}/{model.manifest.files[segment.file_index].path}")
    for side in (file.data, file.device):
        if segment.offset < len(side):  # a store that forgets to sync has nothing there, which the power cuts find
            side[segment.offset] ^= 1
    diary.is_rotten = True
    diary.committed.discard((2, ROT))


def _right_on_disk(disk: MemoryDisk, model: Model, tree: str) -> set[int]:
    """Chunks whose bytes are all there, known to the store or not."""
    found = set()
    for chunk in range(model.manifest.chunk_count):
        body = bytearray()
        for segment in model.manifest.segments(chunk):
            path = f"{tree}/{model.manifest.files[segment.file_index].path}"
            if disk.kind(path) is not None:
                body += disk.content(path)[segment.offset : segment.offset + segment.length]
        if body == model.chunks[chunk]:
            found.add(chunk)
    return found


def _tree(disk: MemoryDisk, model: Model) -> str:
    incoming = f".incoming/{model.manifest.id.hex()}"
    return incoming if disk.kind(incoming) is not None else f"m/{model.manifest.version}"


def _check(disk: MemoryDisk, diary: Diary, *, boot: str) -> None:
    """Everything that must hold at the next start, and that the work can be brought to its end."""
    _check_visible(disk)
    for version in diary.finished:
        assert disk.kind(f"m/{version}") is not None, "finish returned and the version is not there"
    right = {model.manifest.version: _right_on_disk(disk, model, _tree(disk, model)) for model in (ONE, TWO)}
    store = _store(disk, boot=boot)
    for known in store.models():
        envelopes = {model.manifest.id: model.manifest.envelope for model in (ONE, TWO)}
        assert store.manifest_bytes(known.deployment) == envelopes[known.deployment], "a name without its bytes"
    if diary.is_removing:
        try:
            store.remove("m", 2)
        except NotFoundError:
            right[2] = set()
    for model in [ONE] if diary.is_removing else [ONE, TWO]:
        version = model.manifest.version
        held = set(store.open(model.manifest))
        wrong = held - _right_on_disk(disk, model, _tree(disk, model))
        assert wrong <= ({ROT} if diary.is_rotten and version == 2 else set()), "claims what it has not"
        if boot == "a":
            assert right[version] <= held, "a chunk whose write had completed is not held after a kill"
        committed = {chunk for number, chunk in diary.committed if number == version}
        assert committed <= held, "a committed chunk is not held"
        rehashed = store.statistics().models[model.manifest.id].rehashed_count
        assert rehashed <= 6 - len(committed), "a committed chunk was not believed"
        if diary.is_rotten and version == 2:
            store.recheck(model.manifest.id, ROT)
        for chunk in set(range(6)) - set(store.held(model.manifest.id)):
            store.put(model.manifest.id, chunk, model.chunks[chunk], SOURCE, 0.0)
        store.finish(model.manifest.id)
        assert _right_on_disk(disk, model, f"m/{version}") == set(range(6))
    store.close()
    assert disk.open_count == 0, "descriptors leak"
    _check_visible(disk)
    assert disk.names(".trash") == []


def _check_visible(disk: MemoryDisk) -> None:
    """Users never see a partial model, nor a link to nothing."""
    entries = disk.names("m") if disk.kind("m") is not None else []
    for entry in entries:
        if entry.isdigit():
            model = ONE if entry == "1" else TWO
            for path, body in model.files.items():
                assert disk.content(f"m/{entry}/{path}") == body, f"version {entry} is visible and not whole"
    if "current" in entries:
        assert disk.read_link("m/current") in entries, "current leads nowhere"


def _crash_at(number: int, *, torn: bool = False) -> tuple[MemoryDisk, Diary]:
    """The disk and the diary when the process died at its n-th call; ``torn``: half of a write had been done."""
    disk, diary = MemoryDisk(), Diary()

    def before(name: str, at: int) -> None:
        if at == number:
            raise Crash(f"{name} {at}")

    disk.before = before
    if torn:
        _tear_at(disk, number)
    try:
        _live(disk, diary)
    except Crash:
        return disk, diary
    raise AssertionError(f"the script makes fewer than {number} calls")


def _tear_at(disk: MemoryDisk, number: int) -> None:
    whole = disk.write_some

    def half(descriptor: int, data: memoryview, offset: int) -> int:
        if len(disk.calls) == number:
            disk.before = lambda name, at: None
            whole(descriptor, data[: len(data) // 2], offset)
            raise Crash(f"in the middle of write {number}")
        return whole(descriptor, data, offset)

    disk.write_some = half  # type: ignore[method-assign]


@pytest.fixture(scope="module")
def calls() -> list[str]:
    """Every call of one run without a crash."""
    disk = MemoryDisk()
    _live(disk, Diary())
    assert len(disk.calls) > 100
    return disk.calls


def test_a_kill_at_every_call_loses_no_chunk_whose_write_had_completed(calls: list[str]) -> None:
    for number in range(len(calls)):
        disk, diary = _crash_at(number)
        _check(disk.killed(), diary, boot="a")


def test_a_kill_in_the_middle_of_every_write_leaves_nothing_that_is_believed(calls: list[str]) -> None:
    for number in [number for number, call in enumerate(calls) if call == "write"]:
        disk, diary = _crash_at(number, torn=True)
        disk.__dict__.pop("write_some")
        _check(disk.killed(), diary, boot="a")


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_power_cut_at_every_call_loses_at_most_the_open_window(calls: list[str], share: float) -> None:
    random = Random(f"cut {share}")
    for number in range(len(calls)):
        disk, diary = _crash_at(number)
        _check(disk.cut(_drawn(random, share), random), diary, boot="b")


def test_a_power_cut_that_keeps_every_name_and_none_of_the_bytes_finds_no_name_without_them(calls: list[str]) -> None:
    for number in range(len(calls)):
        disk, diary = _crash_at(number)
        _check(disk.cut(_names_only(disk), Random(number)), diary, boot="b")


def test_a_power_cut_that_leaves_any_part_of_what_was_not_synced_is_survived(calls: list[str]) -> None:
    for seed in range(3):
        random = Random(f"part {seed}")
        for number in range(1, len(calls), 2):
            disk, diary = _crash_at(number)
            _check(disk.cut(_drawn(random, random.random()), random), diary, boot="b")


def test_a_kill_during_the_start_after_a_kill_changes_nothing(calls: list[str]) -> None:
    random = Random("twice")
    for _ in range(100):
        disk, diary = _crash_at(random.randrange(len(calls)))
        disk = disk.killed()
        at = random.randrange(30)

        def before(name: str, number: int, at: int = at) -> None:
            if number == at:
                raise Crash(name)

        disk.before = before
        try:
            store = _store(disk)
            for model in [ONE] if diary.is_removing else [ONE, TWO]:
                store.open(model.manifest)
        except Crash:
            pass
        _check(disk.killed(), diary, boot="a")


def _names_only(disk: MemoryDisk) -> Callable[[], bool]:
    """Every rename had reached the device, no write after the last sync: the order that file systems may choose."""
    draws = iter([True] * disk.unsynced_names)
    return lambda: next(draws, False)


def _drawn(random: Random, share: float) -> Callable[[], bool]:
    return lambda: random.random() < share


@pytest.fixture(autouse=True)
def _no_cycles_pile_up() -> None:
    """A crashed store is a heap of cycles with megabytes in it."""
    gc.collect()
