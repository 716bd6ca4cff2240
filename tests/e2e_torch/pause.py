"""What publishing costs a training loop: ``python -m tests.e2e_torch.pause [--mib 256] [--rounds 5] [--json]``.

One process of torch and two daemons of this machine. In turns a step is saved by ``dcp.async_save`` alone, and by it
with ``publish_async`` when the save has ended; the loop computes on meanwhile. Needs torch.

``pause_ratio``: the time for which the loop stands still at a save, with publishing over without; medians.
``pause_cpu_ratio``: the same of the processor's time of the loop's thread, which other processes do not lengthen.
``loop_ratio``: as ``pause_ratio``, of the steps that follow, which share the cores with saving, publishing and daemons.
``held_over_hash_s``: from the end of a save until its version is signed and held, less what hashing its files takes.
``held_cpu_over_hash_s``: the same of the daemon's CPU time, which other processes do not lengthen: the bar is on it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from gossipd.client import Client
from tests.bench.lab.process import usage
from tests.bench.lab.systems.base import digest
from tests.e2e.cluster import publishing_cluster

PAUSE_RATIO_MAX, HELD_CPU_S_MAX = 1.02, 1.0
_STEPS = 40  # of the loop after each save


class Rounds:
    """Saves and what they took, with and without publishing."""

    def __init__(self, base: Path, client: Client, pid: int, mib: int) -> None:
        self._base, self._client, self._pid = base, client, pid
        self._state = {f"w{number}": torch.rand(1 << 18) for number in range(mib)}
        self._matrix = torch.rand(512, 512)
        self.pauses_s: dict[bool, list[float]] = {False: [], True: []}
        self.pauses_cpu_s: dict[bool, list[float]] = {False: [], True: []}
        self.loops_s: dict[bool, list[float]] = {False: [], True: []}
        self.held_s: list[float] = []
        self.held_cpu_s: list[float] = []

    def play(self, step: int, *, publishes: bool) -> None:
        """One save."""
        directory = self._base / f"step-{step}"
        began_s, began_cpu_s = time.perf_counter(), time.thread_time()
        saving: Future[Any] = dcp.async_save(self._state, checkpoint_id=directory)
        made: Future[Any] = Future()
        if publishes:
            saving.add_done_callback(lambda _: self._publish(directory, step, made))
        paused_s = time.perf_counter()
        self.pauses_cpu_s[publishes].append(time.thread_time() - began_cpu_s)
        for _ in range(_STEPS):
            self._matrix = torch.nn.functional.normalize(self._matrix @ self._matrix)
        looped_s = time.perf_counter()
        saving.result()
        if publishes:
            held_s, held_cpu_s = made.result()
            hash_s, hash_cpu_s = time.perf_counter(), time.process_time()
            for path in sorted(directory.rglob("*.distcp")):
                digest(path)
            self.held_s.append(held_s - (time.perf_counter() - hash_s))
            self.held_cpu_s.append(held_cpu_s - (time.process_time() - hash_cpu_s))
        self.pauses_s[publishes].append(paused_s - began_s)
        self.loops_s[publishes].append(looped_s - paused_s)

    def _publish(self, directory: Path, step: int, made: Future[Any]) -> None:
        ended_s, ended_cpu_s = time.perf_counter(), usage(self._pid).cpu_s
        published = self._client.publish_async(directory, name="run", step=step, keep_last=1)

        def held(done: Future[Any]) -> None:
            done.result()
            made.set_result((time.perf_counter() - ended_s, usage(self._pid).cpu_s - ended_cpu_s))

        published.add_done_callback(held)


def measure(base: Path, mib: int, rounds: int) -> dict[str, Any]:
    """The figures."""
    torch.set_num_threads(1)
    with publishing_cluster(base / "cluster") as cluster:
        cluster.start(hosts=2, racks=1)
        process = cluster[1].process
        assert process is not None
        played = Rounds(base / "saved", Client(cluster[1].home / "gossipd.sock"), process.pid, mib)
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            for number in range(1, 2 * rounds + 3):
                played.play(number, publishes=number % 2 == 0)
        finally:
            dist.destroy_process_group()
    by_publishing = (played.pauses_s, played.pauses_cpu_s, played.loops_s)
    for kept in (*(kept for one in by_publishing for kept in one.values()), played.held_s, played.held_cpu_s):
        del kept[0]  # the first of each allocates
    return {
        "bytes": mib << 20,
        "pause_alone_s": round(median(played.pauses_s[False]), 4),
        "pause_ratio": round(median(played.pauses_s[True]) / median(played.pauses_s[False]), 3),
        "pause_cpu_ratio": round(median(played.pauses_cpu_s[True]) / median(played.pauses_cpu_s[False]), 3),
        "loop_ratio": round(median(played.loops_s[True]) / median(played.loops_s[False]), 3),
        "held_over_hash_s": round(median(played.held_s), 3),
        "held_cpu_over_hash_s": round(median(played.held_cpu_s), 3),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0; 1 when a figure is beyond its bar."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e_torch.pause", description=__doc__)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="gossipd-pause-") as base:
        row = measure(Path(base), given.mib, given.rounds)
    print(json.dumps(row) if given.json else "  ".join(f"{name} {value}" for name, value in row.items()))
    return 0 if row["pause_ratio"] <= PAUSE_RATIO_MAX and row["held_cpu_over_hash_s"] <= HELD_CPU_S_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
