"""The brain by its behaviour: two or more of them on a virtual network."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from membership import wire
from membership.credentials import Credentials
from membership.errors import PayloadRefusedError, SealError
from membership.events import (
    DownReason,
    Event,
    Isolated,
    JoinRefused,
    MemberDown,
    MemberForgotten,
    MemberLeft,
    MemberSuspected,
    MemberUp,
    NameConflict,
    PayloadHeard,
    PayloadKind,
)
from membership.host_rules import HostRules, LenientRules, Verdict
from membership.member import NODE_ID_BYTES, MemberState
from membership.record import sign_record
from membership.seal import DatagramSeal, KeyRing
from membership.settings import SwimSettings
from membership.swim import Swim
from tests.membership.simulated_cluster import FORWARDER, RING, SimulatedCluster, SimulatedHost


class Told:
    """Events by host."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.events: list[tuple[int, Event]] = []
        cluster.on_event = lambda index, event: self.events.append((index, event))

    def of(self, kind: type[Event], index: int | None = None) -> list[Event]:
        return [event for who, event in self.events if isinstance(event, kind) and index in (None, who)]


def joined(members: int, *, racks: int = 4, seed: int = 1) -> tuple[SimulatedCluster, Told]:
    cluster = SimulatedCluster(members, racks=racks, seed=seed)
    told = Told(cluster)
    for index in range(members):
        cluster.start(index, join=(0,) if index else ())
    cluster.run(4.0)
    return cluster, told


def states(cluster: SimulatedCluster, observer: int) -> dict[str, MemberState]:
    return {member.record.name: member.state for member in cluster.swim(observer).members()}


def test_eight_nodes_find_each_other_within_two_seconds() -> None:
    cluster = SimulatedCluster(8, racks=3)
    for index in range(8):
        cluster.start(index, join=(0,) if index else ())
    cluster.run(2.0)
    assert [cluster.swim(index).statistics()["members_live"] for index in range(8)] == [8] * 8
    assert len({cluster.swim(index).view_digest for index in range(8)}) == 1


def test_a_joiner_asks_for_ever_until_its_contact_is_there() -> None:
    cluster = SimulatedCluster(2)
    cluster.start(1, join=(0,))
    cluster.run(120.0)
    cluster.start(0)
    cluster.run(135.0)
    assert cluster.swim(1).statistics()["members_live"] == 2


def test_a_killed_node_is_declared_dead_by_everybody_on_the_word_of_two_racks() -> None:
    cluster, told = joined(12)
    cluster.crash(5)
    cluster.run(20.0)
    downs = told.of(MemberDown)
    assert len(downs) == 11
    assert all(isinstance(event, MemberDown) and event.reason is DownReason.CORROBORATED for event in downs)


def test_who_is_slow_itself_judges_later_but_judges() -> None:
    cluster, _ = joined(12)
    health = cluster.swim(0)._node.health
    health.worsen(8)
    health.improve = lambda: None  # type: ignore[method-assign]  # it stays as slow as it is
    at: dict[int, float] = {}

    def note(index: int, event: Event) -> None:
        if type(event) is MemberDown:
            at[index] = cluster.now

    cluster.on_event = note
    began = cluster.now
    cluster.crash(5)
    cluster.run(began + 40.0)
    assert set(at) == set(range(12)) - {5}
    others = max(when for index, when in at.items() if index)
    assert others + 5.0 < at[0] < began + 4 * (others - began)


def test_a_dead_node_stays_on_the_roster() -> None:
    cluster, _ = joined(6)
    cluster.crash(5)
    cluster.run(3600.0)
    assert states(cluster, 0)["host-5"] is MemberState.DEAD
    assert len(cluster.swim(0).roster_records()) == 5


def test_a_member_that_never_answered_is_not_remembered_for_the_next_life() -> None:
    cluster, _ = joined(6)
    swim = cluster.swim(0)
    roster = swim._node.roster
    silent = next(handle for handle in roster.claims if handle != roster.own.handle)
    roster.note_answered(silent, False)
    assert silent not in {one.node[:8] for one in swim.roster_records()}
    assert len(swim.roster_records()) == 4


def test_of_two_nodes_the_survivor_judges_alone_after_the_longer_wait() -> None:
    cluster, told = joined(2)
    cluster.crash(1)
    cluster.run(10.0)
    assert not told.of(MemberDown)
    cluster.run(40.0)
    (event,) = told.of(MemberDown)
    assert isinstance(event, MemberDown)
    assert event.reason is DownReason.LONE


def test_a_goodbye_is_heard_at_once_and_is_no_death() -> None:
    cluster, told = joined(8)
    at = cluster.now
    cluster.swim(3).leave(at)
    cluster._flush(3)
    cluster.hosts[3].up = False
    cluster.run(at + 1.0)
    assert len(told.of(MemberLeft)) == 7
    cluster.run(at + 30.0)
    assert not told.of(MemberDown)
    assert states(cluster, 0)["host-3"] is MemberState.LEFT


def test_who_left_may_come_back_in_a_new_life() -> None:
    cluster, _ = joined(6)
    cluster.swim(3).leave(cluster.now)
    cluster._flush(3)
    cluster.hosts[3].up = False
    cluster.run(cluster.now + 5.0)
    cluster.restart(3, join=(0,))
    cluster.run(cluster.now + 3.0)
    assert all(cluster.swim(index).statistics()["members_live"] == 6 for index in range(6))


@pytest.mark.parametrize("keep_roster", [True, False])
def test_a_restart_at_a_new_address_is_usable_at_once_and_leaves_no_ghost(keep_roster: bool) -> None:
    cluster, _ = joined(8)
    cluster.crash(2)
    cluster.readdress(2)
    cluster.restart(2, join=(0,), keep_roster=keep_roster)
    cluster.run(cluster.now + 2.0)
    for index in range(8):
        members = cluster.swim(index).members()
        assert len(members) == 8
        assert {row.record.address for row in members if row.record.name == "host-2"} == {cluster.hosts[2].address}
        assert cluster.swim(index).statistics()["members_live"] == 8


def test_statements_reach_everybody_once_per_newer_version() -> None:
    cluster, told = joined(20)
    swim = cluster.swim(4)
    for version in (1, 2):
        swim.publish(PayloadKind.STATEMENT, b"key", version, b"word-%d" % version, cluster.now)
        cluster._flush(4)
        cluster.run(cluster.now + 3.0)
    swim.publish(PayloadKind.STATEMENT, b"key", 1, b"old", cluster.now)
    cluster.run(cluster.now + 3.0)
    heard = told.of(PayloadHeard)
    assert len(heard) == 2 * 19
    assert {event.payload for event in heard if isinstance(event, PayloadHeard)} == {b"word-1", b"word-2"}


def test_a_statement_goes_from_hop_to_hop_without_waiting_for_rounds() -> None:
    cluster, told = joined(40)
    began = cluster.now
    cluster.swim(4).publish(PayloadKind.STATEMENT, b"key", 1, b"word", cluster.now)
    cluster._flush(4)
    cluster.run(began + cluster.swim(4)._node.settings.gossip_interval_s / 2)
    assert len(told.of(PayloadHeard)) >= 30, "three hosts per hop, and no round was due yet"


def test_who_brought_a_statement_has_heard_it_before() -> None:
    cluster, told = joined(20)
    cluster.swim(4).publish(PayloadKind.STATEMENT, b"key", 1, b"word", cluster.now)
    cluster._flush(4)
    cluster.run(cluster.now + 5.0)
    knowing = {cluster.hosts[4].node}
    for who, event in told.events:
        if isinstance(event, PayloadHeard):
            assert event.forwarder in knowing
            assert event.origin == cluster.hosts[4].node
            knowing.add(cluster.hosts[who].node)
    assert len(knowing) == 20


def test_a_late_joiner_learns_every_statement() -> None:
    cluster, told = joined(8)
    late = cluster.add_host("late", "rack-0")
    for number in range(30):
        cluster.swim(1).publish(PayloadKind.STATEMENT, b"key-%d" % number, 1, b"x" * 200, cluster.now)
    cluster.run(cluster.now + 60.0)
    cluster.start(late, join=(3,))
    cluster.run(cluster.now + 5.0)
    assert len(told.of(PayloadHeard, late)) == 30


def test_a_statement_that_is_over_is_forgotten_by_all_and_comes_back_to_none() -> None:
    cluster, told = joined(8)
    for key in (b"live", b"over"):
        cluster.swim(1).publish(PayloadKind.STATEMENT, key, 1, key, cluster.now)
    cluster.run(cluster.now + 3.0)
    for index in range(8):
        node = cluster.swim(index)._node
        node.rules = OverRules(node.rules, b"over")
        cluster.swim(index).forget_statement(b"over", cluster.now)
        cluster.run(cluster.now + 1.0)  # the others still tell it
    late = cluster.add_host("late", "rack-0")
    cluster.start(late, join=(3,))
    cluster.run(cluster.now + 60.0)
    heard = [event for event in told.of(PayloadHeard, late) if isinstance(event, PayloadHeard)]
    assert [event.payload for event in heard] == [b"live"]
    assert len({cluster.swim(index).view_digest for index in range(9)}) == 1
    assert not cluster.swim(1).statistics().get("statements_refused_judge")


class OverRules(LenientRules):
    """Those of a host, but that one key is over."""

    def __init__(self, rules: HostRules, key: bytes) -> None:
        self._rules, self._key = rules, key

    def latest_boot(self) -> int:
        return self._rules.latest_boot()

    def judge(self, kind: PayloadKind, key: bytes, version: int, payload: bytes) -> Verdict | None:
        if key == self._key:
            return Verdict(key[:NODE_ID_BYTES], is_over=True)
        return self._rules.judge(kind, key, version, payload)


def test_progress_spreads_and_only_the_newest_counts() -> None:
    cluster, told = joined(20)
    for version in range(1, 6):
        cluster.swim(4).publish(PayloadKind.PROGRESS, b"node+deployment", version, b"p" * 40, cluster.now)
        cluster._flush(4)
        cluster.run(cluster.now + 2.0)
    last = {who for who, event in told.events if isinstance(event, PayloadHeard) and event.version == 5}
    assert len(last) >= 17  # lossy by contract


def test_what_an_application_publishes_is_bounded() -> None:
    cluster, _ = joined(2)
    swim = cluster.swim(0)
    with pytest.raises(PayloadRefusedError):
        swim.publish(PayloadKind.STATEMENT, b"key", 1, b"x" * 513, cluster.now)
    with pytest.raises(PayloadRefusedError):
        swim.publish(PayloadKind.PROGRESS, b"", 1, b"x", cluster.now)
    for number in range(SwimSettings().statement_count_max):
        swim.publish(PayloadKind.STATEMENT, b"%d" % number, 1, b"x", cluster.now)
    with pytest.raises(PayloadRefusedError):
        swim.publish(PayloadKind.STATEMENT, b"one more", 1, b"x", cluster.now)


def test_a_record_carries_payload_updates_to_everybody() -> None:
    cluster, _ = joined(12)
    cluster.swim(3).update_payload(b"seed 7", cluster.now)
    cluster._flush(3)
    cluster.run(cluster.now + 2.0)
    node = cluster.hosts[3].node
    for index in range(12):
        row = cluster.swim(index).member(node)
        assert row is not None and row.record.payload == b"seed 7" and row.record.version == 2


def test_a_second_holder_of_a_name_is_refused_and_both_are_told() -> None:
    cluster, told = joined(6)
    twin = cluster.add_host("host-4", "rack-1")
    cluster.start(twin, join=(0,))
    cluster.run(cluster.now + 10.0)
    assert cluster.swim(0).statistics()["members_live"] == 6
    assert told.of(JoinRefused, twin)
    assert told.of(NameConflict, twin)
    assert told.of(NameConflict, 4)


def test_a_new_key_may_take_the_name_of_a_dead_member() -> None:
    cluster, told = joined(6)
    cluster.crash(4)
    cluster.run(cluster.now + 20.0)
    heir = cluster.add_host("host-4", "rack-1")
    cluster.start(heir, join=(0,))
    cluster.run(cluster.now + 100.0)
    assert not told.of(JoinRefused)
    for index in (0, 1, 2, 3, 5, heir):
        named = [row for row in cluster.swim(index).members() if row.record.name == "host-4"]
        assert [row.node for row in named] == [cluster.hosts[heir].node]


def test_a_forgotten_host_leaves_every_roster_and_no_rumour_brings_it_back() -> None:
    cluster, told = joined(8)
    cluster.crash(7)
    cluster.run(cluster.now + 20.0)
    gone = cluster.hosts[7].node
    assert cluster.swim(2).forget(gone, cluster.now)
    cluster._flush(2)
    cluster.run(cluster.now + 30.0)
    assert all(cluster.swim(index).member(gone) is None for index in range(7))
    assert len(told.of(MemberForgotten)) == 7


def test_a_living_member_is_not_forgotten() -> None:
    cluster, _ = joined(4)
    assert not cluster.swim(0).forget(cluster.hosts[2].node, cluster.now)
    assert not cluster.swim(0).forget(cluster.hosts[0].node, cluster.now)


def test_who_is_cut_off_alone_says_so_and_judges_nobody() -> None:
    cluster, told = joined(16)
    cluster.cut((9,), together=False)
    cluster.run(cluster.now + 60.0)
    assert not told.of(MemberDown, 9)
    isolated = told.of(Isolated, 9)
    assert isolated and isolated[0] == Isolated(True)
    cluster.heal()
    cluster.run(cluster.now + 20.0)
    assert told.of(Isolated, 9)[-1] == Isolated(False)
    assert all(cluster.swim(index).statistics()["members_live"] == 16 for index in range(16))


def test_two_halves_that_never_met_become_one_through_a_contact() -> None:
    cluster = SimulatedCluster(6, racks=2)
    for index in range(6):
        cluster.start(index, join=(0, 3))
    cluster.run(20.0)
    assert all(cluster.swim(index).statistics()["members_live"] == 6 for index in range(6))


def test_a_roster_from_an_earlier_life_finds_the_others_without_a_contact() -> None:
    cluster, _ = joined(6)
    cluster.crash(2)
    cluster.run(cluster.now + 20.0)
    cluster.restart(2, keep_roster=True)
    cluster.run(cluster.now + 15.0)
    assert all(cluster.swim(index).statistics()["members_live"] == 6 for index in range(6))


def test_a_life_with_an_older_boot_number_rises_above_what_others_remember() -> None:
    cluster, _ = joined(4)
    old = cluster.swim(1).self_record().boot
    cluster.crash(1)
    cluster.run(cluster.now + 1.0)
    host = cluster.hosts[1]
    record = replace(cluster.swim(1).self_record(), boot=old - 1, version=1, signature=b"")
    swim = Swim(
        cluster.settings, record,
        Credentials(cluster.keys.signer(host.public), RING, cluster.verified_cache, host.make_seal),
        rng=Random(1), now=cluster.now,
    )  # fmt: skip
    host.swim, host.up, host.wake_at = swim, True, float("inf")
    swim.join([cluster.hosts[0].address], cluster.now)
    cluster._flush(1)
    cluster.run(cluster.now + 5.0)
    assert swim.self_record().boot > old
    assert all(cluster.swim(index).statistics()["members_live"] == 4 for index in range(4))
    row = cluster.swim(3).member(host.node)
    assert row is not None and row.record.boot == swim.self_record().boot


def test_strangers_replays_and_noise_are_dropped_and_counted_and_never_answered() -> None:
    cluster, _ = joined(3)
    target = cluster.hosts[0]
    stranger = DatagramSeal(RING, cluster.hosts[1].node, 5)
    noise = [b"", b"x" * 50, bytes(1400), bytes(1401), stranger.seal(b"\x01", None)]
    for datagram in noise:
        cluster.swim(0).handle_datagram(datagram, ("10.9.9.9", 1), cluster.now)
    assert cluster.swim(0).drain() == []
    assert cluster.swim(0).statistics()["dropped_unsealed"] >= 4
    seal = cluster.hosts[1].seal
    assert seal is not None
    ping = seal.seal(wire.PROBE_HEAD.pack(wire.PING, 1, 0, 0, 0), target.node)
    cluster.swim(0).handle_datagram(ping, cluster.hosts[1].address, cluster.now)
    assert cluster.swim(0).drain()
    cluster.swim(0).handle_datagram(ping, cluster.hosts[1].address, cluster.now)
    assert cluster.swim(0).drain() == []
    assert cluster.swim(0).statistics()["dropped_replays"] == 1


def test_the_cluster_key_changes_under_running_brains_without_a_lost_datagram(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SimulatedHost, "make_seal", lambda _, *life: DatagramSeal(*life))
    cluster, told = joined(2)
    old, new = RING.keys[0], b"n" * 32
    for keys in ((old, new), (new, old), (new,)):
        for index in range(2):
            cluster.swim(index).set_keys(KeyRing(RING.cluster_id, keys))
            cluster.run(cluster.now + 5.0)
    figures = [cluster.swim(index).statistics() for index in range(2)]
    assert not any(figure.get("dropped_unsealed") or figure.get("probes_failed") for figure in figures)
    assert not told.of(MemberSuspected)
    cluster.start(cluster.add_host("late", "rack-1"), join=(0,))  # still holds the old key
    cluster.run(cluster.now + 5.0)
    assert cluster.swim(0).statistics()["members_live"] == 2
    assert cluster.swim(0).statistics()["dropped_unsealed"] > 0


def test_a_changed_key_outlives_the_life_in_which_it_was_set() -> None:
    cluster, _ = joined(3)
    ring = KeyRing(RING.cluster_id, (b"n" * 32,))
    for index in range(3):
        cluster.swim(index).set_keys(ring)
    swim = cluster.swim(1)
    newer = replace(swim.self_record(), boot=swim.self_record().boot + 7)
    _, data = sign_record(newer, RING.cluster_id, cluster.keys.signer(newer.public_key))
    swim._items.take([wire.item(wire.RECORD, data)], cluster.now, FORWARDER)
    cluster.run(cluster.now + 5.0)
    assert swim.self_record().boot == newer.boot + 1
    assert all(cluster.swim(index).statistics()["members_live"] == 3 for index in range(3))
    assert not any(cluster.swim(index).statistics().get("dropped_unsealed") for index in range(3))


def test_a_key_ring_of_another_cluster_is_refused() -> None:
    cluster, _ = joined(2)
    with pytest.raises(SealError):
        cluster.swim(0).set_keys(KeyRing(b"another cluster!", RING.keys))


def test_after_goodbye_a_brain_is_silent() -> None:
    cluster, _ = joined(3)
    swim = cluster.swim(0)
    swim.leave(cluster.now)
    swim.drain()
    swim.handle_timer(cluster.now + 100)
    assert swim.drain() == []
    assert swim.next_deadline() == float("inf")


def test_every_member_up_carries_a_signed_record() -> None:
    _, told = joined(4)
    ups = [event for event in told.of(MemberUp) if isinstance(event, MemberUp)]
    assert len(ups) == 12
    assert all(len(event.member.record.signature) == 64 for event in ups)


def test_no_host_takes_a_busy_minute_for_a_stop_of_its_own() -> None:
    cluster, _ = joined(40)
    for index in range(30, 40):
        cluster.crash(index)
        cluster.run(cluster.now + 2.0)
    cluster.run(cluster.now + 20.0)
    assert sum(cluster.swim(index).statistics().get("gaps", 0) for index in range(30)) == 0


def test_a_host_whose_probes_are_answered_wakes_for_its_rounds_only() -> None:
    cluster, _ = joined(4)
    cluster.run(cluster.now + 30.0)  # nothing is left to say
    swim, calls = cluster.swim(0), []
    timer = swim.handle_timer

    def due(now: float) -> None:
        calls.append(swim.next_deadline() <= now)
        timer(now)

    swim.handle_timer = due  # type: ignore[method-assign]
    cluster.run(cluster.now + 20.0)
    assert sum(calls) <= 55, "two rounds a second, and no time-out of a probe that was answered"


def test_probes_on_the_clock_leave_together_at_multiples_of_the_interval() -> None:
    cluster = SimulatedCluster(4, settings=SwimSettings(probe_on_clock=True))
    for index in range(4):
        cluster.start(index, join=(0,) if index else ())
    answered = []
    for until_s in (9.75, 10.0, 10.1, 10.5, 10.6):
        cluster.run(until_s)
        answered.append(sum(cluster.swim(index).statistics()["probes_answered"] for index in range(4)))
    before, *after = answered
    assert [count - before for count in after] == [0, 4, 4, 8]


@pytest.mark.parametrize(("now", "next_s"), [(10.0, 10.5), (10.09, 10.5), (10.2, 11.0), (10.49, 11.0)])
def test_a_round_on_the_clock_that_begins_late_ends_early_or_a_round_later(now: float, next_s: float) -> None:
    settings = SwimSettings(probe_on_clock=True)
    assert settings.probe_s(now + settings.probe_interval_s, early=0.2) == next_s
