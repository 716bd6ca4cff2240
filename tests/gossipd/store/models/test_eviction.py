"""One eviction, and what keeps a version from it, on a disk in memory and on a real one."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossipd.core.ids import SOURCE
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.models.eviction import GONE, HELD, OPEN, PINNED
from gossipd.store.notices import ModelEvicted, StoreEvent
from gossipd.store.settings import StoreSettings
from tests.gossipd.store.memory_disk import MemoryDisk
from tests.gossipd.store.small_models import Model, small
from tests.gossipd.store.test_removal import Opened

ONE, TWO, THREE = (small(version=version, seed=version) for version in (1, 2, 3))


def keeps(opened: Opened) -> dict[int, str]:
    return {use.version: use.kept for use in opened.store.uses()}


def test_uses_tell_when_others_last_read_and_which_is_current() -> None:
    opened = Opened()
    opened.deliver(ONE)
    opened.deliver(TWO)
    uses = {use.version: use for use in opened.store.uses()}
    name = ONE.manifest.files[0].path
    assert not uses[1].is_current and uses[2].is_current
    assert uses[1].byte_count == ONE.manifest.bytes_total
    opened.disk.last_reads[f"m/1/{name}"] = 8e12
    assert max(use.last_used_s for use in opened.store.uses() if use.version == 1) == 8e12


def test_what_nothing_keeps_is_announced_deleted_and_told() -> None:
    opened = Opened()
    opened.deliver(ONE)
    opened.deliver(TWO)
    assert opened.store.make_room(ONE.manifest.id, "watermark") == ""
    evicted = ModelEvicted(ONE.manifest.id, "m", 1, "watermark")
    assert opened.announced == [(evicted, [1, 2], False)]
    assert evicted in opened.events
    opened.check_gone()
    assert opened.store.make_room(ONE.manifest.id, "watermark") == GONE


def test_a_pinned_version_is_kept_from_the_mark_and_from_newer_versions() -> None:
    opened = Opened(keep_versions=1)
    opened.deliver(ONE)
    assert opened.store.pin("m@1")
    opened.deliver(TWO)
    assert opened.store.versions("m") == [1, 2]
    assert opened.store.make_room(ONE.manifest.id, "prune") == PINNED
    assert opened.store.pin("m") and opened.store.pins() == ("m@1", "m")
    assert keeps(opened) == {1: PINNED, 2: PINNED}
    opened.store.pin("m@1", is_undone=True)
    opened.deliver(THREE)
    assert opened.store.versions("m") == [3], "the pin of the name has moved with current"
    assert opened.announced[-1][0].cause == "keep_versions"


def test_a_held_and_an_open_version_are_kept() -> None:
    opened = Opened()
    opened.deliver(ONE)
    opened.disk.held.add("m/1")
    assert (keeps(opened), opened.store.make_room(ONE.manifest.id, "watermark")) == ({1: HELD}, HELD)
    opened.disk.held.clear()
    opened.disk.open_elsewhere.add(f"m/1/{ONE.manifest.files[-1].path}")
    assert (keeps(opened), opened.store.make_room(ONE.manifest.id, "watermark")) == ({1: OPEN}, OPEN)
    assert opened.announced == []


@pytest.fixture
def real(tmp_path: Path) -> Iterator[ChunkStore]:
    root = tmp_path / "models"
    root.mkdir(mode=0o700)
    events: list[StoreEvent] = []
    store = ChunkStore(root, settings=StoreSettings(reserve_bytes=0), on_event=events.append, background=False)
    deliver(store, ONE)
    yield store
    store.close()


def deliver(store: ChunkStore, model: Model) -> None:
    store.open(model.manifest)
    for chunk, body in enumerate(model.chunks):
        store.put(model.manifest.id, chunk, body, SOURCE, 0.0)
    store.finish(model.manifest.id)


def test_a_real_file_that_is_open_or_mapped_keeps_its_version(real: ChunkStore, tmp_path: Path) -> None:
    files = [tmp_path / "models" / "m" / "1" / file.path for file in ONE.manifest.files if file.size]
    for chunk in range(ONE.manifest.chunk_count):
        real.open_chunk(ONE.manifest.id, chunk).close()  # our own idle descriptors keep nothing
    assert [use.kept for use in real.uses()] == [""]
    descriptor = os.open(files[-1], os.O_RDONLY)
    mapped = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
    assert real.make_room(ONE.manifest.id, "watermark") == OPEN
    os.close(descriptor)
    assert real.make_room(ONE.manifest.id, "watermark") == OPEN, "mapped"
    mapped.close()
    held = os.open(tmp_path / "models" / "m" / "1", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    assert [use.kept for use in real.uses()] == [HELD]
    os.close(held)
    assert real.make_room(ONE.manifest.id, "watermark") == ""
    assert not files[0].exists()


def test_what_the_store_reads_itself_is_no_use_of_the_model(real: ChunkStore, tmp_path: Path) -> None:
    path = tmp_path / "models" / "m" / "1" / ONE.manifest.files[0].path
    os.utime(path, (1000.0, 2000.0))  # read before it was written: relatime tells the next read
    for _ in real.verify("m", 1):
        pass
    assert path.stat().st_atime == 1000.0


def test_memory_disk_and_real_disk_agree_about_one_opener() -> None:
    disk = MemoryDisk()
    descriptor = disk.open("x", write=True, create=True)
    assert not disk.is_open_elsewhere(descriptor)
