"""The files of a directory that becomes a host's copy: unchanged, whole, and its publisher's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gossipd.core.events import ChunkStored
from gossipd.publish.adoption import ANY_OWNER, AdoptableFiles, NotOwnerError, files_of
from gossipd.publish.errors import PublishError, TreeChangedError
from gossipd.publish.selection import EVERYTHING
from gossipd.store.chunk_store import ChunkStore
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
