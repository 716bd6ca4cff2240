"""``python -m tests.fuzz --seconds N --json``: hostile input at every surface, one line of JSON each, and a total.

Each surface runs in a process of its own, one after the other, so that memory is its own and its end is seen.
``--inputs N`` gives each surface N inputs (cheap ones their share more) instead of a share of the time; with both, what
ends first. ``--keep DIR`` writes what failed, made small. The exit code is 1 when anything failed.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import trio

from tests.fuzz.findings import keep
from tests.fuzz.surface import run_surface
from tests.fuzz.surfaces import SURFACES

RSS_BYTES_MAX = 16 * 1024 * 1024  # what a surface may grow by after its warm-up
_SUMS = ("inputs", "mutated_before_sealing", "crashes", "untyped_errors", "slow_inputs", "cpu_s")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, help="for all surfaces together")
    parser.add_argument("--inputs", type=int, help="for each surface")
    only = "only this one; may be given again"
    parser.add_argument("--surface", choices=sorted(SURFACES), action="append", help=only)
    parser.add_argument("--rng", type=int, default=1, help="seed of everything that is drawn")
    parser.add_argument("--keep", type=Path, help="directory for inputs that failed")
    parser.add_argument("--json", action="store_true", help="one JSON object a line and nothing else")
    options = parser.parse_args()
    if options.seconds is None and options.inputs is None:
        parser.error("give --seconds or --inputs")
    names = options.surface or list(SURFACES)
    if len(names) == 1:
        rows = [_run_here(names[0], options)]
        _show(rows[0], as_json=options.json)
    else:
        rows = []
        for place, name in enumerate(names):
            seconds = None
            if options.seconds is not None:
                left = options.seconds - sum(float(str(row["wall_s"])) for row in rows)
                seconds = max(1.0, left / (len(names) - place))
            rows.append(_run_apart(name, options, seconds))
            _show(rows[-1], as_json=options.json)
        _show(total(rows), as_json=options.json)
    return 0 if all(is_clean(row) for row in rows) else 1


def total(rows: Iterable[dict[str, object]]) -> dict[str, object]:
    """All surfaces in one row: sums, and the most of what is a bar for each."""
    rows = list(rows)
    found: dict[str, object] = {"surface": "total"}
    for key in _SUMS:
        found[key] = round(sum(float(str(row[key])) for row in rows), 1)
    for key in _SUMS[:-1]:
        found[key] = int(float(str(found[key])))
    for key in ("slowest_ms", "rss_growth_bytes"):
        found[key] = max(float(str(row[key])) for row in rows)
    found["rss_growth_bytes"] = int(float(str(found["rss_growth_bytes"])))
    found["inputs_least"] = min(int(str(row["inputs"])) for row in rows)
    found["is_clean"] = all(is_clean(row) for row in rows)
    return found


def is_clean(row: dict[str, object]) -> bool:
    """The bar."""
    failed = [row["crashes"], row["untyped_errors"], row["slow_inputs"]]
    return not any(failed) and int(str(row["rss_growth_bytes"])) <= RSS_BYTES_MAX


def _run_here(name: str, options: argparse.Namespace) -> dict[str, object]:
    make = SURFACES[name]
    began_s = time.monotonic()
    logging.disable(logging.CRITICAL)
    until_s = None if options.seconds is None else began_s + options.seconds

    async def run() -> dict[str, object]:
        inputs = None if options.inputs is None else int(options.inputs * make.share)
        tally = await run_surface(make, seed=options.rng, inputs=inputs, until_s=until_s)
        for finding in tally.findings:
            where = ""
            if options.keep is not None:
                where = f" -> {await keep(options.keep, name, make, finding, seed=options.rng)}"
            print(f"{name}: {finding.verdict} at input {finding.number}: {finding.reason}{where}", file=sys.stderr)
        return tally.row()

    row = trio.run(run)
    row["wall_s"] = round(time.monotonic() - began_s, 1)
    return row


def _run_apart(name: str, options: argparse.Namespace, seconds: float | None) -> dict[str, object]:
    command = [sys.executable, "-m", "tests.fuzz", "--surface", name, "--rng", str(options.rng), "--json"]
    if seconds is not None:
        command += ["--seconds", str(seconds)]
    if options.inputs is not None:
        command += ["--inputs", str(options.inputs)]
    if options.keep is not None:
        command += ["--keep", str(options.keep)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    try:
        row: dict[str, object] = json.loads(done.stdout)
    except ValueError:  # the process died: that is a crash, and no input can be named but by running the surface alone
        print(f"{name}: the process ended with {done.returncode}", file=sys.stderr)
        keys = (*_SUMS, "slowest_ms", "rss_growth_bytes", "wall_s")
        row = {"surface": name, **dict.fromkeys(keys, 0), "crashes": 1}
    return row


def _show(row: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(row), flush=True)
    else:
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)


if __name__ == "__main__":
    sys.exit(main())
