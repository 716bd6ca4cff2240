"""Hosts of three link rates in one simulated cluster, with models of several sizes.

    python -m tests.sim.mixed_links [--mb 256] [--mb 3072] [--draws 3] [--json]

What lives here: the cluster of ``python -m tests.bench.lab --mixed`` on a virtual clock, and of each class of links the
last host's time over what its own link needs. What does not: the model of the network (``gossipd.sim``), and the bounds
that a test holds (``test_mixed_links``).

Size matters here: no host knows at the start whose link is slower, and what that costs is the same for a large model.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import mean

from gossipd.sim.scenario import Slowdown, lab
from gossipd.sim.world import World
from tests.bench.lab.__main__ import CHUNK_KB, MIXED

SHARES = (1.0, 0.5, 0.1)
HOSTS, RACKS, MB, DRAWS = 9, 3, 256, 3


def class_times_s(rng: int, *, racks: int = RACKS, mb: int = MB) -> tuple[float, dict[float, list[float]]]:
    """Seconds that the fastest link needs; of each class, by its share of that rate, the seconds of its hosts."""
    slower = tuple(Slowdown(share, host=number - 1) for number, share in MIXED.items())
    base = lab(hosts=HOSTS, racks=racks, mb=mb)
    scenario = replace(base, chunks=mb * 1024 // CHUNK_KB, slowdowns=slower, rng=rng)
    world = World(scenario)
    world.run()
    found: dict[float, list[float]] = defaultdict(list)
    for number, host in enumerate(world.hosts, 1):
        assert host.done_s is not None
        found[MIXED.get(number, 1.0)].append(host.done_s)
    return scenario.size / scenario.link, found


def ratios(rng: int, *, mb: int) -> dict[float, float]:
    """By share of the fastest rate: the last host's time over what its own link needs."""
    own_s, times = class_times_s(rng, mb=mb)
    return {share: max(times[share]) * share / own_s for share in SHARES}


def main(arguments: Sequence[str] | None = None) -> int:
    """One line for each size. Exit code 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mixed_links", description=__doc__)
    parser.add_argument("--mb", type=int, action="append", help="Of the model; may be given again.")
    parser.add_argument("--draws", type=int, default=DRAWS, help="Runs for each size, of which the mean is told.")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    for mb in options.mb or [MB]:
        drawn = [ratios(rng, mb=mb) for rng in range(1, options.draws + 1)]
        found = {f"ratio_at_{100 * share:.0f}": round(mean(one[share] for one in drawn), 3) for share in SHARES}
        if options.json:
            print(json.dumps({"model": f"{mb} MB", **found}), flush=True)
        else:
            print(f"{mb:6} MB  " + "  ".join(f"{name} {value:.3f}" for name, value in found.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
