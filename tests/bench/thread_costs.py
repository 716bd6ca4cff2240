"""What the threads of processes have used: CPU time, and how often each gave up the processor of its own accord.

What lives here: one look at /proc, and the difference between two. What does not: when to look (``rest``, ``lab``,
``pair``). Threads are told apart by the names that gossipd gives them; a thread that ends between two looks takes what
it used since the first one with it, which whole-process figures do not.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_NUMBER = re.compile(r"[-_ ]?\d+$")


@dataclass(frozen=True, slots=True)
class ThreadCosts:
    """Of threads with one name: how many there are, CPU seconds, voluntary switches (each is a wait that ended)."""

    threads: int
    cpu_s: float
    switches: int


def look(pids: Iterable[int]) -> dict[tuple[int, int], tuple[str, float, int]]:
    """By process and thread: its name without a number at the end, CPU seconds and voluntary switches so far."""
    found = {}
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*"):
            try:
                name = _NUMBER.sub("", (task / "comm").read_text().strip())
                cpu_ns = int((task / "schedstat").read_text().split()[0])
                status = (task / "status").read_text()
            except OSError:
                continue  # it has ended
            switches = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("voluntary_ctxt"))
            found[pid, int(task.name)] = name, cpu_ns / 1e9, switches
    return found


def between(
    before: dict[tuple[int, int], tuple[str, float, int]], after: dict[tuple[int, int], tuple[str, float, int]]
) -> dict[str, ThreadCosts]:
    """By name of thread, the dearest first; all processes together."""
    totals: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0])
    for key, (name, cpu_s, switches) in after.items():
        _, cpu_before_s, switches_before = before.get(key, (name, 0.0, 0))
        total = totals[name]
        total[0] += 1
        total[1] += cpu_s - cpu_before_s
        total[2] += switches - switches_before
    costs = {name: ThreadCosts(int(one[0]), round(one[1], 4), int(one[2])) for name, one in totals.items()}
    return dict(sorted(costs.items(), key=lambda item: -item[1].cpu_s))
