"""Reading current versions into the page cache, on a disk in memory that knows which blocks it has cached."""

from __future__ import annotations

import errno
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gossipd.core.errors import NotFoundError
from gossipd.core.ids import SOURCE
from gossipd.parts.want import EVERYTHING, Want, parse_want
from gossipd.runtime.memory_room import MemoryRoom
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.models.warming import Warmer, WarmState, Warmth, _Reading
from gossipd.store.settings import StoreSettings
from tests.gossipd.store.memory_disk import BLOCK, MemoryDisk
from tests.gossipd.store.set_clock import SetClock
from tests.gossipd.store.small_models import CHUNK, Model, build, small

ONE, TWO = small(version=1), small(version=2, seed=2)
RATE = 10 * CHUNK


@dataclass
class Warmed:
    """A store whose files nobody has read since it wrote them, and a warmer in a memory that the test sets."""

    room: MemoryRoom = field(default_factory=lambda: MemoryRoom(1 << 40, 0.0))
    now_s: float = 0.0
    warm: bool = True

    def __post_init__(self) -> None:
        self.disk = MemoryDisk()
        settings = StoreSettings(reserve_bytes=0, warm=self.warm, warm_bytes_per_s=RATE)
        clock = SetClock(now=lambda: self.now_s)
        self.store = ChunkStore(
            Path("/unused"), settings=settings, on_event=lambda event: None, disk=self.disk, clock=clock,
            background=False,
        )  # fmt: skip
        self.warmer = Warmer(self.store._context, self.store._models.published, lambda: self.room)

    def deliver(self, model: Model, want: Want = EVERYTHING) -> None:
        self.store.open(model.manifest, want)
        for chunk, body in enumerate(model.chunks):
            self.store.put(model.manifest.id, chunk, body, SOURCE, 0.0)
        self.store.finish(model.manifest.id)
        self.drop(model)

    def drop(self, model: Model) -> None:
        for path in self.paths(model):
            self.disk.file(path).cached.clear()

    def paths(self, model: Model) -> list[str]:
        place = self.store.place(model.manifest.id)
        return [f"{place}/{path}" for path in model.files if self.disk.kind(f"{place}/{path}") is not None]

    def cached(self, model: Model) -> int:
        return sum(len(self.disk.file(path).cached) for path in self.paths(model))

    def run(self, seconds: float = 60.0) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            wait_s = self.warmer.step()
            self.now_s = end_s if wait_s is None else self.now_s + wait_s


def blocks(model: Model) -> int:
    return sum(-(-len(body) // BLOCK) for body in model.files.values())


def test_a_current_version_is_read_at_the_set_pace_and_told() -> None:
    warmed = Warmed()
    warmed.deliver(ONE)
    warmed.run(0.05)
    assert 0 < warmed.cached(ONE) < blocks(ONE)
    assert [row.state for row in warmed.warmer.rows] == [WarmState.READING]
    warmed.run()
    total = ONE.manifest.bytes_total
    assert warmed.cached(ONE) == blocks(ONE)
    assert warmed.warmer.rows == (Warmth("m@1", total, total, WarmState.READ),)


def test_reading_takes_as_long_as_the_pace_says() -> None:
    warmed = Warmed()
    warmed.deliver(ONE)
    waits_s = [warmed.warmer.step() or 0.0 for _ in ONE.chunks]
    assert sum(waits_s) == pytest.approx(ONE.manifest.bytes_total / RATE)


def test_what_is_cached_already_is_not_read_and_costs_no_time() -> None:
    warmed = Warmed()
    warmed.deliver(ONE)
    for path in warmed.paths(ONE):
        size = len(warmed.disk.file(path).data)
        warmed.disk.file(path).cached.update(range(-(-size // BLOCK)))
    assert [warmed.warmer.step() for _ in ONE.chunks] == [0.0] * len(ONE.chunks)


@pytest.mark.parametrize("dropped", [0, 1, 2])
def test_a_range_that_begins_within_a_page_is_read_where_one_page_is_missing(dropped: int) -> None:
    warmed = Warmed()
    warmed.deliver(ONE)
    path = max(warmed.paths(ONE), key=lambda one: len(warmed.disk.file(one).data))
    cached = warmed.disk.file(path).cached
    cached.update({0, 1, 2} - {dropped})
    warmed.warmer._read_range(path, 100, 2 * BLOCK, _Reading(iter(())))
    assert cached == {0, 1, 2}


def test_only_the_current_version_is_read_and_a_newer_one_when_it_is() -> None:
    warmed = Warmed()
    warmed.deliver(ONE)
    warmed.run()
    warmed.deliver(TWO)
    warmed.drop(ONE)
    warmed.run()
    assert [row.label for row in warmed.warmer.rows] == ["m@2"]
    assert (warmed.cached(ONE), warmed.cached(TWO)) == (0, blocks(TWO))


def test_the_row_of_a_removed_version_goes_with_it_and_others_stay() -> None:
    warmed = Warmed()
    warmed.deliver(ONE)
    warmed.deliver(TWO)
    for version in (1, 2):
        warmed.warmer.order("m", version)
    warmed.run()
    assert {row.label for row in warmed.warmer.rows} == {"m@1", "m@2"}
    warmed.store.remove("m", 1)
    assert [row.label for row in warmed.warmer.rows] == ["m@2"], "before the next look"


def test_what_is_dropped_soon_after_the_end_is_read_again() -> None:
    """Pages of a version that has just arrived are found in memory, and are on their way out."""
    warmed = Warmed()
    warmed.deliver(ONE)
    warmed.run(10.0)
    path = max(warmed.paths(ONE), key=lambda one: len(warmed.disk.file(one).cached))
    warmed.disk.file(path).cached.discard(0)
    warmed.run(6.0)
    total = ONE.manifest.bytes_total
    assert warmed.warmer.rows == (Warmth("m@1", total, total, WarmState.READ),)


def test_a_version_of_which_nothing_stays_in_memory_is_looked_at_now_and_then() -> None:
    """Else its chunks would be looked at again without a pause."""
    warmed = Warmed()
    warmed.deliver(ONE)
    steps, end_s = 0, 60.0
    while warmed.now_s < end_s:
        warmed.drop(ONE)
        warmed.now_s += warmed.warmer.step() or 0.0
        steps += 1
    passes_max = 1 + int(30.0 / (ONE.manifest.bytes_total / RATE))
    assert steps <= passes_max * (len(ONE.chunks) + 2) + 30


def test_what_the_kernel_drops_later_is_told_and_not_read_again() -> None:
    warmed = Warmed()
    warmed.deliver(ONE)
    warmed.run()
    warmed.drop(ONE)
    warmed.run()
    assert warmed.warmer.rows == (Warmth("m@1", ONE.manifest.bytes_total, 0, WarmState.READ),)


@pytest.mark.parametrize(
    ("room", "state"),
    [(MemoryRoom(0, 0.0), WarmState.NO_ROOM), (MemoryRoom(1 << 40, 5.0), WarmState.PRESSURE)],
)
def test_nothing_is_read_while_memory_is_short_and_then_it_is(room: MemoryRoom, state: WarmState) -> None:
    warmed = Warmed(room=room)
    warmed.deliver(ONE)
    warmed.run()
    assert warmed.cached(ONE) == 0 and [row.state for row in warmed.warmer.rows] == [state]
    warmed.room = MemoryRoom(1 << 40, 0.0)
    warmed.run()
    assert warmed.cached(ONE) == blocks(ONE)


def test_reading_ends_when_memory_gets_short_meanwhile() -> None:
    warmed = Warmed()
    warmed.deliver(build({"f": bytes(range(256)) * (40 * CHUNK // 256)}))
    warmed.run(0.3)
    warmed.room = MemoryRoom(1 << 40, 5.0)
    warmed.now_s += 10.0
    read = warmed.disk.file("m/1/f").cached.copy()
    warmed.run()
    assert warmed.disk.file("m/1/f").cached == read != set()


def test_a_model_that_memory_does_not_hold_is_read_as_far_as_it_does() -> None:
    warmed = Warmed(room=MemoryRoom(4 * CHUNK, 0.0))
    warmed.deliver(ONE)
    warmed.run()
    assert 3 * CHUNK <= warmed.cached(ONE) * BLOCK <= 5 * CHUNK
    assert [row.state for row in warmed.warmer.rows] == [WarmState.NO_ROOM]


def test_where_the_kernel_does_not_tell_all_is_read_once() -> None:
    warmed = Warmed(room=MemoryRoom(1 << 40, 0.0))
    warmed.disk.tells_cached = False
    warmed.deliver(ONE)
    warmed.run()
    assert warmed.cached(ONE) == blocks(ONE)
    assert warmed.warmer.rows == (Warmth("m@1", ONE.manifest.bytes_total, None, WarmState.READ),)


def test_of_a_part_nothing_is_read_that_is_not_there() -> None:
    warmed = Warmed()
    warmed.deliver(ONE, parse_want(["files:two.bin"]))
    warmed.run()
    row = warmed.warmer.rows[0]
    assert row.state is WarmState.READ and row.bytes_cached == row.bytes_total < ONE.manifest.bytes_total


def test_a_file_that_cannot_be_read_does_not_end_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    warmed = Warmed()
    warmed.deliver(ONE)
    read_some = warmed.disk.read_some

    def fail(descriptor: int, into: memoryview, offset: int, *, passing: bool = False) -> int:
        if offset >= 2 * CHUNK:
            raise OSError(errno.EIO, "bad sector")
        return read_some(descriptor, into, offset, passing=passing)

    monkeypatch.setattr(warmed.disk, "read_some", fail)
    warmed.run()
    assert [row.state for row in warmed.warmer.rows] == [WarmState.READ]
    assert 0 < warmed.cached(ONE) < blocks(ONE)


def test_a_disk_that_tells_nothing_is_asked_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    warmed = Warmed()
    warmed.deliver(ONE)

    def refuse(path: str) -> list[str]:
        raise OSError(errno.EIO, path)

    with monkeypatch.context() as patched:
        patched.setattr(warmed.disk, "names", refuse)
        assert 0 < (warmed.warmer.step() or 0.0) <= 5.0
    warmed.run()
    assert warmed.cached(ONE) == blocks(ONE)


def test_by_order_alone_a_version_is_read_and_told_for_a_while() -> None:
    warmed = Warmed(warm=False)
    for model in (ONE, TWO):
        warmed.deliver(model)
    assert warmed.warmer.step() is None
    ordered = warmed.warmer.order("m", 1)
    assert (ordered.label, ordered.bytes_total) == ("m@1", ONE.manifest.bytes_total) and warmed.warmer.woken.is_set()
    warmed.run()
    assert (warmed.cached(ONE), warmed.cached(TWO)) == (blocks(ONE), 0)
    assert [(row.label, row.state) for row in warmed.warmer.rows] == [("m@1", WarmState.READ)]
    warmed.run(700.0)
    assert warmed.warmer.rows == () and warmed.warmer.step() is None


def test_an_order_comes_before_current_versions_and_reads_again_what_was_dropped() -> None:
    warmed = Warmed()
    warmed.deliver(ONE)
    warmed.deliver(TWO)
    warmed.run()
    warmed.drop(TWO)
    warmed.warmer.order("m", 1)
    warmed.warmer.order("m", None)
    warmed.run(0.05)
    assert 0 < warmed.cached(ONE) < blocks(ONE) and warmed.cached(TWO) == 0
    warmed.run()
    assert (warmed.cached(ONE), warmed.cached(TWO)) == (blocks(ONE), blocks(TWO))


def test_an_order_that_finds_no_room_is_given_up_and_a_removed_version_is_no_reading() -> None:
    warmed = Warmed(room=MemoryRoom(0, 0.0), warm=False)
    warmed.deliver(ONE)
    warmed.warmer.order("m", None)
    warmed.run(3000.0)
    assert [row.state for row in warmed.warmer.rows] == [WarmState.NO_ROOM]
    warmed.run(700.0)
    assert warmed.warmer.rows == ()
    warmed.warmer.order("m", 1)
    warmed.store.remove("m", 1)
    warmed.run()
    assert warmed.warmer.rows == () and warmed.warmer.step() is None


@pytest.mark.parametrize(("name", "version"), [("m", 2), ("other", None), ("other", 1)])
def test_what_is_not_complete_here_cannot_be_ordered(name: str, version: int | None) -> None:
    warmed = Warmed(warm=False)
    warmed.deliver(ONE)
    with pytest.raises(NotFoundError, match="is not complete on this host"):
        warmed.warmer.order(name, version)
    assert warmed.warmer.step() is None


def test_the_real_store_reads_in_a_thread_that_starts_with_its_first_work(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir(mode=0o700)
    for is_warm in (False, True):
        settings = StoreSettings(reserve_bytes=0, warm=is_warm)
        store = ChunkStore(tmp_path / "models", settings=settings, on_event=lambda event: None)
        try:
            names = [thread.name for thread in threading.enumerate()]
            assert ("gossipd-warm" in names) is is_warm
            with pytest.raises(NotFoundError):
                store.warm("m", None)
            for chunk, body in enumerate(ONE.chunks if not is_warm else ()):
                if chunk == 0:
                    store.open(ONE.manifest)
                store.put(ONE.manifest.id, chunk, body, SOURCE, 0.0)
            if is_warm:
                store.open(ONE.manifest)
            else:
                store.finish(ONE.manifest.id)
            assert store.warm("m", None).label == "m@1"
            assert "gossipd-warm" in [thread.name for thread in threading.enumerate()]
        finally:
            store.close()
        assert "gossipd-warm" not in [thread.name for thread in threading.enumerate()]
