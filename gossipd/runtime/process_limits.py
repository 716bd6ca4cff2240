"""How many descriptors and threads the system gives a process, as the kernel tells of any process.

What lives here: reading ``/proc/PID/limits`` and the pids groups (v1 and v2) that the process is in, with all above
them. What does not: what is enough (``daemon.start_limits``, ``diagnosis.checks``).

``RLIMIT_NPROC`` counts all threads of a user, and not at all for one with the right to go over it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

_GROUPS = "sys/fs/cgroup"
_EXEMPT = 1 << 24 | 1 << 21  # CAP_SYS_RESOURCE, CAP_SYS_ADMIN


class ThreadRoom(Struct, frozen=True):
    """A limit of threads. ``used``: how many count against it now. ``setting``: what an operator raises."""

    limit: int
    used: int
    setting: str


def descriptors_max(process: int | str = "self", *, root: Path = Path("/")) -> int | None:
    """The soft limit of open files; None where there is none, or none is told. ``root``: another place with ``proc``
    and ``sys``."""
    return _soft_limit(process, "Max open files", root)


def thread_rooms(process: int | str = "self", *, root: Path = Path("/")) -> list[ThreadRoom]:
    """Every limit of threads that is told of the process."""
    found = []
    for group in _groups(process, root):
        with suppress(OSError, ValueError):  # the topmost has no limit, and another may say "max"
            limit, used = (int((group / name).read_text()) for name in ("pids.max", "pids.current"))
            found.append(ThreadRoom(limit, used, f"TasksMax in the unit, or pids.max of {group}"))
    with suppress(OSError, ValueError, IndexError):
        limit = int((root / "proc/sys/kernel/threads-max").read_text())
        used = int((root / "proc/loadavg").read_text().split()[3].split("/")[1])
        found.append(ThreadRoom(limit, used, "sysctl kernel.threads-max"))
    with suppress(OSError, ValueError, IndexError):
        status = (root / f"proc/{process}/status").read_text()
        user = int(_line(status, "Uid").split()[0])
        limit_of_user = _soft_limit(process, "Max processes", root)
        if limit_of_user is not None and user and not int(_line(status, "CapEff"), 16) & _EXEMPT:
            found.append(ThreadRoom(limit_of_user, _threads_of(user, root), "ulimit -u, or LimitNPROC in the unit"))
    return found


def _soft_limit(process: int | str, kind: str, root: Path) -> int | None:
    with suppress(OSError):
        told = re.search(rf"^{kind}\s+(\d+)", (root / f"proc/{process}/limits").read_text(), re.MULTILINE)
        return None if told is None else int(told[1])
    return None


def _groups(process: int | str, root: Path) -> Iterator[Path]:
    """From the group of the process up to the root of the hierarchy."""
    with suppress(OSError):
        for line in (root / f"proc/{process}/cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0" or "pids" in controllers.split(","):
                place = Path(path.lstrip("/"))
                for group in (place, *place.parents):
                    yield root / _GROUPS / ("" if number == "0" else "pids") / group


def _line(status: str, field: str) -> str:
    return status.split(f"\n{field}:", 1)[1].split("\n", 1)[0].strip()


def _threads_of(user: int, root: Path) -> int:
    count = 0
    for place in (root / "proc").iterdir():
        with suppress(OSError):  # it has ended
            if place.name.isdigit() and place.stat().st_uid == user:
                count += len(os.listdir(place / "task"))
    return count
