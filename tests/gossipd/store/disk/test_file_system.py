"""Which file systems are refused, asked of real ones where the machine has them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gossipd.store.disk.file_system import tells_changes, unfit, why_unfit
from gossipd.store.disk.syscalls import file_system_magic

MEMORY = Path("/dev/shm")  # tmpfs wherever there is POSIX shared memory
EXT4, OVERLAY, XFS, BTRFS, ZFS = 0xEF53, 0x794C7630, 0x58465342, 0x9123683E, 0x2FC12FC1


@pytest.mark.parametrize(
    ("magic", "name"),
    [(0x01021994, "tmpfs"), (0x6969, "NFS"), (0xFE534D42, "SMB2"), (0x01021997, "9p"), (0x4D44, "FAT")],
)
def test_what_forgets_or_is_elsewhere_is_refused_by_name_with_the_reason(magic: int, name: str) -> None:
    words = unfit(magic)
    assert words is not None
    assert words.startswith(f"lies on {name}, which ")


@pytest.mark.parametrize("magic", [EXT4, OVERLAY, XFS, BTRFS, ZFS, 0x12345678])
def test_local_disks_and_what_nobody_has_heard_of_are_taken(magic: int) -> None:
    assert unfit(magic) is None


def test_a_real_directory_in_memory_is_found_also_before_it_is_made() -> None:
    for path in (MEMORY, MEMORY / "no" / "such" / "directory"):
        words = why_unfit(path)
        assert words is not None
        assert "tmpfs" in words


def test_the_kernel_tells_the_changes_of_a_file_system_that_is_of_this_host_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tells_changes(MEMORY / "no" / "such" / "directory")
    for magic, is_told in ((EXT4, True), (0x6969, False), (0x12345678, False)):
        monkeypatch.setattr("gossipd.store.disk.file_system.file_system_magic", lambda _, answer=magic: answer)
        assert tells_changes(tmp_path) is is_told


def test_the_kernel_s_number_is_the_one_that_stat_tells(tmp_path: Path) -> None:
    told = subprocess.run(["stat", "-f", "-c", "%t", tmp_path], capture_output=True, text=True, check=True).stdout
    descriptor = os.open(tmp_path, os.O_PATH)
    try:
        assert file_system_magic(descriptor) == int(told, 16)
    finally:
        os.close(descriptor)


def test_a_directory_that_cannot_be_asked_is_the_caller_s_to_name(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert why_unfit(loop) == why_unfit(tmp_path), "a link to nowhere is not there: its directory is asked"
