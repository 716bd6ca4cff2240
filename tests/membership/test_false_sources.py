"""Datagrams from addresses that are not their sender's: no host sends more than it got, and no member moves."""

from __future__ import annotations

import pytest

from membership import wire
from membership.events import SendDatagram
from tests.membership.simulated_cluster import SimulatedCluster

SENDER, HEARER = 1, 0
THIRD_PARTY = ("198.51.100.1", 7946)


def settled() -> SimulatedCluster:
    cluster = SimulatedCluster(8, racks=4, seed=5)
    cluster.start_all_known()
    cluster.run(5.0)
    return cluster


def heard(cluster: SimulatedCluster, datagram: bytes) -> list[SendDatagram]:
    """What one host sends at once when this comes from the third party's address."""
    swim = cluster.swim(HEARER)
    swim.drain()
    swim.handle_datagram(datagram, THIRD_PARTY, cluster.now)
    return [one for one in swim.drain() if isinstance(one, SendDatagram)]


def says_much(cluster: SimulatedCluster) -> None:
    """The host has rumours for whole datagrams."""
    for number in range(2, 8):
        swim = cluster.swim(number)
        swim.update_payload(bytes(60), cluster.now)
        cluster.swim(HEARER)._items.take([swim._node.own.item], cluster.now, cluster.hosts[number].node)


def recorded_join(cluster: SimulatedCluster, index: int) -> bytes:
    """The JOIN of a new life, before any host has heard it."""
    cluster.start(index)
    swim = cluster.swim(index)
    swim.join([cluster.hosts[HEARER].address], cluster.now)
    joins = [one.datagram for one in swim.drain() if isinstance(one, SendDatagram)]
    return next(one for one in joins if len(one) > 1000)


def test_a_ping_from_elsewhere_is_answered_to_its_senders_address_in_as_few_bytes() -> None:
    cluster = settled()
    says_much(cluster)
    seal = cluster.swim(SENDER)._node.seal
    ping = seal.seal(wire.PROBE_HEAD.pack(wire.PING, 7, 0, 0, 0), cluster.hosts[HEARER].node)
    answers = heard(cluster, ping)
    acks = [one for one in answers if one.address == cluster.hosts[SENDER].address]
    assert [len(one.datagram) for one in acks] == [len(ping)]
    assert THIRD_PARTY not in [one.address for one in answers]


def test_a_join_from_elsewhere_is_answered_in_no_more_bytes_than_it_has() -> None:
    cluster = settled()
    cluster.crash(SENDER)
    join = recorded_join(cluster, SENDER)
    answers = [one for one in heard(cluster, join) if one.address == THIRD_PARTY]
    assert len(answers) == 1
    assert len(answers[0].datagram) <= len(join)


def test_a_short_join_is_welcomed_with_the_contacts_own_record_only() -> None:
    cluster = settled()
    cluster.crash(SENDER)
    cluster.start(SENDER)
    own = cluster.swim(SENDER)._node
    join = own.seal.seal(bytes((wire.JOIN, 0)) + own.own.item, None)
    (welcome,) = [one for one in heard(cluster, join) if one.address == THIRD_PARTY]
    body = own.seal.open(welcome.datagram).body
    assert wire.split_items(body, wire.WELCOME_HEAD.size) == [cluster.swim(HEARER)._node.own.item]


@pytest.mark.parametrize("kind", [wire.GOSSIP, wire.ITEMS, wire.PING, wire.JOIN])
def test_no_datagram_from_elsewhere_moves_a_member(kind: int) -> None:
    cluster = settled()
    own = cluster.swim(SENDER)._node
    heads = {wire.PING: wire.PROBE_HEAD.pack(wire.PING, 7, 0, 0, 0), wire.JOIN: bytes((wire.JOIN, 0))}
    body = heads.get(kind, bytes((kind,))) + own.own.item
    receiver = None if kind == wire.JOIN else cluster.hosts[HEARER].node
    heard(cluster, own.seal.seal(body, receiver))
    row = cluster.swim(HEARER).member(cluster.hosts[SENDER].node)
    assert row is not None
    assert row.record.address == cluster.hosts[SENDER].address
    cluster.run(cluster.now + 20.0)
    sent_there = [one for index in range(8) for one in cluster.swim(index).drain() if isinstance(one, SendDatagram)]
    assert THIRD_PARTY not in [one.address for one in sent_there]
