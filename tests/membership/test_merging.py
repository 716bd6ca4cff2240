"""Merging what is heard of members commutes, associates, repeats harmlessly, and brings nobody back from the dead."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from membership import wire
from membership.member import MemberState
from membership.node import ACCUSE_LABEL, ALIVE_LABEL, LEAVE_LABEL
from membership.record import VERSION_MAX, sign_record
from membership.swim import Swim
from tests.membership.simulated_cluster import FORWARDER, RING, SimulatedCluster

SUBJECT, OBSERVER = 1, 0


def world() -> SimulatedCluster:
    cluster = SimulatedCluster(5, racks=5, seed=3)
    cluster.start_all_known()
    return cluster


def claims(cluster: SimulatedCluster) -> list[bytes]:
    """Everything signed that could be said of the subject in two lives, two incarnations and two versions."""
    host = cluster.hosts[SUBJECT]
    sign, label = cluster.keys.signer(host.public), RING.cluster_id
    first = cluster.swim(SUBJECT).self_record()
    said: list[bytes] = []
    for boot in (first.boot, first.boot + 5):
        for version in (1, 2):
            record = replace(first, boot=boot, version=version, payload=b"%d" % version)
            said.append(wire.item(wire.RECORD, sign_record(record, label, sign)[1]))
        for incarnation in (1, 2):
            part = wire.claim_part(host.node[:8], boot, incarnation)
            said.append(wire.item(wire.ALIVE, part + sign(ALIVE_LABEL + label + part)))
    return said


def belief(swim: Swim, cluster: SimulatedCluster) -> tuple[object, ...]:
    row = swim.member(cluster.hosts[SUBJECT].node)
    assert row is not None
    return (row.record, row.state, swim.view_digest)


ORDERS = st.lists(st.integers(0, 7), max_size=16)


@settings(max_examples=60, deadline=None)
@given(ORDERS, st.randoms(use_true_random=False))
def test_records_end_the_same_in_whatever_order_and_however_often_they_come(order: list[int], shuffle: Random) -> None:
    cluster = world()
    said = [claims(cluster)[at] for at in order if claims(cluster)[at][0] == wire.RECORD]
    ours, theirs = cluster.swim(OBSERVER), cluster.swim(2)
    ours._items.take(said, 1.0, FORWARDER)
    twice = said + said
    shuffle.shuffle(twice)
    for item in twice:
        theirs._items.take([item], 1.0, FORWARDER)
    assert belief(ours, cluster) == belief(theirs, cluster)


@settings(max_examples=60, deadline=None)
@given(ORDERS, st.randoms(use_true_random=False))
def test_signs_of_life_of_one_life_end_the_same_in_any_order(order: list[int], shuffle: Random) -> None:
    cluster = world()
    boot = cluster.swim(SUBJECT).self_record().boot
    said = [
        item
        for item in (claims(cluster)[at] for at in order)
        if item[0] == wire.ALIVE and wire.parse_claim(item)[1] == boot
    ]
    ours, theirs = cluster.swim(OBSERVER), cluster.swim(2)
    ours._items.take(said, 1.0, FORWARDER)
    twice = said + said
    shuffle.shuffle(twice)
    theirs._items.take(twice, 1.0, FORWARDER)
    assert belief(ours, cluster) == belief(theirs, cluster)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 7), max_size=12))
def test_nothing_old_brings_back_who_died(order: list[int]) -> None:
    cluster = world()
    ours = cluster.swim(OBSERVER)
    said = claims(cluster)
    newest = said[3]  # second version of the first life comes before; life two is not told yet
    first_life = said[:4]
    ours._items.take([first_life[1], first_life[3]], 1.0, FORWARDER)
    cluster.crash(SUBJECT)
    cluster.run(30.0)
    row = ours.member(cluster.hosts[SUBJECT].node)
    assert row is not None and row.state is MemberState.DEAD
    for at in order:
        ours._items.take([first_life[at % 4]], 31.0, FORWARDER)
    row = ours.member(cluster.hosts[SUBJECT].node)
    assert newest and row is not None and row.state is MemberState.DEAD


def test_a_newer_life_or_a_higher_signed_incarnation_does_bring_it_back() -> None:
    for index in (4, 3):  # a record of the second life; a higher incarnation of the first
        cluster = world()
        ours = cluster.swim(OBSERVER)
        item = claims(cluster)[index]
        cluster.crash(SUBJECT)
        cluster.run(30.0)
        ours._items.take([item], 31.0, FORWARDER)
        row = ours.member(cluster.hosts[SUBJECT].node)
        assert row is not None and row.state is MemberState.ALIVE


def test_nobody_can_speak_for_another() -> None:
    cluster = world()
    ours = cluster.swim(OBSERVER)
    liar, victim = cluster.hosts[2], cluster.hosts[SUBJECT]
    sign, label = cluster.keys.signer(liar.public), RING.cluster_id
    boot = cluster.swim(SUBJECT).self_record().boot
    claim = wire.claim_part(victim.node[:8], boot, 9)
    framed = wire.accusation_part(cluster.hosts[3].node[:8], victim.node[:8], boot, 0)
    forged = replace(cluster.swim(SUBJECT).self_record(), rack="forged", version=9)
    before = belief(ours, cluster)
    ours._items.take(
        [
            wire.item(wire.ALIVE, claim + sign(ALIVE_LABEL + label + claim)),
            wire.item(wire.LEAVE, claim + sign(LEAVE_LABEL + label + claim)),
            wire.item(wire.ACCUSE, framed + sign(ACCUSE_LABEL + label + framed)),
            wire.item(wire.RECORD, sign_record(forged, label, sign)[1]),
        ],
        1.0,
        FORWARDER,
    )
    assert belief(ours, cluster) == before
    assert ours.statistics()["dropped_bad_items"] == 4


def test_goodbye_is_final_for_that_life() -> None:
    cluster = world()
    ours = cluster.swim(OBSERVER)
    host = cluster.hosts[SUBJECT]
    sign, label = cluster.keys.signer(host.public), RING.cluster_id
    boot = cluster.swim(SUBJECT).self_record().boot
    part = wire.claim_part(host.node[:8], boot, 0)
    ours._items.take([wire.item(wire.LEAVE, part + sign(LEAVE_LABEL + label + part))], 1.0, FORWARDER)
    ours._items.take(claims(cluster)[2:4], 2.0, FORWARDER)
    row = ours.member(host.node)
    assert row is not None and row.state is MemberState.LEFT


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_authentic_rubbish_changes_nothing_and_raises_nothing(data: st.DataObject) -> None:
    """A member with the cluster key sends mutated bodies: sealed well, so they reach every parser."""
    cluster = world()
    liar, target = cluster.hosts[2], cluster.hosts[OBSERVER]
    assert liar.seal is not None
    before = {row.record for row in cluster.swim(OBSERVER).members()}
    samples = [wire.PROBE_HEAD.pack(kind, 1, 2, 3, 0) for kind in range(1, 16)] + [b"\x05" + claims(cluster)[0]]
    for _ in range(20):
        body = bytearray(data.draw(st.sampled_from(samples)) + data.draw(st.binary(max_size=60)))
        for _ in range(data.draw(st.integers(0, 4))):
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
        sealed = liar.seal.seal(bytes(body), target.node)
        cluster.swim(OBSERVER).handle_datagram(sealed, liar.address, 1.0)
        cluster.swim(OBSERVER).drain()
    assert {row.record for row in cluster.swim(OBSERVER).members()} == before


def test_a_clone_that_used_up_the_versions_of_our_boot_leaves_us_room_to_speak() -> None:
    cluster = world()
    ours = cluster.swim(OBSERVER)
    host = cluster.hosts[OBSERVER]
    last = replace(ours.self_record(), version=VERSION_MAX)
    ours._items.take(
        [wire.item(wire.RECORD, sign_record(last, RING.cluster_id, cluster.keys.signer(host.public))[1])],
        1.0,
        FORWARDER,
    )
    assert (ours.self_record().boot, ours.self_record().version) == (last.boot + 1, 1)
    ours.update_payload(b"news", 2.0)
    assert ours.self_record().payload == b"news"
