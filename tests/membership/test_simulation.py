"""Clusters under faults on the virtual clock, with every rule checked after every event."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from membership.events import PayloadKind
from tests.bench.liars import SORTS, Liars
from tests.membership.checkers import Rule, all_rules
from tests.membership.simulated_cluster import SimulatedCluster

MEMBERS = 40


def watched(seed: int, sick: set[int]) -> tuple[SimulatedCluster, list[Rule]]:
    rules = all_rules(sick)
    cluster = SimulatedCluster(MEMBERS, racks=8, seed=seed, checkers=rules, trace=True)
    cluster.start_all_known()
    cluster.run(2.0)
    return cluster, rules


def full(cluster: SimulatedCluster) -> bool:
    running = [host.swim for host in cluster.hosts if host.up and host.swim is not None]
    return (
        all(swim.statistics()["members_live"] == len(running) for swim in running)
        and len({s.view_digest for s in running}) == 1
    )


def flap(
    cluster: SimulatedCluster, sick: list[int], off: Callable[[], None], on: Callable[[], None], times: int = 3
) -> None:
    for _ in range(times):
        off()
        cluster.run(cluster.now + 10.0)
        on()
        cluster.run(cluster.now + 4.0)


@pytest.mark.parametrize("queue", [False, True])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_minority_that_is_cut_off_again_and_again_harms_no_healthy_member(
    seed: int, together: bool, queue: bool
) -> None:
    sick = Random(seed).sample(range(MEMBERS), 5)
    cluster, rules = watched(seed, set(sick))
    flap(cluster, sick, lambda: cluster.cut(sick, together=together, queue=queue), cluster.heal)
    assert cluster.run_until(lambda: full(cluster), 20.0) is not None
    assert cluster.struck["cut_queue" if queue else "cut_drop"] > 100
    assert all(rule.looked for rule in rules[:6])


def test_stopped_members_harm_no_healthy_member() -> None:
    sick = [3, 11, 22, 37]
    cluster, _ = watched(5, set(sick))

    def stop() -> None:
        for index in sick:
            cluster.freeze(index)

    def go_on() -> None:
        for index in sick:
            cluster.thaw(index)

    flap(cluster, sick, stop, go_on)
    assert cluster.run_until(lambda: full(cluster), 20.0) is not None
    assert cluster.struck["freeze"] == 12


def test_loss_duplicates_reordering_and_slow_hosts_kill_nobody() -> None:
    cluster, _ = watched(7, set())
    cluster.loss, cluster.duplicate, cluster.reorder = 0.05, 0.05, 0.1
    cluster.hosts[4].slow_s = 0.03
    for version in range(10):
        cluster.swim(version).publish(PayloadKind.STATEMENT, b"key", version + 1, b"word", cluster.now)
        cluster.run(cluster.now + 6.0)
    assert full(cluster)
    assert min(cluster.struck[name] for name in ("loss", "duplicate", "reorder", "slow")) > 50


def starve(cluster: SimulatedCluster, mean_s: dict[int, float]) -> None:
    """From now on each host runs for a moment and then waits for the CPU, for so long on average, 2.5 s at most."""

    def stop(index: int) -> None:
        cluster.freeze(index)
        cluster.at(cluster.now + min(2.5, cluster.rng.expovariate(1 / mean_s[index])), go_on, index)

    def go_on(index: int) -> None:
        cluster.thaw(index)
        cluster.at(cluster.now + 0.02, stop, index)

    for index, mean in mean_s.items():
        cluster.at(cluster.now + cluster.rng.random() * mean, stop, index)


@pytest.mark.parametrize("seed", [4, 8, 10])
def test_hosts_that_all_wait_for_the_cpu_kill_nobody(seed: int) -> None:
    cluster, _ = watched(seed, set())
    starve(cluster, {index: 0.8 if index < 4 else 0.2 for index in range(MEMBERS)})
    cluster.run(cluster.now + 60.0)
    assert cluster.struck["freeze"] > 2_000


def test_a_host_that_hears_nothing_or_is_not_heard_condemns_nobody() -> None:
    cluster, _ = watched(9, {1, 2})
    cluster.hosts[1].loss_in = 1.0
    cluster.hosts[2].loss_out = 1.0
    cluster.run(cluster.now + 40.0)
    cluster.hosts[1].loss_in = cluster.hosts[2].loss_out = 0.0
    assert cluster.run_until(lambda: full(cluster), 20.0) is not None
    assert min(cluster.struck["loss_in"], cluster.struck["loss_out"]) > 50


def test_leaping_clocks_kill_nobody() -> None:
    cluster, _ = watched(11, set())
    for index in (1, 2, 3):
        cluster.jump_clock(index, 3600.0 * index)
    cluster.run(cluster.now + 30.0)
    assert full(cluster)
    assert cluster.struck["clock_jump"] == 3


@pytest.mark.parametrize(("share", "length_s"), [(2, 60.0), (8, 60.0), (8, 600.0)])
def test_a_partition_heals_by_itself(share: int, length_s: float) -> None:
    away = set(range(MEMBERS // share))
    cluster, _ = watched(13, away)
    cluster.cut(away, together=True)
    cluster.run(cluster.now + length_s)
    cluster.heal()
    assert cluster.run_until(lambda: full(cluster), 20.0) is not None
    cluster.run(cluster.now + 60.0)
    assert full(cluster)


def test_restarts_with_and_without_state_at_once_end_in_full_views() -> None:
    cluster, _ = watched(15, set(range(MEMBERS)))
    for index in range(MEMBERS):
        cluster.restart(index, join=((index + 1) % MEMBERS, (index + 7) % MEMBERS), keep_roster=index % 2 == 0)
    assert cluster.run_until(lambda: full(cluster), 30.0) is not None
    assert min(cluster.struck["restart_with_state"], cluster.struck["restart_without_state"]) >= 10


def test_everybody_who_dies_is_found_and_nobody_else() -> None:
    cluster, _ = watched(17, set())
    for index in (5, 6, 7, 8):
        cluster.crash(index)
    assert cluster.run_until(lambda: full(cluster), 15.0) is not None


def test_liars_with_the_cluster_key_kill_nobody_and_forge_nothing() -> None:
    cluster, _ = watched(19, {1, 2, 3})
    liars = Liars(cluster, [1, 2, 3], Random(1), every_s=0.2)
    liars.begin()
    cluster.run(cluster.now + 30.0)
    assert liars.forged_accepted() == 0
    assert min(liars.told[sort] for sort in (*SORTS, "replay")) > 5
    honest = [cluster.swim(index) for index in range(MEMBERS) if index not in liars.indexes]
    for name in ("boots_refused", "notices_refused", "statements_refused_judge", "members_refused_address"):
        assert sum(swim.statistics().get(name, 0) for swim in honest) > 5, name
    assert 0 < liars.third_party_datagrams() <= MEMBERS * 17
    for swim in honest:
        rows = [swim.member(host.node) for host in cluster.hosts]
        assert all(row is not None and row.incarnation < 1_000 for row in rows)
    cluster.swim(MEMBERS - 1).publish(PayloadKind.STATEMENT, b"key", 1, b"word", cluster.now)
    cluster._flush(MEMBERS - 1)
    cluster.run(cluster.now + 2.0)
    assert all(b"key" in swim._event_store._statements for swim in honest)


def test_the_same_seed_gives_the_same_trace_and_another_one_another() -> None:
    def trace(seed: int) -> str:
        cluster, _ = watched(seed, set(range(MEMBERS)))
        cluster.loss = 0.05
        cluster.cut([1, 2], together=True)
        cluster.run(cluster.now + 8.0)
        cluster.heal()
        cluster.run(cluster.now + 5.0)
        return cluster.trace_hash

    assert trace(1) == trace(1)
    assert trace(1) != trace(2)


def test_joins_and_goodbyes_without_end_leave_a_bounded_state() -> None:
    cluster = SimulatedCluster(4, seed=21)
    for index in range(4):
        cluster.start(index, join=(0,) if index else ())
    cluster.run(3.0)
    for number in range(60):
        guest = cluster.add_host(f"guest-{number % 3}", "rack-0")
        cluster.start(guest, join=(number % 4,))
        cluster.run(cluster.now + 1.0)
        cluster.swim(guest).leave(cluster.now)
        cluster._flush(guest)
        cluster.hosts[guest].up = False
        cluster.run(cluster.now + 0.5)
    cluster.run(cluster.now + 200.0)
    assert cluster.swim(0).statistics()["members_live"] == 4
    assert cluster.swim(0).statistics()["members_known"] <= 8


@pytest.mark.parametrize("seed", [1, 2])
def test_two_that_hear_only_each_other_declare_nobody_dead(seed: int) -> None:
    cluster, _ = watched(seed, {0, 1})
    cluster.cut(range(2), together=True)
    cluster.run(cluster.now + 100.0)
    deaths = [host.swim.statistics().get("deaths", 0) for host in cluster.hosts if host.swim is not None]
    assert deaths[:2] == [0, 0]
    assert all(count == 2 for count in deaths[2:])
