"""How many fetches a host has at once, by its link and its memory, and how long news waits for more of it."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from gossipd.core.chunkset import ChunkSet
from gossipd.core.model import Shape
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
    [(0, 40, 20), (12, 40, 20), (CHUNKS // 2, 40, 160), (CHUNKS - 48, 40, 80), (CHUNKS - 1, 40, 20), (200, 10, 40),
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


@pytest.mark.parametrize(
    ("chunk_bytes", "most"),
    [(512 << 10, 24), (8 << 20, 18), (16 << 20, 10), (64 << 20, 4)],
    ids=["many-fit", "sixteen-fit", "eight-fit", "two-fit"],
)
def test_no_more_fetches_are_begun_than_memory_holds(chunk_bytes: int, most: int) -> None:
    model = Shape(CHUNKS, chunk_bytes, CHUNKS * chunk_bytes, 1)
    meter = BandwidthMeter()
    meter.expects(1, 0.0)
    for number in range(200):
        meter.received(chunk_bytes, number / 100)
    times = LinkTimes(SETTINGS, model, meter, Peers(SETTINGS, Random(1)))
    assert times.window(1_000) == times.window_max == most
    assert times.window(0) <= most


def test_a_pool_of_another_size_holds_other_fetches() -> None:
    model = Shape(CHUNKS, 16 << 20, CHUNKS << 24, 1)
    roomy = replace(SETTINGS, pool_bytes=1 << 30)
    assert LinkTimes(roomy, model, BandwidthMeter(), Peers(SETTINGS, Random(1))).window_max == 11
    cramped = replace(SETTINGS, fetches_min=1, pool_bytes=16 << 20, fetches_unleased=0)
    assert LinkTimes(cramped, model, BandwidthMeter(), Peers(SETTINGS, Random(1))).window_max == 1
