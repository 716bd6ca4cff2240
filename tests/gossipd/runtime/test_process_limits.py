"""The limits of a process as the kernel tells them: its own, its user's, and those of each group above it."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from gossipd.runtime.process_limits import ThreadRoom, descriptors_max, thread_rooms

LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max processes             70                   100                  processes
Max open files            64                   4096                 files
"""


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def made(root: Path, *, user: int = 7, capabilities: int = 0, cgroup: str = "0::/a/b\n") -> Path:
    write(root, "proc/12/limits", LIMITS)
    write(root, "proc/12/status", f"Name:\tx\nUid:\t{user}\t7\t7\t7\nCapEff:\t{capabilities:016x}\nThreads:\t3\n")
    write(root, "proc/12/cgroup", cgroup)
    return root


def test_descriptors_are_those_of_the_process_that_is_asked(tmp_path: Path) -> None:
    assert descriptors_max(12, root=made(tmp_path)) == 64
    assert descriptors_max(13, root=tmp_path) is None
    write(tmp_path, "proc/12/limits", LIMITS.replace("64  ", "unlimited"))
    assert descriptors_max(12, root=tmp_path) is None
    assert descriptors_max() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@pytest.mark.parametrize(("cgroup", "place"), [("0::/a/b\n", ""), ("8:pids,cpu:/a/b\n1:cpu:/x\n", "pids")])
def test_every_group_above_limits_threads_too(tmp_path: Path, cgroup: str, place: str) -> None:
    groups = f"sys/fs/cgroup/{place}"
    write(tmp_path, f"{groups}/a/b/pids.max", "max\n")
    write(tmp_path, f"{groups}/a/b/pids.current", "3\n")
    write(tmp_path, f"{groups}/a/pids.max", "20\n")
    write(tmp_path, f"{groups}/a/pids.current", "9\n")
    [room] = thread_rooms(12, root=made(tmp_path, user=0, cgroup=cgroup))
    assert (room.limit, room.used) == (20, 9)
    assert str(tmp_path / groups / "a") in room.setting


@pytest.mark.parametrize(("user", "capabilities", "counts"), [(7, 0, True), (7, 1 << 24, False), (0, 0, False)])
def test_a_user_s_limit_counts_all_threads_where_it_binds(
    tmp_path: Path, user: int, capabilities: int, counts: bool
) -> None:
    write(tmp_path, "proc/sys/kernel/threads-max", "5000\n")
    write(tmp_path, "proc/loadavg", "0.1 0.2 0.3 2/300 99\n")
    rooms = thread_rooms(12, root=made(tmp_path, user=user, capabilities=capabilities))
    assert rooms[0] == ThreadRoom(5000, 300, "sysctl kernel.threads-max")
    assert [(room.limit, "ulimit -u" in room.setting) for room in rooms[1:]] == [(70, True)] * counts


def test_this_process_can_be_asked() -> None:
    assert all(0 < room.used <= room.limit for room in thread_rooms())
    assert thread_rooms(os.getpid()) != []
