"""Links that are kept at rest go to those who will be neighbours whatever is deployed, on both sides alike."""

from __future__ import annotations

from gossipd.swarm.settings import PlannerSettings
from gossipd.swarm.standing_links import standing_links
from membership.member import NodeId

SETTINGS = PlannerSettings(everyone_max=6, rack_peers_max=4)


def cluster(*racks: int) -> dict[NodeId, str]:
    """So many hosts in each rack."""
    return {NodeId(bytes([rack, at]) * 8): f"rack-{rack}" for rack, size in enumerate(racks) for at in range(size)}


def of(own: NodeId, hosts: dict[NodeId, str]) -> frozenset[NodeId]:
    return standing_links(hosts[own], {node: rack for node, rack in hosts.items() if node != own}, SETTINGS)


def test_in_a_small_cluster_everybody_knows_everybody() -> None:
    hosts = cluster(3, 3)
    assert all(of(own, hosts) == hosts.keys() - {own} for own in hosts)


def test_in_a_larger_one_mates_know_each_other() -> None:
    hosts = cluster(5, 2)
    for own, rack in hosts.items():
        assert of(own, hosts) == {node for node in hosts if hosts[node] == rack and node != own}


def test_in_a_rack_that_is_too_large_who_is_whose_neighbour_is_drawn_for_each_deployment() -> None:
    hosts = cluster(6, 2)
    assert [len(of(own, hosts)) for own in hosts] == [0] * 6 + [1] * 2


def test_a_host_alone_knows_nobody() -> None:
    assert standing_links("rack-1", {}, SETTINGS) == frozenset()
