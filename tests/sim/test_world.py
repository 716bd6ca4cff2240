"""Whole clusters of real planners: everything arrives, once, whatever dies or is slow. Seeds that failed stay here."""

from __future__ import annotations

import gc
from dataclasses import replace
from functools import cache

from gossipd.core.events import Event, PeerSeen
from gossipd.runtime.turn_interval import REST_S_MAX, TURN_S
from gossipd.sim.host import SimHost
from gossipd.sim.outcome import Outcome, simulated
from gossipd.sim.scenario import Kill, Scenario, Slowdown
from gossipd.sim.traffic_model import MEMBERSHIP_REST_BYTES_S
from gossipd.sim.world import World

RATE = 12_500_000.0
SMALL = Scenario(hosts=9, racks=3, size=256 << 20, chunks=1024, link=RATE, external=RATE, queue_s=0.005)
TINY = replace(SMALL, hosts=6, racks=2, size=16 << 20, chunks=64)


@cache
def quiet_run() -> tuple[World, Outcome]:
    return played(SMALL)


def played(scenario: Scenario) -> tuple[World, Outcome]:
    world = World(scenario)
    world.run()
    return world, simulated(world)


def check_everything_arrived(world: World) -> None:
    everything = (1 << world.scenario.chunks) - 1
    for host in world.hosts:
        if host.alive:
            assert host.held == everything
            assert host.done_s is not None


def test_a_model_reaches_every_host_in_little_more_than_one_download() -> None:
    world, outcome = quiet_run()
    check_everything_arrived(world)
    assert outcome.external_x <= 1.01
    assert outcome.imports_per_rack <= 1.02
    assert outcome.duplicate_x <= 0.05
    assert outcome.loss_chunk_times <= 60
    assert outcome.tail_p999_over_p50 <= 1.05


def test_what_a_job_saved_on_one_host_reaches_every_other_in_little_more_than_one_download() -> None:
    scenario = Scenario(hosts=16, racks=4, size=128 << 20, chunks=256, link=RATE, external=RATE, origin=0)
    world, outcome = played(scenario)
    check_everything_arrived(world)
    assert world.external_chunks == 0
    assert outcome.seconds_last <= 1.13 * scenario.bound_s, "1.5 where the origin's rack waits for it"


def test_two_hosts_that_ask_an_origin_for_the_same_chunks_wait_for_no_second_copies() -> None:
    scenario = Scenario(hosts=3, racks=1, size=128 << 20, chunks=128, link=RATE, external=RATE, origin=0)
    world, outcome = played(scenario)
    check_everything_arrived(world)
    assert outcome.seconds_last <= 1.05 * scenario.bound_s, "1.09 where they get them"


def test_chunks_of_several_seconds_are_read_from_storage_by_the_seeds_alone() -> None:
    scenario = Scenario(hosts=50, racks=3, size=500_000_000_000, chunks=100, link=1.25e9, external=1.25e9)
    world, outcome = played(scenario)
    check_everything_arrived(world)
    assert outcome.loss_chunk_times <= 40, "74 where hosts take two such chunks for the pace of a link"
    assert outcome.external_x <= 1.01


def test_chunks_that_come_faster_than_lazy_news_hold_up_nobody_where_not_everybody_is_a_neighbour() -> None:
    rate = 1.25e9
    scenario = Scenario(hosts=49, racks=3, size=100 << 24, chunks=100, link=rate, external=rate)
    assert scenario.hosts > scenario.settings.everyone_max
    assert scenario.chunk_time_s < scenario.settings.news_lazy_s / 100
    world, outcome = played(scenario)
    check_everything_arrived(world)
    assert outcome.loss_chunk_times <= 60, "half a second; 220 when healthy hosts were taken for slow ones"
    assert outcome.imports_per_rack <= 1.005


def test_a_host_plans_as_often_as_a_daemon_does_and_no_more_than_ten_times_in_a_chunk_time() -> None:
    chunk_times_s = [TINY.chunk_time_s / 8, TINY.chunk_time_s, 20 * TINY.chunk_time_s, 100 * TINY.chunk_time_s]
    worlds = [World(replace(TINY, link=TINY.chunk_bytes / one)) for one in chunk_times_s]
    rests_s = [world.plan_interval_s for world in worlds]
    assert rests_s[0] == TURN_S
    assert rests_s[1] == 0.75 * TINY.chunk_time_s
    assert rests_s[2] == REST_S_MAX
    assert rests_s[3] == 10 * TINY.chunk_time_s


def test_the_same_seed_gives_the_same_run() -> None:
    one, other = played(TINY), played(TINY)
    assert one[1] == other[1]
    assert one[0].timeline == other[0].timeline


def test_a_dead_seed_and_a_dead_host_cost_time_and_few_external_bytes() -> None:
    world = World(SMALL)
    no_seed = next(host.index for host in world.hosts if not world.views[host.node].seed_term)
    world, outcome = played(replace(SMALL, kills=(Kill(0.3, seed=True), Kill(0.3, host=no_seed))))
    check_everything_arrived(world)
    assert outcome.hosts_alive == 7
    assert outcome.external_x <= 1.05
    quiet = quiet_run()[1]
    assert outcome.seconds_last <= 1.35 * quiet.seconds_last


def test_all_seeds_dead_at_once_is_no_end() -> None:
    world = World(SMALL)
    seeds = [host.index for host in world.hosts if world.views[host.node].seed_term]
    assert len(seeds) == 3
    world, outcome = played(replace(SMALL, kills=tuple(Kill(0.3, host=index) for index in seeds)))
    check_everything_arrived(world)
    assert outcome.hosts_alive == 6
    assert outcome.external_x <= 1.15


def test_a_claim_that_is_given_up_at_once_is_given_up_for_all_hosts() -> None:
    world = World(TINY)
    claimant, *others = world.hosts
    heard = {host.node: [0] for host in others}

    def listen(host: SimHost) -> None:
        post = host.post

        def hear(event: Event) -> None:
            if isinstance(event, PeerSeen) and event.peer.node == claimant.node:
                heard[host.node].append(event.peer.seed_term)
            post(event)

        host.post = hear  # type: ignore[method-assign]

    for host in others:
        listen(host)
    for term in (7, 0):
        world.claimed(claimant, term)
    while world.clock.step(0.55):
        pass
    assert {terms[-1] for terms in heard.values()} == {0}, (
        "a host that hears of them the other way round kept the claim"
    )


def test_a_slow_host_does_not_hold_the_others() -> None:
    quiet = quiet_run()[1]
    world, outcome = played(replace(SMALL, slowdowns=(Slowdown(0.25, host=0),)))
    check_everything_arrived(world)
    assert outcome.seconds_last <= 1.15 * quiet.seconds_last
    assert outcome.seconds_last_slow is not None
    assert outcome.seconds_last_slow >= 3.9 * outcome.bound_s


def test_oversubscribed_uplinks_are_hidden_by_importing_once() -> None:
    world, outcome = played(replace(SMALL, oversubscription=4))
    check_everything_arrived(world)
    assert outcome.imports_per_rack <= 1.05
    assert outcome.loss_chunk_times <= 60  # against a bound that the uplinks set: three hosts share 0.75 of a link


def test_relays_bring_everything_sooner_than_whole_chunks_do() -> None:
    whole = played(replace(SMALL, told_share=1.0))[1]
    assert quiet_run()[1].seconds_last < whole.seconds_last


def test_what_a_dead_host_was_receiving_does_not_hold_up_those_it_relayed_to() -> None:
    for host in (1, 4, 7):
        world, outcome = played(replace(SMALL, kills=(Kill(0.3, host=host), Kill(0.6, host=host - 1)), rng=host))
        check_everything_arrived(world)
        assert outcome.external_x <= 1.06
        for living in world.hosts:
            assert not living.alive or not living.arrivals


def test_one_rack_and_one_host_work_too() -> None:
    for hosts in (1, 5):
        world, outcome = played(replace(TINY, hosts=hosts, racks=1))
        check_everything_arrived(world)
        assert outcome.external_x == 1


def test_a_cluster_that_has_just_started_elects_waits_and_delivers() -> None:
    world = World(TINY, settled=False)
    world.run()
    check_everything_arrived(world)
    assert simulated(world).external_x <= 1.02


def test_a_larger_cluster_with_neighbours_only_delivers() -> None:
    world, outcome = played(replace(SMALL, hosts=60, racks=6, chunks=48, queue_s=0.001))
    check_everything_arrived(world)
    assert max(len(host.planner.statistics().swarms[world.deployment].readers) for host in world.hosts) == 6
    assert outcome.external_x <= 1.05


def test_a_run_leaves_no_cycles_for_the_collector_to_find() -> None:
    world = World(replace(TINY, kills=(Kill(0.5, share=0.2),)))
    gc.collect()
    gc.disable()
    try:
        world.run()
        assert gc.collect() == 0
    finally:
        gc.enable()
    assert world.unfinished == 0


def test_control_bytes_are_those_of_the_living_until_the_last_healthy_host_is_done() -> None:
    world, outcome = played(replace(SMALL, slowdowns=(Slowdown(0.25, host=0),), kills=(Kill(0.2, host=4),)))
    assert world.control_sent is not None
    assert world.control_sent.until_s == outcome.seconds_last < outcome.seconds_last_slow  # type: ignore[operator]
    quiet = quiet_run()[1].control_bytes_per_node_s
    assert 0.75 * quiet <= outcome.control_bytes_per_node_s <= 1.25 * quiet


def test_where_everybody_is_slow_control_bytes_are_measured_to_the_end() -> None:
    slow = tuple(Slowdown(0.5, host=index) for index in range(TINY.hosts))
    world, outcome = played(replace(TINY, slowdowns=slow))
    assert world.control_sent is None
    assert world.control_until_now().until_s == outcome.seconds_last_slow
    assert outcome.control_bytes_per_node_s > MEMBERSHIP_REST_BYTES_S
