"""Two processes with one node key: neither gives way in silence, every host sees both, and the network stays quiet."""

from __future__ import annotations

import pytest

from membership.events import Event, MemberChanged, MemberUp, OwnRecordOutdone
from membership.member import Address, MemberState
from tests.membership.simulated_cluster import SimulatedCluster

ORIGINAL, OBSERVER, FIRST_S, LONG_S = 2, 0, 20.0, 600.0


def cluster_with_a_clone(
    members: int = 8, *, seed: int = 5, in_one_second: bool = False
) -> tuple[SimulatedCluster, int, dict[int, list[Address]], list[int]]:
    """A cluster whose host 2 was cloned with its roster; what addresses each host has seen, and who was outdone.
    ``in_one_second``: both have begun in one second, with the same boot number."""
    cluster = SimulatedCluster(members, racks=4, seed=seed)
    cluster.start_all_known()
    cluster.run(2.0)
    node = cluster.hosts[ORIGINAL].node
    seen: dict[int, list[Address]] = {index: [cluster.hosts[ORIGINAL].address] for index in range(members)}
    outdone: list[int] = []

    def on_event(index: int, event: Event) -> None:
        if isinstance(event, MemberUp | MemberChanged) and event.member.record.node == node and index in seen:
            address = event.member.record.address
            if seen[index][-1] != address:
                seen[index].append(address)
        elif isinstance(event, OwnRecordOutdone):
            outdone.append(index)

    cluster.on_event = on_event
    clone = cluster.add_host("host-2", cluster.hosts[ORIGINAL].rack)
    cluster.hosts[clone].public = cluster.hosts[ORIGINAL].public
    swim = cluster.swim(ORIGINAL)
    own = swim.member(cluster.hosts[ORIGINAL].node)
    assert own is not None
    cluster.start(clone, roster=swim.roster_records(), boot=own.record.boot if in_one_second else None)
    cluster.by_node[node] = ORIGINAL
    return cluster, clone, seen, outdone


@pytest.mark.parametrize("in_one_second", [False, True])
@pytest.mark.parametrize(("members", "seed"), [(8, 5), (3, 10), (3, 11), (3, 18)])
def test_every_host_sees_a_cloned_key_at_both_addresses_within_seconds(
    *, members: int, seed: int, in_one_second: bool
) -> None:
    cluster, clone, seen, outdone = cluster_with_a_clone(members, seed=seed, in_one_second=in_one_second)
    both = {cluster.hosts[ORIGINAL].address, cluster.hosts[clone].address}
    cluster.run(cluster.now + FIRST_S)
    for index, addresses in seen.items():
        if index != ORIGINAL:
            assert set(addresses) == both
            assert len(addresses) >= 3, "there and back"
    assert {ORIGINAL, clone} <= set(outdone), "both know it of themselves"
    assert outdone.count(ORIGINAL) >= 2 or outdone.count(clone) >= 2


def test_two_processes_with_one_key_speak_against_each_other_ever_more_seldom() -> None:
    cluster, _clone, _seen, outdone = cluster_with_a_clone()
    cluster.run(cluster.now + LONG_S)
    assert 4 <= len(outdone) <= 4 * 16
    assert all(
        cluster.swim(OBSERVER).member(host.node).state is MemberState.ALIVE  # type: ignore[union-attr]
        for host in cluster.hosts
        if host.public != cluster.hosts[ORIGINAL].public
    ), "nobody else is harmed"


def test_a_clone_that_is_stopped_leaves_the_original_alive_where_it_was() -> None:
    cluster, clone, _seen, _outdone = cluster_with_a_clone()
    cluster.run(cluster.now + FIRST_S)
    cluster.crash(clone)
    cluster.run(cluster.now + 180.0)
    row = cluster.swim(OBSERVER).member(cluster.hosts[ORIGINAL].node)
    assert row is not None
    assert (row.state, row.record.address) == (MemberState.ALIVE, cluster.hosts[ORIGINAL].address)
