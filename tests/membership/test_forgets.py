"""Forgetting, on small clusters: who was away hears of it, who lives stays, and nobody comes back by hearsay."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from membership import wire
from membership.events import PayloadKind
from membership.member import MemberState
from membership.node import FORGET_LABEL
from membership.record import sign_record
from membership.roster import Gone
from tests.membership.simulated_cluster import FORWARDER, RING, SimulatedCluster

GONE, AWAY, SPEAKER = 7, 6, 2


def settled(members: int = 8) -> SimulatedCluster:
    cluster = SimulatedCluster(members, racks=4, seed=5)
    cluster.start_all_known()
    cluster.run(2.0)
    return cluster


def forget(cluster: SimulatedCluster, index: int = SPEAKER) -> None:
    assert cluster.swim(index).forget(cluster.hosts[GONE].node, cluster.now)
    cluster._flush(index)


def knows(cluster: SimulatedCluster, index: int) -> bool:
    return cluster.swim(index).member(cluster.hosts[GONE].node) is not None


def is_one_view(cluster: SimulatedCluster, live: int) -> bool:
    running = [index for index, host in enumerate(cluster.hosts) if host.up]
    counts = {cluster.swim(index).statistics()["members_live"] for index in running}
    return counts == {live} and len({cluster.swim(index).view_digest for index in running}) == 1


def forgotten_while_away(*, seconds: float, knew: bool = False, queue: bool = False) -> SimulatedCluster:
    """One host is off the network while a member is forgotten; with ``knew`` it has seen the death before."""
    cluster = settled()
    cluster.crash(GONE)
    if knew:
        cluster.run(cluster.now + 20.0)
    cluster.cut((AWAY,), together=True, queue=queue)
    cluster.run(cluster.now + 20.0)
    forget(cluster)
    cluster.run(cluster.now + seconds)
    cluster.heal()
    return cluster


@pytest.mark.parametrize("queue", [False, True])
@pytest.mark.parametrize("seconds", [2.0, 60.0])
def test_a_host_that_was_away_during_a_forget_forgets_too(seconds: float, queue: bool) -> None:
    cluster = forgotten_while_away(seconds=seconds, queue=queue)
    assert knows(cluster, AWAY)
    cluster.run(cluster.now + 60.0)
    assert not any(knows(cluster, index) for index in range(7))
    assert is_one_view(cluster, 7)


def test_a_host_that_knew_of_the_death_hears_of_the_forget_too() -> None:
    cluster = forgotten_while_away(seconds=30.0, knew=True)
    row = cluster.swim(AWAY).member(cluster.hosts[GONE].node)
    assert row is not None and row.state is MemberState.DEAD
    cluster.run(cluster.now + 60.0)
    assert not any(knows(cluster, index) for index in range(7))


def test_a_host_that_starts_with_an_old_roster_forgets_too() -> None:
    cluster = settled()
    old = cluster.swim(AWAY).roster_records()
    cluster.crash(AWAY)
    cluster.crash(GONE)
    cluster.run(cluster.now + 20.0)
    forget(cluster)
    cluster.run(cluster.now + 30.0)
    cluster.start(AWAY, roster=old)
    cluster.run(cluster.now + 60.0)
    assert not any(knows(cluster, index) for index in range(7))
    assert is_one_view(cluster, 7)


def test_hosts_without_state_forget_what_a_returning_host_tells_them() -> None:
    cluster = settled(16)
    cluster.crash(GONE)
    cluster.cut((AWAY,), together=True)
    cluster.run(cluster.now + 20.0)
    forget(cluster)
    cluster.run(cluster.now + 2.0)
    for index in (0, 1, 3, 4):
        cluster.restart(index, join=(SPEAKER, AWAY), keep_roster=False)
    cluster.run(cluster.now + 2.0)
    cluster.heal()
    cluster.swim(AWAY)
    for index in (0, 1, 3, 4):  # told at once, before the speaker itself has come to its verdict
        record = cluster.swim(AWAY)._node.roster.claims[cluster.hosts[GONE].node[:8]].item
        cluster.swim(index)._items.take([record], cluster.now, FORWARDER)
        cluster._flush(index)
    assert knows(cluster, 0)
    cluster.run(cluster.now + 60.0)
    assert not any(knows(cluster, index) for index in range(16) if index != GONE)
    assert is_one_view(cluster, 15)


def test_who_alone_has_a_member_comes_to_its_own_verdict() -> None:
    cluster = settled(16)
    record = cluster.swim(GONE)._node.own.item
    cluster.crash(GONE)
    cluster.run(cluster.now + 20.0)
    for index in range(16):
        if index != GONE:
            cluster.swim(index)._forgets.remove(cluster.hosts[GONE].node[:8], cluster.now)
            cluster.swim(index)._forgets.tombstones.lift(cluster.hosts[GONE].node[:8])
    cluster.swim(AWAY)._items.take([record], cluster.now, FORWARDER, relay=False)
    helpers = [index for index in range(16) if index not in (AWAY, GONE)]
    for index in helpers:  # nobody takes it over
        cluster.swim(index)._forgets.tombstones.add(cluster.hosts[GONE].node[:8], 2**62, cluster.now)
    cluster.run(cluster.now + 60.0)
    row = cluster.swim(AWAY).member(cluster.hosts[GONE].node)
    assert row is not None and row.state is MemberState.DEAD


def test_a_member_that_was_forgotten_while_away_comes_back_by_itself() -> None:
    cluster = settled()
    cluster.cut((GONE,), together=True)
    cluster.run(cluster.now + 20.0)
    forget(cluster)
    cluster.run(cluster.now + 20.0)
    cluster.heal()
    cluster.run(cluster.now + 60.0)
    assert is_one_view(cluster, 8)


def test_halves_of_which_one_forgot_a_member_of_the_other_become_one() -> None:
    cluster = settled(12)
    cluster.cut((5, 6, GONE, 8, 9), together=True)
    cluster.run(cluster.now + 30.0)
    forget(cluster)
    cluster.run(cluster.now + 10.0)
    cluster.heal()
    cluster.run(cluster.now + 90.0)
    assert is_one_view(cluster, 12)


@pytest.mark.parametrize("how", ["forgotten", "left"])
def test_an_old_record_brings_nobody_back_after_all_hosts_were_restarted(how: str) -> None:
    cluster = settled()
    gone = cluster.swim(GONE)
    record = gone._node.own.item
    if how == "left":
        gone.leave(cluster.now)
        cluster._flush(GONE)
    cluster.crash(GONE)
    cluster.run(cluster.now + 20.0)
    if how == "forgotten":
        forget(cluster)
        cluster.run(cluster.now + 20.0)
    for life in range(2):
        for index in range(7):
            cluster.restart(index, join=((index + 1) % 7,))
        cluster.run(cluster.now + 10.0 + life)
    for index in range(7):
        cluster.swim(index)._items.take([record], cluster.now, FORWARDER)
        cluster._flush(index)
    cluster.run(cluster.now + 30.0)
    assert not any(knows(cluster, index) for index in range(7))
    assert is_one_view(cluster, 7)
    cluster.start(GONE, join=(0,))
    cluster.run(cluster.now + 30.0)
    assert is_one_view(cluster, 8), "a life of its own passes"


def test_a_recorded_join_brings_a_forgotten_life_back_from_its_own_address_only() -> None:
    cluster = settled()
    gone = cluster.hosts[GONE]
    own = cluster.swim(GONE)._node
    joins = [own.seal.seal(bytes((wire.JOIN, 0)) + own.own.item, None) for _ in range(2)]
    cluster.crash(GONE)
    cluster.run(cluster.now + 20.0)
    forget(cluster)
    cluster.run(cluster.now + 5.0)
    for join, address in zip(joins, [("198.51.100.1", 7946), gone.address], strict=True):
        assert not knows(cluster, 0)
        cluster.swim(0).handle_datagram(join, address, cluster.now)
    assert knows(cluster, 0)


def test_after_a_restart_a_forget_is_told_again_in_ones_own_name() -> None:
    cluster = settled()
    record = cluster.swim(GONE)._node.own.item
    cluster.crash(GONE)
    cluster.run(cluster.now + 20.0)
    forget(cluster)
    cluster.restart(SPEAKER, join=(0,))
    cluster.run(cluster.now + 5.0)
    for index in range(7):
        if index != SPEAKER:  # what a host without state has
            cluster.swim(index)._forgets.tombstones.lift(cluster.hosts[GONE].node[:8])
    cluster.swim(AWAY)._items.take([record], cluster.now, FORWARDER)
    cluster._flush(AWAY)
    cluster.run(cluster.now + 60.0)
    assert not any(knows(cluster, index) for index in range(7))


def test_a_liars_forget_hides_no_living_member_from_a_newcomer() -> None:
    cluster = settled()
    late = cluster.add_host("late", "rack-0")
    cluster.start(late)
    part = wire.forget_part(
        cluster.hosts[SPEAKER].node[:8], cluster.hosts[GONE].node[:8], cluster.swim(GONE).self_record().boot
    )
    sign = cluster.keys.signer(cluster.hosts[SPEAKER].public)
    word = wire.item(wire.FORGET, part + sign(FORGET_LABEL + RING.cluster_id + part))
    speaker = cluster.swim(SPEAKER)._node.own.item
    cluster.swim(late)._items.take([speaker, word], cluster.now, FORWARDER)
    cluster.swim(late).join([cluster.hosts[0].address], cluster.now)
    cluster._flush(late)
    cluster.swim(late)._items.take([word], cluster.now, FORWARDER)
    cluster.run(cluster.now + 20.0)
    assert is_one_view(cluster, 9)


def test_a_forget_of_a_later_life_replaces_the_one_that_waits() -> None:
    cluster = settled()
    sign = cluster.keys.signer(cluster.hosts[SPEAKER].public)
    boot = cluster.swim(GONE).self_record().boot
    for number in (boot + 5, boot, boot + 10):
        part = wire.forget_part(cluster.hosts[SPEAKER].node[:8], cluster.hosts[GONE].node[:8], number)
        word = wire.item(wire.FORGET, part + sign(FORGET_LABEL + RING.cluster_id + part))
        cluster.swim(0)._items.take([word], cluster.now, FORWARDER)
    waiting = cluster.swim(0)._forgets._waiting
    assert [word.boot for word in waiting.values()] == [boot + 10]


def test_a_living_member_of_which_a_forget_speaks_is_probed_next() -> None:
    cluster = settled()
    roster = cluster.swim(0)._node.roster
    for handle in [handle for handle in roster.claims if handle != roster.own.handle]:
        roster.probe_next(handle)
        claim = roster.next_to_probe()
        assert claim is not None and claim.handle == handle


def test_accusations_far_beyond_the_known_incarnation_come_with_the_proof() -> None:
    cluster = settled()
    cluster.cut((AWAY,), together=True)
    cluster.run(cluster.now + 10.0)
    subject = cluster.swim(GONE)._node
    for incarnation in range(1, 41):
        subject.raise_incarnation(incarnation, cluster.now)
    cluster._flush(GONE)
    cluster.run(cluster.now + 5.0)
    cluster.crash(GONE)
    cluster.run(cluster.now + 30.0)
    server = cluster.swim(0)._answers
    told = server.items_of(cluster.hosts[GONE].node[:8], wire.WANT_LIVENESS)
    assert [item[0] for item in told[:2]] == [wire.ALIVE, wire.ACCUSE]
    cluster.swim(AWAY)._items.take(told, cluster.now, FORWARDER)
    row = cluster.swim(AWAY).member(cluster.hosts[GONE].node)
    assert row is not None and (row.state, row.incarnation) == (MemberState.SUSPECT, 40)


def test_a_later_life_that_is_over_elsewhere_is_heard_of() -> None:
    cluster = settled()
    own = cluster.swim(GONE).self_record()
    sign = cluster.keys.signer(cluster.hosts[GONE].public)
    later = sign_record(replace(own, boot=own.boot + 5), RING.cluster_id, sign)[1]
    for index, state in ((0, MemberState.ALIVE), (1, MemberState.DEAD)):
        if state is MemberState.DEAD:
            cluster.crash(GONE)
            cluster.run(cluster.now + 20.0)
        swim = cluster.swim(index)
        swim._items.take([wire.roster(wire.STATE_DEAD, 0, later)], cluster.now, FORWARDER, relay=False)
        row = swim.member(cluster.hosts[GONE].node)
        assert row is not None and (row.record.boot, row.state) == (own.boot + 5, state)


def test_who_speaks_of_a_forgotten_member_is_told_at_once() -> None:
    cluster = settled()
    handle = cluster.hosts[GONE].node[:8]
    claim = cluster.swim(0)._node.roster.claims[handle]
    cluster.crash(GONE)
    cluster.run(cluster.now + 20.0)
    forget(cluster)
    cluster.run(cluster.now + 30.0)
    away = cluster.swim(AWAY)._node
    away.roster.put(claim, cluster.now, Gone(MemberState.DEAD, cluster.now))
    away.send_bare(away.roster.claims[cluster.hosts[0].node[:8]], bytes((wire.ITEMS,)) + claim.item)
    cluster._flush(AWAY)
    cluster.run(cluster.now + 0.01)
    assert not knows(cluster, AWAY)
    assert not knows(cluster, 0)


def test_the_progress_of_a_forgotten_member_takes_no_room() -> None:
    cluster = settled()
    for number in range(40):
        key = cluster.hosts[GONE].node + number.to_bytes(8)
        cluster.swim(GONE).publish(PayloadKind.PROGRESS, key, 1, b"half", cluster.now)
    cluster._flush(GONE)
    cluster.run(cluster.now + 5.0)
    assert cluster.swim(SPEAKER).statistics()["events_kept"] == 40
    cluster.crash(GONE)
    cluster.run(cluster.now + 20.0)
    forget(cluster)
    assert cluster.swim(SPEAKER).statistics()["events_kept"] == 0


@pytest.mark.parametrize(("members", "seed"), [(8, 5), (8, 7), (8, 12), (40, 0), (40, 1), (40, 2)])
def test_all_hosts_hear_of_a_forget_that_follows_a_goodbye(members: int, seed: int) -> None:
    cluster = SimulatedCluster(members + 1, racks=4, seed=seed)
    cluster.start_all_known()
    cluster.run(2.0)
    gone = cluster.hosts[members].node
    cluster.swim(members).leave(cluster.now)
    cluster._flush(members)
    cluster.crash(members)
    cluster.run(cluster.now + 0.3)
    rows = {index: cluster.swim(index).member(gone) for index in range(members)}
    speaker = next(index for index, row in rows.items() if row is not None and row.state is MemberState.LEFT)
    assert cluster.swim(speaker).forget(gone, cluster.now)
    cluster._flush(speaker)
    cluster.run(cluster.now + 4.0)
    assert not any(cluster.swim(index).member(gone) for index in range(members))
