"""Bad signatures cost their sender, not their receiver, and not the honest who pass words on."""

from __future__ import annotations

from membership import wire
from membership.fakes import OpenSeal
from membership.forgeries import ForgeryBudgets
from membership.member import NodeId
from tests.membership.simulated_cluster import RING, SimulatedCluster

OBSERVER, VICTIM, LIAR = 0, 1, 2


def settled() -> SimulatedCluster:
    cluster = SimulatedCluster(6, racks=4, seed=3)
    cluster.start_all_known()
    cluster.run(2.0)
    return cluster


def count(cluster: SimulatedCluster, name: str) -> int:
    return cluster.swim(OBSERVER).statistics().get(name, 0)


def forgery(cluster: SimulatedCluster, number: int) -> bytes:
    """A contradiction of the victim's that it never signed."""
    claim = cluster.swim(OBSERVER)._node.roster.claims[cluster.hosts[VICTIM].node[:8]]
    part = wire.claim_part(claim.handle, claim.record.boot, claim.incarnation + 1 + number)
    return wire.item(wire.ALIVE, part + number.to_bytes(64))


def flood(cluster: SimulatedCluster, count: int, *, named: int = LIAR, body: bytes = b"") -> None:
    """Datagrams from the liar's address, in the name of ``named``."""
    host = cluster.hosts[named]
    seal = host.seal if named == LIAR else OpenSeal(RING, host.node, cluster.swim(named).self_record().boot)
    assert seal is not None
    for number in range(count):
        said = body + number.to_bytes(64) if body else bytes((wire.GOSSIP,)) + forgery(cluster, number)
        cluster.inject(LIAR, cluster.hosts[OBSERVER].address, seal.seal(said, cluster.hosts[OBSERVER].node))
        cluster.run(cluster.now + 0.01)


def test_a_flood_of_forgeries_is_checked_in_part_only() -> None:
    cluster = settled()
    flood(cluster, 500)
    assert 32 <= count(cluster, "dropped_bad_items") <= 32 + 2 * 6
    assert count(cluster, "dropped_forgers") > 450


def test_who_is_named_in_the_head_of_forgeries_is_heard_as_before() -> None:
    cluster = settled()
    flood(cluster, 200, named=VICTIM)
    assert count(cluster, "dropped_forgers") > 150
    dropped = count(cluster, "dropped_forgers")
    victim = cluster.swim(VICTIM)._node
    cluster.swim(VICTIM).update_payload(b"news", cluster.now)
    observer = victim.roster.claims[cluster.hosts[OBSERVER].node[:8]]
    victim.send_bare(observer, bytes((wire.GOSSIP,)) + victim.own.item)
    cluster._flush(VICTIM)
    cluster.run(cluster.now + 0.01)
    row = cluster.swim(OBSERVER).member(cluster.hosts[VICTIM].node)
    assert row is not None and row.record.payload == b"news"
    assert count(cluster, "dropped_forgers") == dropped
    assert count(cluster, "deaths") == 0


def test_a_forger_is_heard_again_when_it_has_stopped() -> None:
    cluster = settled()
    flood(cluster, 100)
    cluster.run(cluster.now + 10.0)
    cluster.swim(LIAR).update_payload(b"good", cluster.now)
    cluster._flush(LIAR)
    cluster.run(cluster.now + 10.0)
    row = cluster.swim(OBSERVER).member(cluster.hosts[LIAR].node)
    assert row is not None and row.record.payload == b"good"


def test_forged_requests_to_join_are_checked_in_part_only() -> None:
    cluster = settled()
    record = cluster.swim(LIAR)._node.own.record_bytes[:-64]
    head = bytes((wire.JOIN, 0)) + wire.item(wire.RECORD, record + bytes(64))[:-64]
    before = cluster.verified_cache.verifications
    flood(cluster, 300, body=head)
    assert 32 <= cluster.verified_cache.verifications - before <= 32 + 2 * 4
    assert count(cluster, "dropped_forgers") > 200


def test_refused_events_do_not_silence_who_brings_some() -> None:
    cluster = settled()
    liar = cluster.hosts[LIAR].node
    refused = [wire.event(1, liar, number, b"%d" % number, b"forged") for number in range(400)]
    for item in refused[:100]:
        cluster.swim(OBSERVER)._items.take([item], cluster.now, NodeId(liar))
    assert count(cluster, "dropped_forgers") == 0
    cluster.swim(OBSERVER)._items.take(refused, cluster.now, NodeId(liar))
    assert count(cluster, "statements_refused_judge") == 256
    cluster.swim(OBSERVER)._items.take([cluster.swim(VICTIM)._node.own.item], cluster.now, NodeId(liar))
    assert count(cluster, "dropped_forgers") == 244


def test_budgets_fill_with_time_and_are_bounded() -> None:
    budgets = ForgeryBudgets(2.0, 1.0)
    for number in range(10_000):
        budgets.charge(number, 0.0)
    assert len(budgets) == 4096
    assert not budgets.is_spent(9_999, 0.0)
    budgets.charge(9_999, 0.0)
    assert budgets.is_spent(9_999, 0.5)
    assert not budgets.is_spent(9_999, 1.0)
    assert not budgets.is_spent(0, 0.0)
