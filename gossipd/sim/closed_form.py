"""The rival strategies, in closed form: what the same cluster would get without gossipd.

With size S in M chunks, N hosts in R racks, link C, rack uplink U, external link E. Storage sends at min(E, C, U), a
host within its rack at C, into another rack at min(C, U); h is what one chunk takes over a hop.

* ``sequential``: one host after the other from storage, N x S / min(E, C, U).
* ``parallel``: all at once from storage; each gets the least of C, E / N and its part of U.
* ``chain``: every host passes each chunk on to the next, rack by rack: the sum of h over all hops, and the slowest h
  again for each further chunk.
* ``tree``: the same, but every host passes each chunk on to two others, so that a level takes 2h. The upper
  ceil(log2 R) levels cross racks. Storage sends no faster than the first host passes on.

Where all hops are alike that is t x (M + N - 1) for the chain and 2t x (M + ceil(log2 N)) for the tree. All assume that
no host is slow or dies, and that delays and queues cost nothing.
"""

from __future__ import annotations

import math

from gossipd.diagnosis.fluid_bound import EQUAL_SHARE
from gossipd.sim.scenario import Scenario

STRATEGIES = ("sequential", "parallel", "tree", "chain")


def completion_times(scenario: Scenario, strategy: str) -> list[float]:
    """When each host holds everything, ascending. Raises ValueError for an unknown strategy."""
    hosts = scenario.hosts
    uplink = hosts / scenario.racks * scenario.link / scenario.oversubscription
    source = min(scenario.external, scenario.link, uplink)
    if strategy == "sequential":
        return [scenario.size / source * (place + 1) for place in range(hosts)]
    if strategy == "parallel":
        rate = min(scenario.link, scenario.external / hosts, uplink * scenario.racks / hosts)
        return [scenario.size / rate] * hosts
    chunk = scenario.size / scenario.chunks
    first_s, inside_s, across_s = chunk / source, chunk / scenario.link, chunk / min(scenario.link, uplink)
    if strategy == "chain":
        hops_s = [across_s if _opens_rack(scenario, host) else inside_s for host in range(1, hosts)]
        return _along([first_s, *hops_s], scenario.chunks)
    if strategy == "tree":
        levels, levels_across = math.ceil(math.log2(hosts)), math.ceil(math.log2(scenario.racks))
        hops_s = [2 * (across_s if level < levels_across else inside_s) for level in range(levels)]
        by_level = _along([max(first_s, 2 * inside_s), *hops_s], scenario.chunks)
        return [by_level[math.ceil(math.log2(place + 1))] for place in range(hosts)]
    raise ValueError(f"no strategy '{strategy}': swarm, {', '.join(STRATEGIES)}")


def limit_words(scenario: Scenario, strategy: str) -> str:
    """What a user would have to change for the last host to be done sooner: links, or how the strategy uses them."""
    if scenario.bound_s >= (1 - EQUAL_SHARE) * completion_times(scenario, strategy)[-1]:
        return scenario.limiting_resource
    hosts = scenario.hosts
    return (
        "the strategy: "
        + {
            "sequential": f"storage sends the model {hosts} times, to one host after the other",
            "parallel": f"storage sends the model {hosts} times, to all hosts at once",
            "tree": "every host sends each chunk twice, one after the other",
            "chain": f"the last host is {hosts - 1} hops behind the first, and each takes a chunk time",
        }[strategy]
    )


def _along(hops_s: list[float], chunks: int) -> list[float]:
    """When the last chunk has passed each hop: it makes every hop, and follows at the pace of the slowest."""
    times: list[float] = []
    passed_s = slowest_s = 0.0
    for hop_s in hops_s:
        passed_s += hop_s
        slowest_s = max(slowest_s, hop_s)
        times.append(passed_s + (chunks - 1) * slowest_s)
    return times


def _opens_rack(scenario: Scenario, host: int) -> bool:
    """Whether the host before this one is in another rack; hosts are numbered rack by rack, as in ``world``."""
    return host * scenario.racks // scenario.hosts != (host - 1) * scenario.racks // scenario.hosts


def external_copies(scenario: Scenario, strategy: str) -> float:
    """How many times the model leaves storage."""
    return float(scenario.hosts) if strategy in ("sequential", "parallel") else 1.0


def rack_copies(scenario: Scenario, strategy: str) -> float:
    """How many copies enter a rack: one for a chain laid rack by rack, and for a tree with subtrees by rack."""
    return scenario.hosts / scenario.racks if strategy in ("sequential", "parallel") else 1.0
