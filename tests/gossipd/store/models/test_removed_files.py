"""Files that somebody removes from a published model are missed at the next look, whichever way they went."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gossipd.core.events import ChunkLost
from gossipd.core.ids import SOURCE
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.models import removed_files
from gossipd.store.notices import StoreEvent
from gossipd.store.settings import StoreSettings
from tests.gossipd.store.small_models import Model, small

ONE, TWO = small(version=1, seed=1), small(version=2, seed=2)


class Host:
    """A store in a real directory, with two versions of one model."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.events: list[StoreEvent] = []
        root.mkdir()
        self.open_store()
        for one in (ONE, TWO):
            self.store.open(one.manifest)
            self.fill(one)

    def open_store(self) -> None:
        settings = StoreSettings(reserve_bytes=0)
        self.store = ChunkStore(self.root, settings=settings, on_event=self.events.append, background=False)

    def fill(self, model: Model) -> None:
        for chunk in set(range(len(model.chunks))) - set(self.store.held(model.manifest.id)):
            self.store.put(model.manifest.id, chunk, model.chunks[chunk], SOURCE, 0.0)
        self.store.finish(model.manifest.id)

    def tree(self, model: Model = ONE) -> Path:
        return self.root / model.manifest.name / str(model.manifest.version)

    def lost(self) -> set[int]:
        return {one.chunk for one in self.events if isinstance(one, ChunkLost)}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path / "store")
    yield made
    made.store.close()


def rename_file(tree: Path) -> None:
    first = next(path for path in sorted(tree.rglob("*")) if path.is_file() and path.stat().st_size)
    first.rename(first.with_name("renamed"))


def remove_what_is_in_it(tree: Path) -> None:
    for path in tree.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize(
    "act", [shutil.rmtree, remove_what_is_in_it, rename_file, lambda tree: tree.rename(tree.with_name("moved"))]
)
def test_a_model_that_was_removed_or_moved_is_missed(host: Host, act: Callable[[Path], object]) -> None:
    assert host.store.mend_removed() == []
    act(host.tree())
    assert host.store.mend_removed() == [ONE.manifest.label]
    assert host.lost()
    assert not host.lost() & set(host.store.held(ONE.manifest.id)), "what is lost counts as held no longer"
    assert host.store.held(TWO.manifest.id).is_full
    host.fill(ONE)
    assert {path: (host.tree() / path).read_bytes() for path in ONE.files} == ONE.files
    assert host.store.mend_removed() == [], "it is told once"


def test_the_links_of_a_name_come_back_with_its_versions(host: Host) -> None:
    name = host.tree().parent
    before = (name / "current").readlink()
    name.rename(host.root / "moved")
    assert len(host.store.mend_removed()) == 2
    assert (name / "current").readlink() == before


def test_files_of_others_beside_a_model_s_own_lose_nothing(host: Host) -> None:
    (host.tree() / "cache.tmp").write_text("of a job")
    assert host.store.mend_removed() == []
    (host.tree() / "cache.tmp").unlink()
    assert host.store.mend_removed() == []
    assert not host.lost()


def test_a_version_that_was_removed_by_order_is_not_made_again(host: Host) -> None:
    host.store.remove(ONE.manifest.name, 1)
    assert host.store.mend_removed() == []
    assert not host.tree().exists()


def test_what_is_opened_again_is_looked_at_too(host: Host) -> None:
    host.store.close()
    host.open_store()
    host.store.open(TWO.manifest)
    shutil.rmtree(host.tree(TWO))
    assert host.store.mend_removed() == [TWO.manifest.label]


def test_a_look_has_a_bound_and_the_next_goes_on(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removed_files, "DIRECTORIES_MAX", 1)
    for one in (ONE, TWO):
        shutil.rmtree(host.tree(one))
    first, second, third = (host.store.mend_removed() for _ in range(3))
    assert sorted(first + second) == [ONE.manifest.label, TWO.manifest.label]
    assert third == []
