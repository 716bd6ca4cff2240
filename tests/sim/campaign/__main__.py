"""``python -m tests.sim.campaign``: many seeds, some of them twice; prints one JSON object.

What lives here: the command. What does not: a run (``world``). Every tenth seed is replayed in a process of its own
with another PYTHONHASHSEED, and its trace must have the same hash: no order of a set decides anything.

Exit 1 when a rule was broken, a replay differed, or a kind of fault struck fewer than ``--least`` times. Seeds that
failed belong into ``seeds.txt`` beside this file, which the tests play for ever. With ``--journal FILE`` each outcome
is kept as a line of JSON, and seeds that are in the file are not played again: a campaign that was cut short goes on.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from tests.sim.campaign.faults import KINDS
from tests.sim.campaign.world import Outcome, play

REPLAY_EVERY = 10
_OTHER_HASH_SEED = "4711"
_REPLAYS_PER_PROCESS = 10  # starting an interpreter costs a tenth of a run
_GARBAGE_THRESHOLD = 200_000  # a run has few cycles, and with the default 11 % of its time went into looking for them


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    options = _parser().parse_args(arguments)
    if options.replay is not None:
        gc.set_threshold(_GARBAGE_THRESHOLD)
        for seed in options.replay:
            print(json.dumps(asdict(play(seed, hosts=options.hosts, seconds=options.seconds))), flush=True)
        return 0
    if options.seed is not None:
        outcome = play(options.seed, hosts=options.hosts, seconds=options.seconds, trace=options.trace)
        print(json.dumps(asdict(outcome), indent=None if options.json else 2))
        return 1 if outcome.violation else 0
    began_s = time.monotonic()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    outcomes = _play_all(options, list(seeds))
    replayed = _replay_all(options, [outcomes[seed] for seed in seeds if seed % REPLAY_EVERY == 0])
    report = summary([outcomes[seed] for seed in seeds], replayed, options.hosts)
    report["wall_s"] = round(time.monotonic() - began_s, 1)
    print(json.dumps(report) if options.json else json.dumps(report, indent=2))
    rare = options.least and any(report["faults"][kind] < options.least for kind in KINDS)
    return 1 if report["violations"] or report["replay_mismatches"] or rare else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.campaign", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seed", type=int, help="play this one and print its outcome")
    parser.add_argument("--trace", action="store_true", help="with --seed: every command and fault on stderr")
    parser.add_argument("--hosts", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0, help="least simulated time of a run")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--least", type=int, default=0, help="each kind of fault must strike so often")
    parser.add_argument("--journal", type=Path, help="keep outcomes here; go on from what is there")
    parser.add_argument("--json", action="store_true", help="one line")
    parser.add_argument("--replay", type=int, nargs="*", help=argparse.SUPPRESS)
    return parser


def _play_all(options: argparse.Namespace, seeds: list[int]) -> dict[int, dict[str, Any]]:
    """The outcomes by seed, from the journal as far as they are there."""
    found = {outcome["seed"]: outcome for outcome in _journal(options.journal, "play")}
    found = {seed: outcome for seed, outcome in found.items() if seed in set(seeds)}
    left = [seed for seed in seeds if seed not in found]
    began_s = time.monotonic()
    one = partial(play, hosts=options.hosts, seconds=options.seconds)
    with multiprocessing.get_context("spawn").Pool(options.workers, gc.set_threshold, (_GARBAGE_THRESHOLD,)) as pool:
        for outcome in pool.imap_unordered(one, left):
            found[outcome.seed] = asdict(outcome)
            _keep(options.journal, "play", asdict(outcome))
            _tell(outcome, len(found), len(seeds), time.monotonic() - began_s)
    return found


def _tell(outcome: Outcome, done: int, of: int, elapsed_s: float) -> None:
    if outcome.violation:
        print(f"seed {outcome.seed}: {outcome.violation}", file=sys.stderr, flush=True)
    if done % 10 == 0:
        print(f"{done} of {of} seeds, {elapsed_s:.0f} s", file=sys.stderr, flush=True)


def _replay_all(options: argparse.Namespace, outcomes: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Pairs of traces, of the first playing and of the second."""
    second = {outcome["seed"]: outcome for outcome in _journal(options.journal, "replay")}
    left = [outcome["seed"] for outcome in outcomes if outcome["seed"] not in second]
    groups = [left[at : at + _REPLAYS_PER_PROCESS] for at in range(0, len(left), _REPLAYS_PER_PROCESS)]
    with ThreadPoolExecutor(options.workers) as pool:
        for outcomes_again in pool.map(partial(_replay, options), groups):
            for outcome in outcomes_again:
                second[outcome["seed"]] = outcome
                _keep(options.journal, "replay", outcome)
            print(f"{len(second)} of {len(outcomes)} replayed", file=sys.stderr, flush=True)
    missing = {"trace": "no replay"}
    return [(outcome["trace"], second.get(outcome["seed"], missing)["trace"]) for outcome in outcomes]


def _replay(options: argparse.Namespace, seeds: list[int]) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.sim.campaign", "--hosts", str(options.hosts)]
    command += ["--seconds", str(options.seconds), "--replay", *map(str, seeds)]
    environment = os.environ | {"PYTHONHASHSEED": _OTHER_HASH_SEED}
    played = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in played.stdout.splitlines()]


def summary(outcomes: list[dict[str, Any]], replayed: list[tuple[str, str]], hosts: int) -> dict[str, Any]:
    """The object that is printed, but for the wall-clock time."""
    faults: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
    looked: Counter[str] = Counter()
    for outcome in outcomes:
        faults.update(outcome["faults"])
        looked.update(outcome["looked"])
    failing = [outcome for outcome in outcomes if outcome["violation"]]
    return {
        "runs": len(outcomes),
        "violations": len(failing),
        "replays": len(replayed),
        "replay_mismatches": sum(first != second for first, second in replayed),
        "faults": dict(sorted(faults.items())),
        "hosts": hosts,
        "simulated_s": round(sum(outcome["simulated_s"] for outcome in outcomes), 1),
        "simulated_s_min": min((outcome["simulated_s"] for outcome in outcomes), default=0.0),
        "false_deaths": sum(outcome["false_deaths"] for outcome in outcomes),
        "recovered_s_max": max((outcome["recovered_s"] for outcome in outcomes), default=0.0),
        "looked": dict(sorted(looked.items())),
        "failing_seeds": sorted(outcome["seed"] for outcome in failing),
        "cpu_s": round(sum(outcome["cpu_s"] for outcome in outcomes), 1),
    }


def _journal(path: Path | None, kind: str) -> Iterator[dict[str, Any]]:
    if path is None or not path.exists():
        return
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        if entry["kind"] == kind:
            yield entry["outcome"]


def _keep(path: Path | None, kind: str, outcome: dict[str, Any]) -> None:
    if path is not None:
        with path.open("a") as journal:
            journal.write(json.dumps({"kind": kind, "outcome": outcome}) + "\n")


if __name__ == "__main__":
    sys.exit(main())
