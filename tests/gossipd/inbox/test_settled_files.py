"""Which names moved files get, and which of them are deleted when there are too many."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossipd.inbox import settled_files
from gossipd.inbox.settled_files import SettledFiles, free_name

SIZE = 10


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def names(path: Path) -> set[str]:
    return {one.name for one in path.iterdir()}


@pytest.mark.parametrize("taken", [0, 1, 2, 3, 7, 8, 9, 300])
def test_a_free_number_is_the_next_one(tmp_path: Path, folder: int, taken: int) -> None:
    for number in range(taken):
        (tmp_path / (f"m.{number}" if number else "m")).touch()
    assert free_name(folder, "m") == (f"m.{taken}" if taken else "m")


def test_among_thousands_of_numbers_few_are_tried(tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def is_taken(at: int, name: str) -> bool:
        tried.append(name)
        return name == "m" or int(name.removeprefix("m.")) <= 1_000_000

    monkeypatch.setattr(settled_files, "_is_taken", is_taken)
    assert free_name(folder, "m") == "m.1000001"
    assert len(tried) < 50


def drop(path: Path, settled: SettledFiles, folder: int, name: str, size: int = SIZE) -> int:
    """As the inbox does it; how many were deleted."""
    deleted = settled.make_room(folder, size)
    (path / name).write_bytes(b"x" * size)
    return deleted


def test_the_newest_files_stay_with_their_reasons(tmp_path: Path, folder: int) -> None:
    settled = SettledFiles(file_bytes_max=SIZE, files_max=20)
    most = 0
    for number in range(100):
        drop(tmp_path, settled, folder, f"{number:03}")
        (tmp_path / f"{number:03}.reason").write_text("E_ROLLBACK")
        most = max(most, len(names(tmp_path)) // 2)
    kept = sorted(one for one in names(tmp_path) if not one.endswith(".reason"))
    assert most == 20
    assert kept == [f"{number:03}" for number in range(100 - len(kept), 100)]
    assert names(tmp_path) == {*kept, *(f"{one}.reason" for one in kept)}


def test_files_are_bounded_by_their_bytes_as_well(tmp_path: Path, folder: int) -> None:
    settled = SettledFiles(file_bytes_max=SIZE, bytes_max=20 * SIZE)
    for number in range(100):
        drop(tmp_path, settled, folder, f"{number:03}")
        assert len(names(tmp_path)) <= 20
    assert "099" in names(tmp_path)


def test_what_earlier_versions_left_is_cut_at_the_first_drop(tmp_path: Path, folder: int) -> None:
    for number in range(300):
        (tmp_path / f"{number:03}").touch()
    assert drop(tmp_path, SettledFiles(file_bytes_max=SIZE, files_max=20), folder, "new") == 282


def test_a_start_deletes_nothing_while_all_may_stay(tmp_path: Path, folder: int) -> None:
    for number in range(19):
        (tmp_path / f"{number:03}").touch()
    settled = SettledFiles(file_bytes_max=SIZE, files_max=20)
    assert drop(tmp_path, settled, folder, "new") == 0
    assert drop(tmp_path, settled, folder, "newer") == 2, "and then a tenth goes"


def test_what_no_drop_leaves_and_what_is_no_manifest_stays(tmp_path: Path, folder: int) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "inner").touch()
    (tmp_path / "directory.reason").write_text("E_WATCH_TYPE")
    for name in (".hidden", "copy.part", "editor~"):
        (tmp_path / name).touch()
    (tmp_path / "weights").write_bytes(b"x" * (SIZE + 1))
    (tmp_path / "weights.reason").write_text("E_WATCH_SIZE")
    before = names(tmp_path)
    settled = SettledFiles(file_bytes_max=SIZE, files_max=10)
    for number in range(50):
        drop(tmp_path, settled, folder, f"{number:03}")
    assert before < names(tmp_path)
    assert len(names(tmp_path) - before) <= 10


def test_a_reason_whose_file_was_taken_away_goes_too(tmp_path: Path, folder: int) -> None:
    for number in range(50):
        (tmp_path / f"{number:03}.reason").write_text("E_WATCH")
        (tmp_path / f"{number:03}.reason.tmp").write_text("")
    drop(tmp_path, SettledFiles(file_bytes_max=SIZE, files_max=10), folder, "new")
    assert len(names(tmp_path)) == 2 * 9 + 1


def test_the_files_are_looked_at_once_in_many_drops(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    real = os.scandir

    def scandir(at: int) -> object:
        looks.append(at)
        return real(at)

    monkeypatch.setattr(os, "scandir", scandir)
    settled = SettledFiles(file_bytes_max=SIZE, files_max=100)
    for number in range(200):
        drop(tmp_path, settled, folder, f"{number:03}")
    assert len(looks) == 11


def test_files_that_cannot_be_deleted_hold_up_no_drop(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "unlink", refuse)
    settled = SettledFiles(file_bytes_max=SIZE, files_max=10)
    for number in range(30):
        drop(tmp_path, settled, folder, f"{number:03}")
    assert len(names(tmp_path)) == 30
