"""What the picture of a run says: every rack to its end, the dead, the slow, the cluster."""

from __future__ import annotations

from gossipd.sim.plot import curve_of, deaths, end_s, rack_curves, title_of
from gossipd.sim.scenario import Kill, Scenario, Slowdown
from gossipd.sim.world import World

LINK = 100e6 / 8


def run_of(*, hosts: int = 6, chunks: int = 32, kills: tuple[Kill, ...] = (), slow: tuple[int, ...] = ()) -> World:
    slowdowns = tuple(Slowdown(0.25, host=host) for host in slow)
    world = World(
        Scenario(
            hosts=hosts, racks=2, size=8 << 20, chunks=chunks, link=LINK, external=LINK, kills=kills,
            slowdowns=slowdowns,
        ),
        keep_arrivals=True,
    )  # fmt: skip
    world.run()
    return world


def test_a_curve_of_few_points_ends_with_the_last_chunk() -> None:
    world = run_of(chunks=211)  # 1,266 chunks in all: every third is drawn, and 1,265 is none of those
    times, shares = curve_of(world, range(6))
    assert len(times) < 500
    assert (times[-1], shares[-1]) == (max(when for timeline in world.timeline for when in timeline), 100)


def test_racks_with_dead_and_slow_hosts_reach_the_end_too() -> None:
    world = run_of(kills=(Kill(0.3, host=4),), slow=(1,))
    curves = rack_curves(world)
    assert sorted(rack for rack, _ in curves) == [0, 1]
    assert [curve[1][-1] for _, curve in curves] == [100, 100]
    assert [curve[0][-1] for _, curve in curves] == sorted(curve[0][-1] for _, curve in curves), "the first comes first"
    assert curves[-1][1][0][-1] <= end_s(world), "chunks are stored before their host is done"


def test_scales_end_with_the_last_host_that_is_not_slow() -> None:
    world = run_of(slow=(1,))
    late = world.hosts[1].done_s
    assert late is not None
    assert end_s(world) == max(host.done_s or 0.0 for host in world.hosts if host.index != 1) < late


def test_a_rack_of_which_nobody_lives_has_no_curve() -> None:
    world = run_of(kills=tuple(Kill(0.3, host=host) for host in (3, 4, 5)))
    assert [rack for rack, _ in rack_curves(world)] == [0]


def test_deaths_that_came_have_their_time_and_their_number() -> None:
    world = run_of(kills=(Kill(0.3, host=4), Kill(0.95, host=1)))
    ((when, count),) = deaths(world)
    assert count == 1
    assert max(world.timeline[4]) <= when < end_s(world), "the second was not reached: the dead take no more"


def test_the_title_has_cluster_model_rates_and_strategy() -> None:
    scenario = Scenario(
        hosts=1000, racks=1, size=500 * 10**9, chunks=200, link=10e9 / 8, external=25e9 / 8, oversubscription=4
    )
    world = World.__new__(World)  # 1,000 planners are not needed for a title
    world.scenario = scenario
    assert title_of(world) == (
        "1,000 hosts in 1 rack, 500 GB in 200 chunks; links 10 Gbit/s, storage 25 Gbit/s, uplinks 4:1; strategy: swarm"
    )
