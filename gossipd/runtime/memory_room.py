"""How much of this host's memory may hold files, and whether anybody waits for memory.

What lives here: reading what the kernel tells, of the host and of the control groups (v2) that this process is in,
because pages that it reads are charged to them. What does not: what is done with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

_GROUPS = "sys/fs/cgroup"


class MemoryRoom(Struct, frozen=True):
    """``available_bytes``: for cached files and all else, what is cached already included. ``waits_percent``: of the
    last ten seconds, the part in which some task waited for memory; 0 where the kernel does not tell."""

    available_bytes: int
    waits_percent: float


def memory_room(root: Path = Path("/")) -> MemoryRoom:
    """The room in memory as the kernel tells it now. ``root``: another place with ``proc`` and ``sys``. Raises OSError,
    ValueError: there is no readable ``proc/meminfo``."""
    available = _fields(root / "proc/meminfo", ":")["MemAvailable"] * 1024
    waits = _waits_percent(root / "proc/pressure/memory")
    for group in _own_groups(root):
        with suppress(OSError, ValueError, KeyError):  # no limit, or none that is told
            available = min(available, _room_in(group))
        waits = max(waits, _waits_percent(group / "memory.pressure"))
    return MemoryRoom(max(0, available), waits)


def _own_groups(root: Path) -> Iterator[Path]:
    """From the group of this process up to the root of the hierarchy."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        if line.startswith("0::"):
            place = Path(line.removeprefix("0::/"))
            for group in (place, *place.parents):
                yield root / _GROUPS / group


def _room_in(group: Path) -> int:
    """What a cgroup's tightest limit leaves, without what is used and cannot be dropped. Raises OSError, ValueError,
    KeyError."""
    limits = [(group / name).read_text().strip() for name in ("memory.max", "memory.high")]
    limit = min(int(text) for text in limits if text != "max")
    statistics = _fields(group / "memory.stat", " ")
    cached = statistics["inactive_file"] + statistics["active_file"]
    return limit - int((group / "memory.current").read_text()) + cached


def _waits_percent(file: Path) -> float:
    with suppress(OSError, ValueError, StopIteration):
        line = next(line for line in file.read_text().splitlines() if line.startswith("some "))
        return float(next(part for part in line.split() if part.startswith("avg10=")).removeprefix("avg10="))
    return 0.0


def _fields(file: Path, mark: str) -> dict[str, int]:
    found = {}
    for line in file.read_text().splitlines():
        name, _, rest = line.partition(mark)
        if (number := rest.split()[:1]) and number[0].isdigit():
            found[name] = int(number[0])
    return found
