"""How many fetches a host has at once whose link is slower than others', and how long news waits for more of it."""

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


@pytest.mark.parametrize(
    ("held", "chunk_ms", "batch_ms"),
    [(0, 40, 20), (16, 40, 20), (CHUNKS // 2, 40, 120), (CHUNKS - 48, 40, 60), (CHUNKS - 1, 40, 20), (200, 10, 30),
     (200, 1000, 250)],
    ids=["beginning", "soon-after", "midst", "near-the-end", "end", "quick-chunks", "slow-chunks"],
)  # fmt: skip
def test_news_waits_for_more_in_the_midst_of_a_model_alone(held: int, chunk_ms: int, batch_ms: int) -> None:
    meter = BandwidthMeter()
    meter.expects(1, 0.0)
    for number in range(200):
        meter.received(shape(CHUNKS).chunk_bytes_mean, number * chunk_ms / 1000)
    times = LinkTimes(SETTINGS, shape(CHUNKS), meter, Peers(SETTINGS, Random(1)))
    replica = LocalReplica(DEPLOYMENT, shape(CHUNKS), ChunkSet.of(CHUNKS, range(held)), now=0.0)
    assert times.batch_s(replica) * 1000 == pytest.approx(batch_ms, rel=0.1)
    times.is_level = False  # quick hosts wait for slow ones
    assert times.batch_s(replica) * 1000 <= max(20, chunk_ms // 4) * 1.1
