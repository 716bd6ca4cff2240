"""The rival strategies, in closed form: what the same cluster would get without gossipd.

With size S, link C, external link E, N hosts, M chunks of duration t on a link:

* ``sequential``: one host after the other from storage, N x S / min(E, C).
* ``parallel``: all at once from storage; each gets min(C, E / N).
* ``tree``: every host passes each chunk on to two others, so a level takes 2t per chunk: 2t x (M + ceil(log2 N)).
* ``chain``: every host passes each chunk on to the next: t x (M + N - 1).

500 GB at 10 Gbit/s with chunks of 1 GB: 40,000 s for 100 hosts from storage, 811 s for the tree, 479 s for a chain of
100 and 1,199 s for one of 1,000 (M chunks of 0.8 s). All assume that nothing is slow and nobody dies; storage is the
first sender and as fast as the external link.
"""

from __future__ import annotations

import math

from gossipd.sim.scenario import Scenario

STRATEGIES = ("sequential", "parallel", "tree", "chain")


def completion_times(scenario: Scenario, strategy: str) -> list[float]:
    """When each host has everything, ascending. Raises ValueError for an unknown strategy."""
    hosts, chunks = scenario.hosts, scenario.chunks
    source = min(scenario.external, scenario.link)
    if strategy == "sequential":
        return [scenario.size / source * (place + 1) for place in range(hosts)]
    if strategy == "parallel":
        return [scenario.size / min(scenario.link, scenario.external / hosts)] * hosts
    hop_s = scenario.size / chunks / source
    if strategy == "chain":
        return [hop_s * (chunks + place) for place in range(hosts)]
    if strategy == "tree":
        return [2 * hop_s * (chunks + math.ceil(math.log2(place + 1))) for place in range(hosts)]
    raise ValueError(f"no strategy '{strategy}': swarm, {', '.join(STRATEGIES)}")


def external_copies(scenario: Scenario, strategy: str) -> float:
    """How many times the model leaves storage."""
    return float(scenario.hosts) if strategy in ("sequential", "parallel") else 1.0


def rack_copies(scenario: Scenario, strategy: str) -> float:
    """How many copies enter a rack: a chain laid rack by rack, and a tree with subtrees by rack, need one."""
    return scenario.hosts / scenario.racks if strategy in ("sequential", "parallel") else 1.0
