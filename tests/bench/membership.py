"""``python -m tests.bench.membership --members 100,1000 [--scenario NAME] --json``: one JSON object per line.

The brains are the daemon's own, with its defaults and its message sizes, in ``tests.membership.simulated_cluster``'s
simulator: no cipher (its bytes are counted), stand-in signatures checked once for all nodes. ``--plain`` runs SWIM
without Lifeguard and without our rules beside it, for comparison: same intervals, same anti-entropy, one accuser is
enough, and no helper says that it failed.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import sys
import time

from msgspec.structs import replace

from membership.settings import SwimSettings
from tests.bench.membership_scenarios import SCENARIOS

_GARBAGE_THRESHOLD = 200_000  # brains make few cycles, and with the default 20 % of the time went into looking for them


def main(arguments: list[str] | None = None) -> int:
    """Run the scenarios asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.membership", description=__doc__)
    parser.add_argument("--members", default="100", help="sizes, separated by commas")
    parser.add_argument("--scenario", choices=[*SCENARIOS], help="only this one")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from --seed on")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="length of the scenario where it has a free one")
    parser.add_argument("--plain", action="store_true", help="also plain SWIM, for comparison")
    parser.add_argument("--json", action="store_true", help="one JSON object per line (the default prints them too)")
    options = parser.parse_args(arguments)
    gc.set_threshold(_GARBAGE_THRESHOLD)
    ours = SwimSettings()
    plain = replace(ours, lifeguard=False, corroborate=False, isolation_freeze=False, second_try=False)
    for members in map(int, options.members.split(",")):
        for name in [options.scenario] if options.scenario else SCENARIOS:
            for seed in range(options.seed, options.seed + options.seeds):
                for brain, settings in (("ours", ours), ("plain", plain))[: 1 + options.plain]:
                    began = time.monotonic(), time.process_time()
                    for row in SCENARIOS[name](members, seed, settings, options.seconds):
                        costs = {
                            "wall_s": round(time.monotonic() - began[0], 2),
                            "cpu_s": round(time.process_time() - began[1], 2),
                            "rss_mb_max": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                        }
                        print(json.dumps(row | {"brain": brain} | costs), flush=True)
                        began = time.monotonic(), time.process_time()
    return 0


if __name__ == "__main__":
    sys.exit(main())
