"""``python -m tests.sim.recorded_traces``: what the simulator does for fixed seeds, as digests, and the recorded ones.

What lives here: the scenarios, the digest and the command. What does not: the simulator (``gossipd.sim``) and the
comparison (``test_recorded_traces``). A digest covers the time, host and chunk of every delivery and every figure of
the outcome. A change that is meant to alter decisions records them again with ``--record`` and says so in its commit;
a change that only moves or renames code must not.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from struct import pack

from gossipd.sim.outcome import simulated
from gossipd.sim.scenario import Kill, Scenario, Slowdown, lab, lab_delays
from gossipd.sim.world import World

RECORDED = Path(__file__).with_name("recorded_traces.json")
_RATE = 12_500_000.0
_SMALL = Scenario(hosts=12, racks=3, size=32 << 20, chunks=128, link=_RATE, external=_RATE)
SCENARIOS = {
    "lab": lab(hosts=8, racks=2, mb=16),
    "oversubscribed": replace(_SMALL, oversubscription=4.0, rng=2),
    "killed": replace(_SMALL, kills=(Kill(0.3, seed=True), Kill(0.6, share=0.1)), rng=3),
    "slow hosts": replace(_SMALL, slowdowns=(Slowdown(0.25, share=0.1),), rng=4),
    "slow storage": lab_delays(replace(_SMALL, external=_RATE / 4, rng=5)),
    "not everybody a neighbour": Scenario(
        hosts=60, racks=6, size=40 << 24, chunks=40, link=1.25e9, external=1.25e9, rng=6
    ),
}


def digest(scenario: Scenario) -> str:
    """Of one run, from its start to its end."""
    world = World(scenario, keep_arrivals=True)
    world.run()
    state = sha256()
    for when_s, host, chunk in world.arrivals or ():
        state.update(pack("<dII", when_s, host, chunk))
    state.update(json.dumps(simulated(world).to_json(), sort_keys=True).encode())
    return state.hexdigest()


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 when a digest differs from the recorded one."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.recorded_traces", description=__doc__)
    parser.add_argument("--record", action="store_true", help="replace the recorded digests")
    options = parser.parse_args(arguments)
    found = {name: digest(scenario) for name, scenario in SCENARIOS.items()}
    if options.record:
        RECORDED.write_text(json.dumps(found, indent=2) + "\n")
        return 0
    recorded = json.loads(RECORDED.read_text())
    differing = [name for name in found if found[name] != recorded.get(name)]
    print(json.dumps({"scenarios": len(found), "differing": differing}))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
