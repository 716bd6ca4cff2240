"""A store that was moved away, or that another directory hides, is told apart from one that is where it was."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from gossipd.store.disk.root_place import RootPlace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


def moved(root: Path) -> None:
    root.rename(root.with_name("away"))


def replaced(root: Path) -> None:
    moved(root)
    root.mkdir()


def linked(root: Path) -> None:
    replaced(root)
    root.rmdir()
    root.symlink_to(root.with_name("away"))


@pytest.mark.parametrize(("act", "words"), [(moved, "cannot be reached"), (replaced, "is another directory")])
def test_a_directory_that_was_moved_or_replaced_is_told(root: Path, act: Callable[[Path], None], words: str) -> None:
    place = RootPlace.of(root)
    act(root)
    assert words in place.why_elsewhere()


@pytest.mark.parametrize("act", [lambda root: (root / "new").mkdir(), linked])
def test_a_directory_that_is_still_found_there_is_in_its_place(root: Path, act: Callable[[Path], None]) -> None:
    place = RootPlace.of(root)
    act(root)
    assert place.why_elsewhere() == ""


def test_a_disk_that_fails_is_not_said_to_have_moved(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = RootPlace.of(root)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr("gossipd.store.disk.root_place.os.stat", fail)
        why = place.why_elsewhere()
    assert why == ""
