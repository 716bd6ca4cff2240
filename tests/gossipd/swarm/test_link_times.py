"""How many fetches a host has at once whose link is slower than others': few while they fill it."""

from __future__ import annotations

from random import Random

import pytest

from gossipd.core.chunkset import ChunkSet
from gossipd.swarm.arrival_rates import ArrivalRates
from gossipd.swarm.bandwidth_meter import BandwidthMeter
from gossipd.swarm.link_times import LinkTimes
from gossipd.swarm.local_replica import LocalReplica
from gossipd.swarm.peers import Peers
from tests.gossipd.swarm.planning import DEPLOYMENT, OWN, SETTINGS, shape

CHUNKS = 400


@pytest.mark.parametrize(
    ("held", "recent_per_s", "beside_least"),
    [(CHUNKS // 2, 40, -1), (CHUNKS // 2, 20, 3), (CHUNKS // 5, 40, 3)],
    ids=["filled", "suppliers-are-busy", "not-yet-sure"],
)
def test_a_slower_host_asks_for_as_many_chunks_as_fill_its_link(
    held: int, recent_per_s: int, beside_least: int
) -> None:
    times = LinkTimes(SETTINGS, shape(CHUNKS), BandwidthMeter(), Peers(SETTINGS, Random(1)))
    rates = ArrivalRates(OWN)
    for second in range(20):
        rates.heard(OWN, 40 if second < 10 else recent_per_s, float(second))
    replica = LocalReplica(DEPLOYMENT, shape(CHUNKS), ChunkSet.of(CHUNKS, range(held)), now=0.0)
    assert times.window_behind(rates, replica) == times.window_min + beside_least
