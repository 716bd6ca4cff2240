"""What a moved directory loses: what the version has, unchanged, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gossipd.client.moving import Seen, delete_moved, seen_files


def saved(tmp_path: Path) -> tuple[Path, Path, Seen]:
    """A directory as it was before, and the version that was made of it."""
    directory, version = tmp_path / "step-1", tmp_path / "version"
    for place in (directory, version):
        for name in ("a.bin", "deep/b.bin"):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(name)
    return directory, version, seen_files(directory)


def left(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir())


def test_a_directory_of_which_all_is_in_the_version_is_gone(tmp_path: Path) -> None:
    directory, version, seen = saved(tmp_path)
    delete_moved(directory, seen, version)
    assert not directory.exists()
    assert left(version) == ["a.bin", "deep/b.bin"]


def test_what_was_written_meanwhile_or_is_not_in_the_version_stays(tmp_path: Path) -> None:
    directory, version, _ = saved(tmp_path)
    (directory / "excluded.tmp").write_text("x")
    seen = seen_files(directory)
    (directory / "a.bin").write_text("another step's")
    (directory / "deep" / "new").write_text("x")
    delete_moved(directory, seen, version)
    assert left(directory) == ["a.bin", "deep/new", "excluded.tmp"]


def test_a_file_that_was_exchanged_for_one_alike_stays(tmp_path: Path) -> None:
    directory, version, seen = saved(tmp_path)
    times = (directory / "a.bin").stat()
    (directory / "next").write_text("a.bin")
    os.utime(directory / "next", ns=(times.st_atime_ns, times.st_mtime_ns))
    (directory / "next").rename(directory / "a.bin")
    delete_moved(directory, seen, version)
    assert left(directory) == ["a.bin"]


def test_links_are_neither_followed_nor_deleted(tmp_path: Path) -> None:
    directory, version, _ = saved(tmp_path)
    (directory / "a.bin").rename(tmp_path / "elsewhere")
    (directory / "a.bin").symlink_to(tmp_path / "elsewhere")
    (directory / "more").symlink_to(version)
    delete_moved(directory, seen_files(directory), version)
    assert left(directory) == ["a.bin"] and (directory / "more").is_symlink()
    assert left(version) == ["a.bin", "deep/b.bin"] and (tmp_path / "elsewhere").exists()


def test_what_cannot_be_deleted_stays_and_the_rest_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, version, seen = saved(tmp_path)
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.name == "a.bin":
            raise PermissionError(path)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    delete_moved(directory, seen, version)
    assert left(directory) == ["a.bin"]


def test_one_file_that_was_moved_goes_and_what_is_beside_it_stays(tmp_path: Path) -> None:
    (tmp_path / "saved" / "empty").mkdir(parents=True)
    (tmp_path / "version").mkdir()
    for place in ("saved/a.gguf", "saved/b.gguf", "version/a.gguf", "version/b.gguf"):
        (tmp_path / place).write_bytes(b"w")
    source = tmp_path / "saved" / "a.gguf"
    delete_moved(source, seen_files(source), tmp_path / "version")
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == ["b.gguf", "empty"]
