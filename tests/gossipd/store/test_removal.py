"""A model is removed, cancelled or the store closed while something else is under way with it.

Each test does the second inside a call of the first, at the moment where the two would meet. What must hold: what
was deleted stays deleted, nothing is left without books, and nobody says that the disk failed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread
from types import TracebackType

import pytest

from gossipd.core.errors import NotFoundError
from gossipd.core.events import ChunkLost
from gossipd.core.ids import SOURCE
from gossipd.manifest.annotations import Retention
from gossipd.runtime.ports import NotHeldError
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.disk.condition import StoreHealth
from gossipd.store.errors import StoreClosingError, VersionHeldError
from gossipd.store.models import layout
from gossipd.store.models.replica import ModelReplica
from gossipd.store.notices import ModelEvicted, StoreEvent
from gossipd.store.settings import MIB, StoreSettings
from tests.gossipd.store.memory_disk import MemoryDisk
from tests.gossipd.store.set_clock import SetClock
from tests.gossipd.store.small_models import CHUNK, Model, build, small
from tests.gossipd.store.waiting import hear_of_waits

WAIT_S = 120.0  # only reached when the test fails
ONE = small(version=1, seed=1)
ID = ONE.manifest.id
TREE = layout.incoming(ID)


class Opened:
    """A store on a disk in memory, with the events it has told."""

    def __init__(self, disk: MemoryDisk | None = None, *, keep_versions: int = 2) -> None:
        self.disk = disk or MemoryDisk()
        self.events: list[StoreEvent] = []
        self.announced: list[tuple[ModelEvicted, list[int], bool]] = []
        self.store = ChunkStore(
            Path("unused"),
            settings=StoreSettings(reserve_bytes=0, keep_versions=keep_versions),
            on_event=self.events.append,
            disk=self.disk,
            clock=SetClock(),
            background=False,
            before_evict=self.before_evict,
        )

    def before_evict(self, evicted: ModelEvicted) -> None:
        """What was complete when an eviction was announced, and whether it had been told already."""
        self.announced.append((evicted, self.store.versions(evicted.name), evicted in self.events))

    def fill(self, model: Model) -> None:
        held = self.store.open(model.manifest)
        for chunk in range(len(model.chunks)):
            if chunk not in held:
                self.store.put(model.manifest.id, chunk, model.chunks[chunk], SOURCE, 0.0)

    def deliver(self, model: Model) -> None:
        self.fill(model)
        self.store.finish(model.manifest.id)

    def replica(self, model: Model = ONE) -> ModelReplica:
        return self.store._models.get(model.manifest.id)

    def check_gone(self) -> None:
        """Nothing of version 1 is on the disk, and nothing was said about it or the disk."""
        assert self.disk.kind("m/1") is None
        assert self.disk.names(layout.INCOMING) == []
        assert self.disk.kind(layout.state(ID)) is None
        assert 1 not in self.store.versions("m")
        assert not [event for event in self.events if isinstance(event, ChunkLost)]
        assert self.store.condition().health is StoreHealth.OK


class _Turnstile:
    """A replica's lock ``committing`` that lets somebody else go first, just before it is taken for the n-th time."""

    def __init__(
        self, replica: ModelReplica, action: Callable[[], object], *, at: int = 1, after: bool = False
    ) -> None:
        """``after``: just after it was given back for the n-th time."""
        self._whole = replica.committing
        self._action = action
        self._left = at
        self._after = after
        replica.committing = self  # type: ignore[assignment]

    def __enter__(self) -> None:
        if not self._after:
            self._count()
        self._whole.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._whole.release()
        if self._after:
            self._count()

    def _count(self) -> None:
        self._left -= 1
        if not self._left:
            self._action()


def _before_opening(disk: MemoryDisk, begin: str, action: Callable[[], object]) -> None:
    """Do ``action`` once, just before a path that begins so is opened."""
    whole = disk.open
    left = [1]

    def open_after(path: str, *, write: bool = False, create: bool = False, mode: int = 0o644) -> int:
        if path.startswith(begin) and left:
            left.clear()
            action()
        return whole(path, write=write, create=create, mode=mode)

    disk.open = open_after  # type: ignore[method-assign]


# ---- what looks for rot --------------------------------------------------------------------------------


def test_a_version_that_is_removed_while_it_is_verified_does_not_come_back() -> None:
    opened = Opened()
    opened.deliver(ONE)
    checks = opened.store.verify("m", 1)
    assert next(checks).is_good
    opened.store.remove("m", 1)
    with pytest.raises(NotFoundError, match="m@1 was removed while it was verified"):
        next(checks)
    opened.check_gone()


def test_a_version_that_is_evicted_while_it_is_verified_does_not_come_back() -> None:
    opened = Opened(keep_versions=1)
    opened.deliver(ONE)
    checks = opened.store.verify("m", 1)
    assert next(checks).is_good
    opened.deliver(small(version=2, seed=2))
    with pytest.raises(NotFoundError):
        next(checks)
    opened.check_gone()


def test_a_complaint_that_meets_a_removal_says_nothing_about_the_chunk() -> None:
    opened = Opened()
    opened.deliver(ONE)
    _before_opening(opened.disk, "m/1/", lambda: opened.store.remove("m", 1))
    with pytest.raises(NotHeldError):
        opened.store.recheck(ID, 3)
    opened.check_gone()


def test_a_removal_before_the_claim_is_taken_back_leaves_nothing() -> None:
    opened = Opened()
    opened.deliver(ONE)
    opened.disk.file("m/1/two.bin").data[0] ^= 1
    _Turnstile(opened.replica(), lambda: opened.store.remove("m", 1))
    with pytest.raises(NotHeldError):
        opened.store.recheck(ID, 3)
    opened.check_gone()


def test_a_removal_before_the_files_are_made_again_leaves_nothing() -> None:
    opened = Opened()
    opened.deliver(ONE)
    opened.disk.remove_file("m/1/two.bin")
    _Turnstile(opened.replica(), lambda: opened.store.remove("m", 1), at=3)  # a second look, the drop, the files
    with pytest.raises(NotHeldError):
        opened.store.recheck(ID, 3)
    assert opened.disk.kind("m") is None
    assert opened.store.condition().health is StoreHealth.OK


def test_the_scrub_meets_a_removal_and_goes_on_with_the_others() -> None:
    opened = Opened()
    opened.deliver(ONE)
    opened.deliver(small(version=2, seed=2))
    _before_opening(opened.disk, "m/1/", lambda: opened.store.remove("m", 1))
    assert opened.store.scrubber.step(1) == 0
    opened.check_gone()
    assert opened.store.scrubber.step(1) == CHUNK


def test_a_chunk_that_is_looked_at_while_its_tree_moves_is_still_right() -> None:
    opened = Opened()
    opened.fill(ONE)
    _before_opening(opened.disk, TREE, lambda: opened.store.finish(ID))
    opened.store.commit()
    assert opened.store.recheck(ID, 3)
    assert opened.events[-1:] != [ChunkLost(ID, 3)]
    assert opened.store.versions("m") == [1]


# ---- publishing ------------------------------------------------------------------------------------------


def test_a_cancellation_that_comes_while_a_model_is_published_leaves_it_whole_and_removable() -> None:
    opened = Opened()
    opened.fill(ONE)
    _Turnstile(opened.replica(), lambda: opened.store.finish(ID))
    opened.store.abandon(ID)
    assert opened.store.current("m") == 1
    assert opened.store.held(ID).is_full
    opened.store.remove("m", 1)
    opened.check_gone()


def test_a_removal_that_comes_while_a_model_is_published_deletes_its_tree_too() -> None:
    opened = Opened()
    opened.fill(ONE)
    _Turnstile(opened.replica(), lambda: opened.store.finish(ID))
    opened.store.remove("m", 1)
    opened.check_gone()
    assert opened.store.current("m") is None
    opened.deliver(ONE)
    assert opened.store.versions("m") == [1], "its place is free"


@pytest.mark.parametrize("at", [1, 2], ids=["before its last window is durable", "before its tree moves"])
def test_a_model_that_is_given_up_before_it_is_published_leaves_nothing(at: int) -> None:
    opened = Opened()
    opened.fill(ONE)
    _Turnstile(opened.replica(), lambda: opened.store.abandon(ID), at=at)
    with pytest.raises(NotHeldError):
        opened.store.finish(ID)
    opened.check_gone()


def test_a_model_that_is_removed_as_soon_as_its_tree_has_moved_is_not_made_current() -> None:
    opened = Opened()
    opened.fill(ONE)
    _Turnstile(opened.replica(), lambda: opened.store.remove("m", 1), at=2, after=True)
    with pytest.raises(NotHeldError):
        opened.store.finish(ID)
    opened.check_gone()
    assert opened.store.current("m") is None
    assert opened.store.statistics().oldest_unchecked_age_s == 0, "the scrub does not wait for it"


def test_a_version_that_a_job_holds_is_evicted_only_after_the_hold_ends() -> None:
    opened = Opened(keep_versions=1)
    opened.deliver(small(version=1))
    opened.disk.held.add("m/1")
    opened.deliver(small(version=2, seed=2))
    assert opened.store.versions("m") == [1, 2]
    assert not opened.announced
    opened.disk.held.clear()
    opened.deliver(small(version=3, seed=3))
    assert opened.store.versions("m") == [3]


def test_a_signed_keep_goes_before_keep_versions_and_evictions_are_then_ordered() -> None:
    opened = Opened(keep_versions=1)
    steps = [build({"f": bytes([step]) * 9}, version=step, keep=Retention(last=2)) for step in (1, 2, 3)]
    for one in steps:
        opened.deliver(one)
    assert opened.store.versions("m") == [1, 2, 3]
    opened.store.evict_superseded(steps[0].manifest.id)
    assert (opened.store.versions("m"), opened.store.current("m")) == ([2, 3], 3)
    with pytest.raises(NotFoundError):
        opened.store.evict_superseded(steps[0].manifest.id)
    opened.deliver(small(version=4, seed=4))
    assert opened.store.versions("m") == [4], "the newest manifest says nothing of it"


def test_an_ordered_eviction_leaves_what_is_held_or_current() -> None:
    opened = Opened()
    steps = [build({"f": bytes([step]) * 9}, version=step, keep=Retention(last=1)) for step in (1, 2)]
    for one in steps:
        opened.deliver(one)
    opened.disk.held.add("m/1")
    with pytest.raises(VersionHeldError, match="a job holds m@1"):
        opened.store.evict_superseded(steps[0].manifest.id)
    opened.disk.held.clear()
    with pytest.raises(VersionHeldError, match="m@2 is the current version"):
        opened.store.evict_superseded(steps[1].manifest.id)
    opened.store.rollback("m")
    with pytest.raises(VersionHeldError, match="m@1 is the current version"):
        opened.store.evict_superseded(steps[0].manifest.id)
    assert opened.store.versions("m") == [1, 2]


def test_an_eviction_is_announced_while_the_whole_version_is_still_there_and_told_when_it_is_gone() -> None:
    opened = Opened(keep_versions=1)
    opened.deliver(ONE)
    opened.deliver(small(version=2, seed=2))
    evicted = ModelEvicted(ID, "m", 1)
    assert opened.announced == [(evicted, [1, 2], False)]
    assert opened.events[-1] == evicted
    opened.check_gone()


def test_a_start_frees_trees_without_books_that_nothing_was_written_to_and_leaves_others_alone() -> None:
    opened = Opened()
    opened.store.open(ONE.manifest)
    begun = small(name="begun", seed=2)
    opened.fill(begun)
    opened.store.close()
    for model in (ONE, begun):
        opened.disk.rename(layout.state(model.manifest.id), f"lost-{model.manifest.name}")
    opened.disk.make_directory(f"{layout.INCOMING}/notes")
    again = Opened(opened.disk.killed())
    assert set(again.disk.names(layout.INCOMING)) == {begun.manifest.id.hex(), "notes"}
    assert again.disk.names(layout.TRASH) == []
    assert again.store.open(begun.manifest).is_full, "what was verified is found again by hashing"


def test_a_start_leaves_the_tree_of_a_model_alone_whose_first_chunk_has_not_come() -> None:
    opened = Opened()
    opened.store.open(ONE.manifest)
    again = Opened(opened.disk.killed())
    assert again.disk.names(layout.INCOMING) == [ID.hex()]


# ---- closing -----------------------------------------------------------------------------------------------


def test_closing_does_not_wait_for_a_copy_that_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = bytes(range(256)) * (40 * CHUNK // 256)
    one, two = build({"f": body}), build({"f": body, "g": b"new"}, version=2)
    ticks = iter(range(1 << 30))
    settings = StoreSettings(reserve_bytes=0, window_s=0.01, window_bytes=MIB)
    events: list[StoreEvent] = []
    clock = SetClock(now=lambda: next(ticks) / 100)
    store = ChunkStore(tmp_path, settings=settings, on_event=events.append, clock=clock)
    store.open(one.manifest)
    for chunk in range(len(one.chunks)):
        store.put(one.manifest.id, chunk, one.chunks[chunk], SOURCE, 0.0)
    store.commit()
    for own in store._background_threads:
        own.stop()  # the first thing that closing does: nobody ends windows any more
    waits = hear_of_waits(monkeypatch)
    copier = Thread(target=store.open, args=(two.manifest,), daemon=True)
    copier.start()
    assert waits.wait(WAIT_S)
    closer = Thread(target=store.close, daemon=True)
    closer.start()
    for thread in (copier, closer):
        thread.join(WAIT_S)
        assert not thread.is_alive()
    again = ChunkStore(tmp_path, settings=settings, on_event=events.append, background=False)
    assert len(again.open(two.manifest)) >= MIB // CHUNK, "what had been copied is kept"
    assert again.statistics().models[two.manifest.id].rehashed_count == 0
    assert again.condition().health is StoreHealth.OK
    again.close()


def test_a_start_that_hashes_is_cut_short_by_closing_and_loses_nothing() -> None:
    opened = Opened()
    opened.fill(ONE)
    disk = opened.disk.killed()
    again = Opened(disk)
    whole = disk.read_some

    def read_then_close(descriptor: int, into: memoryview, offset: int, *, passing: bool = False) -> int:
        if len(into) >= CHUNK:  # of a file of the model, not of the journal
            disk.read_some = whole  # type: ignore[method-assign]
            again.store.close()
        return whole(descriptor, into, offset, passing=passing)

    disk.read_some = read_then_close  # type: ignore[method-assign]
    with pytest.raises(StoreClosingError):
        again.store.open(ONE.manifest)
    assert again.store.condition().health is StoreHealth.OK
    assert disk.open_count == 0
    third = Opened(disk.killed())
    assert third.store.open(ONE.manifest).is_full


def test_a_store_that_is_closed_opens_nothing() -> None:
    opened = Opened()
    opened.store.close()
    with pytest.raises(StoreClosingError):
        opened.store.open(ONE.manifest)
    assert opened.disk.open_count == 0


@pytest.mark.parametrize("delete", ["abandon", "remove"])
def test_a_store_that_is_being_closed_deletes_nothing(delete: str) -> None:
    opened = Opened()
    opened.store.open(ONE.manifest)
    opened.store.put(ID, 0, ONE.chunks[0], SOURCE, 0.0)
    opened.store.close()
    arguments = (ID,) if delete == "abandon" else ("m", 1)
    with pytest.raises(StoreClosingError):
        getattr(opened.store, delete)(*arguments)
    assert len(Opened(opened.disk).store.open(ONE.manifest)) == 1
