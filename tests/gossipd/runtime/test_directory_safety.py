"""Which directories other users could turn elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gossipd.runtime.directory_safety import open_directory, why_exchangeable


@pytest.mark.parametrize(("mode", "is_safe"), [(0o750, True), (0o755, True), (0o770, False), (0o757, False)])
def test_only_a_directory_that_we_alone_may_write_to_is_opened(tmp_path: Path, mode: int, is_safe: bool) -> None:
    tmp_path.chmod(mode)
    if is_safe:
        os.close(open_directory(tmp_path))
    else:
        with pytest.raises(PermissionError, match=f"mode {mode:o}"):
            open_directory(tmp_path)


def test_no_link_to_a_directory_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o750)
    (tmp_path / "link").symlink_to("real")
    within = open_directory(tmp_path)
    try:
        os.close(open_directory("real", within=within))
        with pytest.raises(NotADirectoryError):
            open_directory("link", within=within)
    finally:
        os.close(within)


@pytest.mark.parametrize(
    ("above", "holder", "is_safe"),
    [
        (0o755, 0o755, True),
        (0o775, 0o755, True),  # a group of one's own has such directories
        (0o755, 0o775, False),
        (0o755, 0o1775, True),
        (0o777, 0o755, False),
        (0o1777, 0o755, True),
    ],
)
def test_a_path_is_as_safe_as_the_directories_above_it(tmp_path: Path, above: int, holder: int, is_safe: bool) -> None:
    directory = tmp_path / "above" / "holder"
    directory.mkdir(parents=True)
    directory.chmod(holder)
    directory.parent.chmod(above)
    assert (why_exchangeable(directory / "file") is None) == is_safe
    (tmp_path / "link").symlink_to(directory)
    assert (why_exchangeable(tmp_path / "link" / "file") is None) == is_safe
    assert (why_exchangeable(directory / "absent" / "deeper" / "file") is None) == (is_safe or above == 0o755)


def test_a_question_looks_at_each_directory_once_however_often_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inbox asks every few seconds, for ever."""
    holder = tmp_path / "one" / "two"
    holder.mkdir(parents=True)
    looked: list[str] = []
    plain = os.stat

    def counted(path: str, *, follow_symlinks: bool = True) -> os.stat_result:
        looked.append(str(path))
        return plain(path, follow_symlinks=follow_symlinks)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", counted)
        assert why_exchangeable(holder / "file") is None
    assert sorted(looked) == sorted([str(holder), *map(str, holder.parents)])


def test_a_way_that_leads_nowhere_is_no_reason(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").touch(0o666)
    (tmp_path / "file").chmod(0o666)
    assert why_exchangeable(tmp_path / "loop" / "file") is None
    assert why_exchangeable(tmp_path / "file" / "file") is None
