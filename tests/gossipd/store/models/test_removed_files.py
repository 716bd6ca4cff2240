"""Files that somebody removes from a published model are told at the next look, whichever way they went."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gossipd.core.events import ChunkLost
from gossipd.core.ids import SOURCE
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.disk.condition import StoreHealth
from gossipd.store.disk.disk import Space
from gossipd.store.disk.posix_disk import PosixDisk
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


def count_directories(tree: Path) -> int:
    return 1 + sum(path.is_dir() for path in tree.rglob("*"))


def rename_file(tree: Path) -> None:
    first = next(path for path in sorted(tree.rglob("*")) if path.is_file() and path.stat().st_size)
    first.rename(first.with_name("renamed"))


def remove_what_is_in_it(tree: Path) -> None:
    for path in tree.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def linked_elsewhere(tree: Path) -> None:
    tree.rename(tree.parent.parent / "moved")
    tree.symlink_to(tree.parent.parent / "moved")


@pytest.mark.parametrize(
    "act",
    [shutil.rmtree, remove_what_is_in_it, rename_file, linked_elsewhere, lambda tree: tree.rename(tree.with_name("x"))],
)
def test_a_model_that_was_removed_or_moved_is_told_once(host: Host, act: Callable[[Path], object]) -> None:
    assert host.store.look() == []
    act(host.tree())
    assert host.store.look() == [ONE.manifest.label]
    assert host.store.look() == [] and not host.lost(), "nothing is made again under a reader's eyes"
    assert host.store.condition().health is StoreHealth.OK
    assert host.store.held(TWO.manifest.id).is_full


def test_verifying_brings_removed_files_back_and_a_later_loss_is_told_again(host: Host) -> None:
    assert host.store.look() == []
    for _ in range(2):
        shutil.rmtree(host.tree())
        assert host.store.look() == [ONE.manifest.label]
        list(host.store.verify(ONE.manifest.name, 1))
        host.fill(ONE)
        assert {path: (host.tree() / path).read_bytes() for path in ONE.files} == ONE.files
        assert host.store.look() == []


def test_why_users_do_not_find_a_model_ends_when_its_files_are_back(host: Host) -> None:
    assert host.store.look() == [] and host.store.why_unseen(ONE.manifest.id) == ""
    tree = host.tree()
    tree.rename(tree.with_name("x"))
    assert host.store.look() == [ONE.manifest.label]
    assert f"gossipd verify {ONE.manifest.label}" in host.store.why_unseen(ONE.manifest.id)
    tree.with_name("x").rename(tree)
    assert host.store.look() == [] and host.store.why_unseen(ONE.manifest.id) == ""
    rename_file(tree)
    host.store.look()
    assert host.store.why_unseen(ONE.manifest.id)
    next(tree.rglob("renamed")).unlink()
    list(host.store.verify(ONE.manifest.name, 1))
    host.fill(ONE)
    assert host.store.why_unseen(ONE.manifest.id) == "", "before the next look"
    assert host.store.why_unseen(TWO.manifest.id) == ""


def test_a_store_that_was_moved_is_why_users_find_none_of_its_models(host: Host) -> None:
    host.root.rename(host.root.with_name("away"))
    host.store.look()
    assert str(host.root) in host.store.why_unseen(ONE.manifest.id)
    host.root.with_name("away").rename(host.root)
    host.store.look()
    assert host.store.why_unseen(ONE.manifest.id) == host.store.why_elsewhere() == ""


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EIO, errno.EACCES, errno.ENOMEM])
def test_a_host_that_cannot_look_accuses_nobody(host: Host, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert host.store.look() == []
    (host.tree() / "a job's lock").touch()

    def refuse(*_: object) -> dict[int, int]:
        raise OSError(number, "refused")

    with monkeypatch.context() as refusing:
        refusing.setattr(removed_files, "wrong_sizes", refuse)
        assert host.store.look() == []
        assert host.store.why_unseen(ONE.manifest.id) == ""
    rename_file(host.tree())
    assert host.store.look() == [ONE.manifest.label], "the next look sees"
    with monkeypatch.context() as refusing:
        refusing.setattr(removed_files, "wrong_sizes", refuse)
        assert host.store.look() == []
    assert host.store.look() == [], "it was told"


def test_files_of_others_beside_a_model_s_own_are_nothing(host: Host) -> None:
    assert host.store.look() == []
    (host.tree() / "cache.tmp").write_text("of a job")
    assert host.store.look() == []
    (host.tree() / "cache.tmp").unlink()
    assert host.store.look() == []


def test_a_version_that_was_removed_by_order_is_not_told(host: Host) -> None:
    assert host.store.look() == []
    host.store.remove(ONE.manifest.name, 1)
    assert host.store.look() == []


def test_what_is_lacking_before_the_first_look_is_told(host: Host) -> None:
    shutil.rmtree(host.tree(TWO))
    assert host.store.look() == [TWO.manifest.label]


def test_a_look_has_a_bound_and_the_next_goes_on(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removed_files, "DIRECTORIES_MAX", count_directories(host.tree()))
    for one in (ONE, TWO):
        shutil.rmtree(host.tree(one))
    first, second, third = (host.store.look() for _ in range(3))
    assert sorted(first + second) == [ONE.manifest.label, TWO.manifest.label]
    assert third == []


def test_a_model_of_more_directories_than_a_look_waits_for_so_many_looks(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.store.remove(TWO.manifest.name, 2)
    directories = count_directories(host.tree())
    assert directories > 1
    shutil.rmtree(host.tree())
    monkeypatch.setattr(removed_files, "DIRECTORIES_MAX", 1)
    assert [host.store.look() for _ in range(directories)] == [[]] * (directories - 1) + [[ONE.manifest.label]]


def test_a_glance_sees_a_tree_that_is_gone_and_the_next_look_tells_it(host: Host) -> None:
    assert host.store.look() == []
    shutil.rmtree(host.tree())
    host.store.glance()
    assert "removed or moved" in host.store.why_unseen(ONE.manifest.id) and host.store.lacks_files()
    assert host.store.look() == [ONE.manifest.label]
    assert host.store.look() == []


def test_a_glance_sees_that_files_are_back(host: Host, tmp_path: Path) -> None:
    host.tree().rename(tmp_path / "aside")
    assert host.store.look() == [ONE.manifest.label]
    (tmp_path / "aside").rename(host.tree())
    host.store.glance()
    assert host.store.why_unseen(ONE.manifest.id) == "" and not host.store.lacks_files()


def test_a_glance_sees_that_the_store_was_moved(host: Host, tmp_path: Path) -> None:
    host.root.rename(tmp_path / "elsewhere")
    host.store.glance()
    assert "Put it back" in host.store.why_elsewhere()
    (tmp_path / "elsewhere").rename(host.root)
    host.store.glance()
    assert host.store.why_elsewhere() == ""


def test_finishing_a_whole_model_waits_for_no_look_over_others(host: Host) -> None:
    with host.store._models.removed_files._looking:
        host.store.finish(ONE.manifest.id)
        host.store.glance()  # neither does a glance


def test_the_room_that_a_removed_model_leaves_is_told_at_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PosixDisk, "space", lambda disk: Space(7_000, 8_000))
    host.store.remove("m", 1)
    assert host.store.statistics().free_bytes == Space(7_000, 8_000).free_bytes
