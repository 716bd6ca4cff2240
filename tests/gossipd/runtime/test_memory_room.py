"""What the kernel tells of memory, of this host and of written trees of /proc and /sys."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossipd.runtime.memory_room import MemoryRoom, memory_room

MIB = 1 << 20
GROUP = "sys/fs/cgroup/system.slice/gossipd.service"
PRESSURE = "some avg10={} avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def host(root: Path) -> Path:
    meminfo = "MemTotal:  4194304 kB\nMemAvailable:  1048576 kB\nHugePages_Total: 0\n"
    return write(root, {"proc/meminfo": meminfo, "proc/self/cgroup": "0::/system.slice/gossipd.service\n"})


def group(root: Path, *, high: str = "max", most: str = "max", current: int = 0, inactive: int = 0) -> Path:
    files = {"memory.high": f"{high}\n", "memory.max": f"{most}\n", "memory.current": f"{current}\n"}
    files["memory.stat"] = f"anon 4096\ninactive_file {inactive}\nactive_file {MIB}\n"
    return write(root, {f"{GROUP}/{name}": text for name, text in files.items()})


def test_this_host_has_memory_and_tells_how_much() -> None:
    room = memory_room()
    assert room.available_bytes > 0 and 0 <= room.waits_percent <= 100


def test_a_host_without_groups_and_pressure_has_what_is_available(tmp_path: Path) -> None:
    assert memory_room(host(tmp_path)) == MemoryRoom(1024 * MIB, 0.0)


@pytest.mark.parametrize(("high", "most"), [("max", str(100 * MIB)), (str(100 * MIB), str(200 * MIB))])
def test_the_tighter_limit_of_a_group_counts_and_its_cache_is_room(tmp_path: Path, high: str, most: str) -> None:
    group(host(tmp_path), high=high, most=most, current=60 * MIB, inactive=20 * MIB)
    assert memory_room(tmp_path).available_bytes == 61 * MIB


def test_the_limit_of_a_group_above_counts_too(tmp_path: Path) -> None:
    group(host(tmp_path), most=str(100 * MIB))
    above = {"memory.max": str(9 * MIB), "memory.high": "max", "memory.current": str(8 * MIB)}
    above["memory.stat"] = "inactive_file 0\nactive_file 0\n"
    write(tmp_path, {f"sys/fs/cgroup/system.slice/{name}": text for name, text in above.items()})
    assert memory_room(tmp_path).available_bytes == MIB


def test_a_group_beyond_its_limit_has_no_room(tmp_path: Path) -> None:
    group(host(tmp_path), high=str(MIB), current=60 * MIB)
    assert memory_room(tmp_path).available_bytes == 0


@pytest.mark.parametrize("name", ["proc/pressure/memory", f"{GROUP}/memory.pressure"])
def test_waiting_tasks_of_the_host_or_of_the_group_are_told(tmp_path: Path, name: str) -> None:
    write(host(tmp_path), {name: PRESSURE.format("12.50")})
    assert memory_room(tmp_path).waits_percent == 12.5


def test_what_is_no_pressure_is_none(tmp_path: Path) -> None:
    write(host(tmp_path), {"proc/pressure/memory": "some avg10=much\n", f"{GROUP}/memory.max": "lots\n"})
    assert memory_room(tmp_path) == MemoryRoom(1024 * MIB, 0.0)
