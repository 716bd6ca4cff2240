"""The files of a directory that becomes a host's copy: unchanged, whole, and its publisher's own."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from gossipd.core.events import ChunkStored
from gossipd.publish.adoption import ANY_OWNER, AdoptableFiles, NotOwnerError, files_of
from gossipd.publish.errors import PublishError, TreeChangedError
from gossipd.publish.selection import EVERYTHING
from gossipd.runtime.ports import StoreWriteError
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.models import reuse
from gossipd.store.notices import StoreEvent
from gossipd.store.settings import StoreSettings
from tests.gossipd.store.small_models import Model, small


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """A model, and its files in ``saved``."""
    model = small()
    for path, body in model.files.items():
        (tmp_path / "saved" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "saved" / path).write_bytes(body)
    (tmp_path / "store").mkdir()
    return model


def opened_store(tmp_path: Path, events: list[StoreEvent]) -> ChunkStore:
    return ChunkStore(
        tmp_path / "store", settings=StoreSettings(reserve_bytes=0), on_event=events.append, background=False
    )


def test_a_directory_becomes_the_whole_copy_and_may_change_afterwards(tmp_path: Path, model: Model) -> None:
    events: list[StoreEvent] = []
    store = opened_store(tmp_path, events)
    files = AdoptableFiles(tmp_path / "saved", model.manifest, ANY_OWNER)
    assert store.adopt(model.manifest, files) is None
    assert len(store.held(model.manifest.id)) == len(model.chunks)
    assert sum(isinstance(event, ChunkStored) for event in events) == len(model.chunks)
    (tmp_path / "saved" / "two.bin").write_bytes(b"the trainer overwrites its files")
    store.finish(model.manifest.id)
    assert (tmp_path / "store" / "m" / "1" / "two.bin").read_bytes() == model.files["two.bin"]
    assert (tmp_path / "store" / "m" / "1" / "two.bin").stat().st_nlink == 1
    assert store.adopt(model.manifest, files) is None  # nothing is left to do
    store.close()


def test_bytes_that_the_manifest_does_not_name_are_never_held(tmp_path: Path, model: Model) -> None:
    store = opened_store(tmp_path, [])
    body = bytearray(model.files["two.bin"])
    body[30_000] ^= 1
    (tmp_path / "saved" / "two.bin").write_bytes(body)
    wrong = store.adopt(model.manifest, AdoptableFiles(tmp_path / "saved", model.manifest, ANY_OWNER))
    assert wrong is not None
    path = model.manifest.files[model.manifest.segments(wrong)[0].file_index].path
    assert path == "two.bin"
    assert wrong not in store.held(model.manifest.id)
    store.abandon(model.manifest.id)
    assert os.listdir(tmp_path / "store" / ".incoming") == []
    store.close()


def test_a_file_that_changes_while_it_is_copied_is_named(tmp_path: Path, model: Model) -> None:
    files = AdoptableFiles(tmp_path / "saved", model.manifest, ANY_OWNER)
    (tmp_path / "saved" / "config.json").write_bytes(bytes(700))
    with pytest.raises(TreeChangedError, match=r"config.json' changed"):
        files.check_still()
    store = opened_store(tmp_path, [])
    with pytest.raises(TreeChangedError, match=r"config.json' changed"):
        store.adopt(model.manifest, files)
    store.close()


def test_a_directory_that_lacks_a_shard_is_refused_by_its_name(tmp_path: Path, model: Model) -> None:
    (tmp_path / "saved" / "two.bin").unlink()
    with pytest.raises(PublishError, match=r"two.bin' is in the manifest and not in the directory") as caught:
        AdoptableFiles(tmp_path / "saved", model.manifest, ANY_OWNER)
    assert caught.value.code == "E_SOURCE_CHANGED"
    (tmp_path / "saved" / "two.bin").write_bytes(b"short")
    with pytest.raises(PublishError, match=r"two.bin' has 5 bytes, the manifest says"):
        AdoptableFiles(tmp_path / "saved", model.manifest, ANY_OWNER)


def test_a_file_of_another_user_is_not_published_for_this_one(tmp_path: Path, model: Model) -> None:
    mine = os.geteuid()
    assert files_of(tmp_path / "saved", EVERYTHING, mine)
    with pytest.raises(NotOwnerError, match="belongs to another user"):
        files_of(tmp_path / "saved", EVERYTHING, mine + 1)
    with pytest.raises(NotOwnerError):
        AdoptableFiles(tmp_path / "saved", model.manifest, mine + 1)


def test_a_large_directory_is_copied_by_several_threads_chunk_by_chunk(
    tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reuse, "COPY_THREAD_BYTES", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2})
    met, threads = threading.Barrier(3, timeout=60), dict[str, list[int]]()
    copy = reuse._copy_chunk

    def together(*args: Any, **named: Any) -> bool:
        copied = threads.setdefault(threading.current_thread().name, [])
        if not copied:
            met.wait()
        copied.append(args[4])
        return copy(*args, **named)

    monkeypatch.setattr(reuse, "_copy_chunk", together)
    store = opened_store(tmp_path, [])
    assert store.adopt(model.manifest, AdoptableFiles(tmp_path / "saved", model.manifest, ANY_OWNER)) is None
    assert len(threads) == 3
    assert sorted(chunk for copied in threads.values() for chunk in copied) == list(range(len(model.chunks)))
    assert len(store.held(model.manifest.id)) == len(model.chunks)
    store.close()


def test_of_several_threads_the_first_chunk_that_differs_is_told(
    tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reuse, "COPY_THREAD_BYTES", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2})
    for path, body in model.files.items():
        (tmp_path / "saved" / path).write_bytes(bytes(len(body)))
    for number in range(20):
        store = opened_store(tmp_path, [])
        files = AdoptableFiles(tmp_path / "saved", model.manifest, ANY_OWNER)
        assert store.adopt(model.manifest, files) == 0, number
        store.abandon(model.manifest.id)
        store.close()


def test_one_thread_s_failure_ends_the_others_and_is_raised(
    tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reuse, "COPY_THREAD_BYTES", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    copied = list[int]()

    def full(*args: Any, **_named: Any) -> bool:
        copied.append(args[4])
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(reuse, "_copy_chunk", full)
    store = opened_store(tmp_path, [])
    with pytest.raises(StoreWriteError):
        store.adopt(model.manifest, AdoptableFiles(tmp_path / "saved", model.manifest, ANY_OWNER))
    assert len(copied) <= 2 < len(model.chunks)
    store.close()
