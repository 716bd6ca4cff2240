"""``python -m tests.sim.liars --hosts 1000 --liars 0.05 --json``: what liars could do; one JSON object.

What lives here: the command and its verdict. What does not: the run (``world``). Exit 1 when a healthy host was
declared dead by an honest one, a forged word was believed, a host was shown complete that was not, a made-up member
counted as a seed or in a sum, or an honest host has not got a model.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Sequence

from tests.sim.liars.world import SORTS, play

_GARBAGE_THRESHOLD = 200_000
BARS = ("false_deaths", "forged_accepted", "false_complete", "sybils_counted", "deployments_lost")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.liars", description=__doc__)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--liars", type=float, default=0.05, help="share of the hosts")
    parser.add_argument("--seconds", type=float, default=60.0, help="least simulated time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sorts", default=",".join(SORTS), help="lies, separated by commas")
    parser.add_argument("--json", action="store_true", help="one line")
    options = parser.parse_args(arguments)
    gc.set_threshold(_GARBAGE_THRESHOLD)
    began_s = time.process_time()
    liars = round(options.hosts * options.liars)
    found = play(
        options.seed, hosts=options.hosts, liars=liars, seconds=options.seconds, sorts=options.sorts.split(",")
    )
    found["cpu_s"] = round(time.process_time() - began_s, 1)
    print(json.dumps(found, indent=None if options.json else 1))
    return 1 if any(found[bar] for bar in BARS) else 0


if __name__ == "__main__":
    sys.exit(main())
