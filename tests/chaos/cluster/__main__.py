"""``python -m tests.chaos.cluster --runs N [--json]``: real daemons, real faults, and an oracle beside them.

Each run has a cluster and a model of its own. While the model is delivered, three hosts in ten are killed (a seed
among them) and started again, others are stopped, cut off or restarted, chunks are damaged on the wire behind one or
two hosts' backs, and some rot on a disk; all drawn from ``--rng`` plus the number of the run. In the end every
published byte is compared with the original. One JSON object for each run and one with the totals; exit code 1 when
anything was not as it must be, and then the run's directory, with every host's log, is kept. Needs root, iproute2
and nginx.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench.lab.fabric import LabError, missing
from tests.chaos.cluster.run import Order, one_run

SUMS = (
    "hosts", "killed", "killed_seeds", "restarted", "stopped", "cuts", "corrupted_chunks_injected", "corrupted_on_disk",
    "blamed", "completed_before_kills", "corrupted_accepted", "wrong_peer_blamed", "hosts_not_identical",
    "completed_writes_requested_again", "seconds",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.cluster", description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no other run after so long")
    parser.add_argument("--hosts", type=int, default=16)
    parser.add_argument("--racks", type=int, default=4)
    parser.add_argument("--mb", type=int, default=32, help="size of the model in MiB")
    parser.add_argument("--mbit", type=float, default=80.0, help="rate of every link, so that faults hit a delivery")
    parser.add_argument("--encryption", choices=("none", "tls"), help="drawn for each run without it")
    parser.add_argument("--rng", type=int, default=1, help="seed of the first run; each next one has the next")
    parser.add_argument("--keep", action="store_true", help="leave the directories of runs that went well, too")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    if (lack := missing()) is not None:
        print(f"chaos needs {lack}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # with every daemon ended
    order = Order(given.hosts, given.racks, given.mb * 1024 * 1024, given.mbit, given.encryption)
    parent = Path(tempfile.mkdtemp(prefix="gossipd-chaos-"))
    parent.chmod(0o755)  # nginx gives its rights up
    began_s = time.monotonic()
    rows = []
    for number in range(given.runs):
        if time.monotonic() - began_s > given.seconds:
            break
        rows.append(_run(parent, order, given.rng + number, keep=given.keep))
        _print(rows[-1], as_json=given.json)
    failed = [row["seed"] for row in rows if row["problems"]]
    total: dict[str, object] = {"runs": len(rows)} | {name: _sum(rows, name) for name in SUMS}
    total |= {
        "seconds": round(time.monotonic() - began_s, 1),
        "seconds_to_heal_max": max((float(str(row["seconds_to_heal"] or 0)) for row in rows), default=0.0),
        "failed": failed,
        "kept": str(parent) if failed or given.keep else None,
    }
    _print(total, as_json=given.json)
    if total["kept"] is None:
        shutil.rmtree(parent)
    return 1 if failed else 0


def _run(parent: Path, order: Order, seed: int, *, keep: bool) -> dict[str, object]:
    base = parent / f"run-{seed}"
    base.mkdir()
    try:
        row = one_run(base, order, seed)
    except LabError as error:
        row = dict.fromkeys(SUMS, 0) | {"seed": seed, "seconds_to_heal": None, "problems": [str(error)]}
    (base / "row.json").write_text(json.dumps(row, indent=1))
    if not row["problems"] and not keep:
        shutil.rmtree(base)
    return row


def _sum(rows: Sequence[dict[str, object]], name: str) -> float:
    return sum(float(str(row[name])) if name == "seconds" else int(str(row[name])) for row in rows)


def _print(row: dict[str, object], *, as_json: bool) -> None:
    print(json.dumps(row) if as_json else "\n".join(f"{name:34} {value}" for name, value in row.items()), flush=True)


if __name__ == "__main__":
    sys.exit(main())
