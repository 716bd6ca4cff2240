"""A real store killed at every n-th call it makes, until the run is clean.

``python -m tests.chaos.kill_points [--stride N] [--json]``. For each kind of call that changes the disk (and for the
opens between), strace sends SIGKILL as the n-th begins, for n = 1, 2, 3 ... until the script ends by itself; so
every state between two calls is left behind once. After each, a new process starts a store there, its claims are
compared with every byte of the files, and the work is brought to its end. ``requested_again`` counts chunks whose
bytes were all on the disk and which the store did not hold after the start; ``false_claims`` chunks it held whose
bytes were wrong.

The n-th call is only the same call with one thread; so as many processes again (``--random``) are killed at a random
moment with three writers and the store's own threads, which is what a daemon has.

The directory is in memory (``/dev/shm``) unless ``--directory`` says otherwise: a kill takes nothing from the page
cache, so the file system underneath makes no difference, and 1,000 starts take minutes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.chaos.store_workload import Verdict, judge, live, live_in_threads, make_models
from tests.chaos.traced import CHANGING, Outcome, run_traced
from tests.gossipd.store.small_models import Model


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.kill_points", description=__doc__)
    parser.add_argument("--stride", type=int, default=1, help="only every n-th point")
    parser.add_argument("--first", type=int, default=1, help="the first point")
    parser.add_argument("--shard-chunks", type=int, default=32, help="size of the model; sets the number of points")
    parser.add_argument("--random", type=int, default=300, help="kills at a random moment, with threads")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", default="/dev/shm")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    row = run(Path(options.directory), options.first, options.stride, options.shard_chunks)
    row |= run_random(Path(options.directory), options.random, options.seed, options.shard_chunks)
    print(json.dumps(row) if options.json else "\n".join(f"{name:20} {value}" for name, value in row.items()))
    return 1 if any(row[name] for name in row if name.endswith(("again", "claims", "partial", "problems"))) else 0


def run(directory: Path, first: int, stride: int, shard_chunks: int) -> dict[str, object]:
    """The row."""
    models = make_models(shard_chunks=shard_chunks)
    begun = time.monotonic()
    totals = Verdict()
    points = {}
    for call in CHANGING:
        number = first
        while kill_at(directory, models, call, number, totals):
            number += stride
        points[call] = (number - first) // stride
    return {
        "kill_points": sum(points.values()),
        "by_call": points,
        "requested_again": totals.requested_again,
        "false_claims": totals.false_claims,
        "visible_partial": totals.visible_partial,
        "problems": totals.problems[:10],
        "seconds": round(time.monotonic() - begun, 1),
    }


def run_random(directory: Path, count: int, seed: int, shard_chunks: int) -> dict[str, object]:
    """The part of the row about kills at random moments."""
    models = make_models(shard_chunks=shard_chunks)
    random = Random(seed)
    totals = Verdict()
    killed = 0
    usual_s = 1.0
    for number in range(count):
        root = Path(tempfile.mkdtemp(prefix="gossipd-kill-", dir=directory))
        try:
            # The first is left to end and timed: it says where the moments are to be drawn from.
            after_s = random.uniform(0.0, usual_s) if number else 60.0
            begun = time.monotonic()
            outcome = run_traced(lambda root=root: live_in_threads(root, models), None, kill_after_s=after_s)  # type: ignore[misc]
            if not number:
                usual_s = time.monotonic() - begun
            if not outcome.was_killed and outcome.code:
                totals.problems.append(f"random {number}: {outcome.said}")
            killed += outcome.was_killed
            _add(totals, f"random {number}", run_traced(lambda root=root: _judge_and_tell(root, models), None))  # type: ignore[misc]
        finally:
            shutil.rmtree(root)
    return {
        "random_kills": killed,
        "random_requested_again": totals.requested_again,
        "random_false_claims": totals.false_claims,
        "random_visible_partial": totals.visible_partial,
        "random_problems": totals.problems[:10],
    }


def kill_at(directory: Path, models: tuple[Model, Model], call: str, number: int, totals: Verdict) -> bool:
    """One point; False when the script ended before its n-th ``call``."""
    root = Path(tempfile.mkdtemp(prefix="gossipd-kill-", dir=directory))
    try:
        outcome = run_traced(lambda: live(root, models), f"{call}:signal=SIGKILL:when={number}")
        if not outcome.was_killed:
            if outcome.code:
                totals.problems.append(f"{call} {number}: {outcome.said}")
            return False
        _add(totals, f"{call} {number}", run_traced(lambda: _judge_and_tell(root, models), None))
        return True
    finally:
        shutil.rmtree(root)


def _judge_and_tell(root: Path, models: tuple[Model, Model]) -> None:
    verdict = judge(root, models, killed=True)
    found = (verdict.requested_again, verdict.false_claims, verdict.visible_partial)
    if any(found) or verdict.problems:
        raise AssertionError(f"{found} {verdict.problems}")


def _add(totals: Verdict, point: str, outcome: Outcome) -> None:
    if not outcome.code:
        return
    last = outcome.said.strip().splitlines()[-1]
    totals.problems.append(f"{point}: {outcome.said[-600:]}")
    if last.startswith("AssertionError: ("):
        counts = [int(part) for part in last.partition("(")[2].partition(")")[0].split(",")]
        totals.requested_again += counts[0]
        totals.false_claims += counts[1]
        totals.visible_partial += counts[2]


if __name__ == "__main__":
    sys.exit(main())
