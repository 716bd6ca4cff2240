"""What one holder of the cluster's key says against others, by its effect on a small cluster: none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from membership import wire
from membership.bounds import ceiling
from membership.events import (
    ControlProbeWanted,
    Event,
    JoinRefused,
    MemberAnswered,
    PayloadHeard,
    PayloadKind,
    SendDatagram,
)  # fmt: skip
from membership.fakes import OpenSeal
from membership.host_rules import LenientRules, Verdict
from membership.member import HANDLE_BYTES, MemberState, NodeId, Record
from membership.node import ACCUSE_LABEL, FORGET_LABEL
from membership.record import BOOT_MAX, sign_record
from membership.settings import SwimSettings
from membership.sync_server import ASK_BYTES, WANT_ROW
from membership.verified_cache import Claim
from tests.membership.simulated_cluster import FORWARDER, RING, SimulatedCluster, SimulatedHost

VICTIM, LIAR, OBSERVER = 1, 2, 0
HIGH_BOOTS = (2**64 - 1, BOOT_MAX, ceiling(BOOT_MAX))


def settled(members: int = 6) -> SimulatedCluster:
    cluster = SimulatedCluster(members, racks=4, seed=3)
    cluster.start_all_known()
    cluster.run(2.0)
    return cluster


def count(cluster: SimulatedCluster, name: str, index: int = OBSERVER) -> int:
    return cluster.swim(index).statistics().get(name, 0)


def say(cluster: SimulatedCluster, item: bytes, index: int = OBSERVER) -> None:
    cluster.swim(index)._items.take([item], cluster.now, FORWARDER)
    cluster._flush(index)


def signed_record(cluster: SimulatedCluster, record: Record, index: int) -> bytes:
    sign = cluster.keys.signer(cluster.hosts[index].public)
    return wire.item(wire.RECORD, sign_record(record, RING.cluster_id, sign)[1])


def forge_headers(cluster: SimulatedCluster, boots: tuple[int, ...], counter: int) -> None:
    victim = cluster.hosts[VICTIM]
    for boot in boots:
        for index, host in enumerate(cluster.hosts):
            if index not in (VICTIM, LIAR):
                seal = OpenSeal(RING, victim.node, boot)
                seal._counter = counter - 1
                ping = seal.seal(wire.PROBE_HEAD.pack(wire.PING, 1, 0, 0, 0), host.node)
                cluster.inject(LIAR, host.address, ping)


def is_heard_by_all(cluster: SimulatedCluster) -> None:
    cluster.swim(VICTIM).update_payload(b"news", cluster.now)
    cluster._flush(VICTIM)
    before = [count(cluster, "dropped_replays", index) for index in range(len(cluster.hosts))]
    cluster.run(cluster.now + 30.0)
    for index, host in enumerate(cluster.hosts):
        row = cluster.swim(index).member(cluster.hosts[VICTIM].node)
        assert row is not None and row.record.payload == b"news", host.name
        assert count(cluster, "dropped_replays", index) == before[index]
        assert count(cluster, "members_live", index) == len(cluster.hosts)
        assert count(cluster, "deaths", index) == 0


def test_a_datagram_in_a_members_name_with_a_high_boot_changes_nothing() -> None:
    cluster = settled()
    boot = cluster.swim(VICTIM).self_record().boot
    forge_headers(cluster, (*HIGH_BOOTS, boot + 1), 1)
    cluster.run(cluster.now + 1.0)
    assert count(cluster, "boots_refused") == 3
    is_heard_by_all(cluster)


def test_a_high_boot_or_counter_does_not_shut_out_the_next_life() -> None:
    cluster = settled()
    next_boot = 1_700_000_000_000 + int((cluster.now + 1.0) * 1000) + 1
    forge_headers(cluster, (*HIGH_BOOTS, next_boot, next_boot + 60_000), 2**64 - 1)
    cluster.run(cluster.now + 1.0)
    cluster.restart(VICTIM, join=(OBSERVER,))
    assert cluster.swim(VICTIM).self_record().boot == next_boot
    cluster.run(cluster.now + 2.0)
    is_heard_by_all(cluster)


def test_a_high_counter_of_the_present_life_silences_only_its_sender() -> None:
    cluster = settled()
    forge_headers(cluster, (cluster.swim(VICTIM).self_record().boot,), 2**64 - 1)
    cluster.run(cluster.now + 1.0)
    is_heard_by_all(cluster)


def test_a_datagram_of_an_earlier_life_is_not_heard() -> None:
    cluster = settled()
    forge_headers(cluster, (cluster.swim(VICTIM).self_record().boot - 1,), 1)
    cluster.run(cluster.now + 1.0)
    assert count(cluster, "dropped_past_lives") == 1


def test_a_record_whose_boot_no_clock_explains_is_refused() -> None:
    cluster = settled()
    own = cluster.swim(LIAR).self_record()
    for boot in (*HIGH_BOOTS[1:], own.boot + 2 * 3_600_000):
        say(cluster, signed_record(cluster, replace(own, boot=boot), LIAR))
        state = wire.roster(wire.STATE_DEAD, 0, signed_record(cluster, replace(own, boot=boot), LIAR)[3:])
        say(cluster, state)
    row = cluster.swim(OBSERVER).member(cluster.hosts[LIAR].node)
    assert row is not None and row.record.boot == own.boot
    assert count(cluster, "boots_refused") == 6
    say(cluster, signed_record(cluster, replace(own, boot=own.boot + 60_000), LIAR))
    row = cluster.swim(OBSERVER).member(cluster.hosts[LIAR].node)
    assert row is not None and row.record.boot == own.boot + 60_000


def test_a_host_whose_clock_is_far_behind_says_so() -> None:
    cluster = settled()
    late = cluster.add_host("late", "rack-0")
    told: list[Event] = []
    cluster.on_event = lambda index, event: told.append(event) if index == late else None
    cluster.rules = LenientRules()
    cluster.rules.latest_boot = lambda: 1_600_000_000_000  # type: ignore[method-assign]
    cluster.start(late, join=(OBSERVER,))
    cluster.run(cluster.now + 5.0)
    assert told and isinstance(told[0], JoinRefused)
    assert "clock" in told[0].reason


def test_a_host_whose_clock_went_back_goes_on_from_the_number_that_others_remember() -> None:
    cluster = settled()
    roster, before = cluster.swim(VICTIM).roster_records(), cluster.swim(VICTIM).self_record().boot
    cluster.rules = LenientRules()
    cluster.rules.latest_boot = lambda: before - 3_600_000  # type: ignore[method-assign]
    cluster.start(VICTIM, join=(OBSERVER,), roster=roster, boot=before - 7_200_000)
    cluster.run(cluster.now + 5.0)
    assert cluster.swim(VICTIM).self_record().boot > before
    is_heard_by_all(cluster)


def test_a_clone_with_the_last_boot_number_does_not_end_our_lives() -> None:
    cluster = settled()
    own = cluster.swim(OBSERVER).self_record()
    say(cluster, signed_record(cluster, replace(own, boot=BOOT_MAX), OBSERVER))
    assert cluster.swim(OBSERVER).self_record().boot == own.boot


def test_a_notice_raises_our_incarnation_by_a_step_at_most() -> None:
    cluster = settled()
    own = cluster.hosts[OBSERVER].node
    boot = cluster.swim(OBSERVER).self_record().boot
    for incarnation in (wire.INCARNATION_MAX - 1, 17):
        say(cluster, wire.notice(wire.STATE_SUSPECT, own[:8], boot, incarnation))
    row = cluster.swim(OBSERVER).member(own)
    assert row is not None and row.incarnation == 0
    assert count(cluster, "notices_refused") == 2
    say(cluster, wire.notice(wire.STATE_SUSPECT, own[:8], boot, 16))
    row = cluster.swim(OBSERVER).member(own)
    assert row is not None and row.incarnation == 17


def test_an_accusation_far_above_the_subjects_incarnation_is_refused() -> None:
    cluster = settled()
    liar = cluster.hosts[LIAR]
    for index in (OBSERVER, VICTIM):
        boot = cluster.swim(index).self_record().boot
        part = wire.accusation_part(liar.node[:8], cluster.hosts[index].node[:8], boot, wire.INCARNATION_MAX - 1)
        sign = cluster.keys.signer(liar.public)
        say(cluster, wire.item(wire.ACCUSE, part + sign(ACCUSE_LABEL + RING.cluster_id + part)))
    own = cluster.swim(OBSERVER).member(cluster.hosts[OBSERVER].node)
    assert own is not None and own.incarnation == 0
    assert count(cluster, "members_suspected") == 0
    assert count(cluster, "accusations_refused") == 2


def test_an_accusation_in_our_own_name_is_not_ours_unless_we_signed_it() -> None:
    cluster = settled()
    liar, victim = cluster.hosts[LIAR], cluster.hosts[VICTIM]
    boot = cluster.swim(VICTIM).self_record().boot
    part = wire.accusation_part(cluster.hosts[OBSERVER].node[:8], victim.node[:8], boot, 0)
    sign = cluster.keys.signer(liar.public)
    say(cluster, wire.item(wire.ACCUSE, part + sign(ACCUSE_LABEL + RING.cluster_id + part)))
    assert count(cluster, "members_suspected") == 0
    assert count(cluster, "dropped_bad_items") == 1


def test_a_host_whose_incarnation_is_spent_begins_another_life() -> None:
    cluster = settled()
    swim, own = cluster.swim(OBSERVER), cluster.hosts[OBSERVER].node
    boot = swim.self_record().boot
    spent = ceiling(wire.INCARNATION_MAX) - 40
    swim._node.raise_incarnation(spent, cluster.now)
    cluster._flush(OBSERVER)
    cluster.run(cluster.now + 1.0)
    say(cluster, wire.notice(wire.STATE_SUSPECT, own[:8], boot, spent + 16))
    row = swim.member(own)
    assert row is not None and (row.record.boot, row.incarnation) == (boot + 1, 0)
    cluster.run(cluster.now + 5.0)
    assert all(count(cluster, "members_live", index) == 6 for index in range(6))
    seen = cluster.swim(LIAR).member(own)
    assert seen is not None and seen.record.boot == boot + 1


def forget_item(cluster: SimulatedCluster, issuer: int, subject: int, *, ahead: int = 0) -> bytes:
    host = cluster.hosts[issuer]
    boot = cluster.swim(subject).self_record().boot + ahead
    part = wire.forget_part(host.node[:8], cluster.hosts[subject].node[:8], boot)
    sign = cluster.keys.signer(host.public)
    return wire.item(wire.FORGET, part + sign(FORGET_LABEL + RING.cluster_id + part))


def test_a_forget_that_comes_before_our_own_verdict_waits_for_it() -> None:
    cluster = settled()
    gone = cluster.hosts[VICTIM].node
    cluster.crash(VICTIM)
    say(cluster, forget_item(cluster, LIAR, VICTIM))
    assert cluster.swim(OBSERVER).member(gone) is not None
    cluster.run(cluster.now + 30.0)
    assert all(cluster.swim(index).member(gone) is None for index in (0, 2, 3, 4, 5))


def test_a_forget_never_takes_a_living_member_off_and_does_not_wait_for_ever() -> None:
    cluster = settled()
    say(cluster, forget_item(cluster, LIAR, VICTIM))
    say(cluster, forget_item(cluster, LIAR, OBSERVER))
    say(cluster, forget_item(cluster, LIAR, LIAR, ahead=2 * 3_600_000))
    assert list(cluster.swim(OBSERVER)._forgets._waiting) == [cluster.hosts[VICTIM].node[:8]]
    assert count(cluster, "forgets_kept_back") == 1
    cluster.run(cluster.now + 310.0)
    assert not cluster.swim(OBSERVER)._forgets._waiting
    cluster.crash(VICTIM)
    cluster.run(cluster.now + 30.0)
    assert cluster.swim(OBSERVER).member(cluster.hosts[VICTIM].node) is not None
    assert all(count(cluster, "members_live", index) == 5 for index in (0, 2, 3, 4, 5))


def test_a_forget_does_not_outlast_the_life_that_it_names() -> None:
    cluster = settled()
    cluster.crash(VICTIM)
    say(cluster, forget_item(cluster, LIAR, VICTIM))
    cluster.restart(VICTIM, join=(OBSERVER,))
    cluster.run(cluster.now + 5.0)
    assert not cluster.swim(OBSERVER)._forgets._waiting
    assert all(count(cluster, "members_live", index) == 6 for index in range(6))


def test_forgets_that_wait_are_bounded_and_the_loudest_issuer_loses() -> None:
    cluster = settled()
    forgets = cluster.swim(OBSERVER)._forgets
    say(cluster, forget_item(cluster, 3, 4))
    waiting = forgets._waiting[cluster.hosts[4].node[:8]]
    for number in range(1023):
        forgets._waiting[number.to_bytes(8)] = waiting._replace(issuer=cluster.hosts[LIAR].node[:8])
    say(cluster, forget_item(cluster, LIAR, VICTIM))
    assert cluster.hosts[4].node[:8] in forgets._waiting


NOBODY = ("192.0.2.9", 7946)


class Watched(SimulatedCluster):
    """Counts what is sent to a third party, and who wants to dial a member."""

    to_nobody = 0
    dials: frozenset[NodeId] = frozenset()

    def _transmit(self, host: SimulatedHost, index: int, output: SendDatagram) -> None:
        self.to_nobody += output.address[0] == NOBODY[0]
        super()._transmit(host, index, output)

    def _tell(self, index: int, event: Event) -> None:
        if isinstance(event, ControlProbeWanted):
            self.dials |= {event.node}
        else:
            super()._tell(index, event)


def sybils(cluster: SimulatedCluster, count: int, *, ports: int = 1, host: str = NOBODY[0]) -> list[bytes]:
    items = []
    for number in range(count):
        public = cluster.keys.make(cluster.rng)
        record = Record(
            public, cluster.swim(LIAR).self_record().boot, 1, f"sybil-{number}", f"rack-s{number}", "", host,
            NOBODY[1] + number % ports, 9, public,
        )  # fmt: skip
        items.append(wire.item(wire.RECORD, sign_record(record, RING.cluster_id, cluster.keys.signer(public))[1]))
    return items


def watched() -> Watched:
    cluster = Watched(6, racks=4, seed=3)
    cluster.start_all_known()
    cluster.run(5.0)
    return cluster


def test_two_members_at_most_name_one_address() -> None:
    cluster = watched()
    for item in sybils(cluster, 100):
        say(cluster, item)
    assert count(cluster, "members_known") == 8
    assert count(cluster, "members_refused_address") == 98


def test_a_third_party_whose_address_is_named_gets_a_few_datagrams_and_no_dials() -> None:
    cluster = watched()
    for item in sybils(cluster, 100):
        say(cluster, item)
    cluster.run(cluster.now + 120.0)
    assert 0 < cluster.to_nobody <= 6 * (16 + 2)
    assert not cluster.dials
    assert all(count(cluster, "isolated", index) == 0 for index in range(6))
    assert all(count(cluster, "deaths", index) <= 2 for index in range(6)), "the two that never answered"
    before = cluster.to_nobody
    cluster.run(cluster.now + 600.0)
    assert cluster.to_nobody - before <= 6 * 12


def test_who_answered_elsewhere_has_not_answered_from_its_new_address() -> None:
    cluster = watched()
    assert cluster.swim(OBSERVER)._node.roster.has_answered(cluster.hosts[LIAR].node[:8])
    moved = replace(cluster.swim(LIAR).self_record(), host=NOBODY[0], version=9)
    for index in set(range(6)) - {LIAR}:
        say(cluster, signed_record(cluster, moved, LIAR), index)
    cluster.hosts[LIAR].up = False
    cluster.run(cluster.now + 120.0)
    assert 0 < cluster.to_nobody <= 5 * (16 + 2)


def test_many_ports_of_a_third_party_do_not_make_members_doubt_each_other() -> None:
    cluster = watched()
    for item in sybils(cluster, 300, ports=300):
        say(cluster, item)
    cluster.run(cluster.now + 60.0)
    for index in range(6):
        for host in cluster.hosts:
            row = cluster.swim(index).member(host.node)
            assert row is not None and row.state is MemberState.ALIVE


def test_a_member_does_not_move_to_an_address_that_two_others_have() -> None:
    cluster = watched()
    for item in sybils(cluster, 2):
        say(cluster, item)
    moved = replace(cluster.swim(LIAR).self_record(), host=NOBODY[0], port=NOBODY[1], version=9)
    say(cluster, signed_record(cluster, moved, LIAR))
    row = cluster.swim(OBSERVER).member(cluster.hosts[LIAR].node)
    assert row is not None and row.record.version == 1


def test_records_that_name_a_members_address_never_displace_it() -> None:
    cluster = watched()
    for item in sybils(cluster, 50, host=cluster.hosts[VICTIM].address[0]):
        say(cluster, item)
    cluster.run(cluster.now + 60.0)
    row = cluster.swim(OBSERVER).member(cluster.hosts[VICTIM].node)
    assert row is not None and row.state is MemberState.ALIVE


def test_a_newcomer_that_asks_from_an_address_takes_it_from_those_that_never_answered() -> None:
    cluster = watched()
    late = cluster.add_host("late", "rack-0")
    for item in sybils(cluster, 2, host=cluster.hosts[late].address[0]):
        for index in range(6):
            say(cluster, item, index)
    cluster.start(late, join=(OBSERVER,))
    cluster.run(cluster.now + 90.0)
    assert all(cluster.swim(index).member(cluster.hosts[late].node) is not None for index in range(6))


def test_members_that_are_made_up_keep_no_newcomer_off_its_own_address() -> None:
    cluster = watched()
    late = cluster.add_host("late", "rack-0")
    host = cluster.hosts[late].address[0]
    made_up = iter(sybils(cluster, 1000, host=host))
    for turn in range(500):
        for item in (next(made_up), next(made_up)):
            for index in range(6):
                say(cluster, item, index)
        if not turn:
            cluster.start(late, join=(OBSERVER,))
        cluster.run(cluster.now + 0.05)
    rows = [cluster.swim(index).member(cluster.hosts[late].node) for index in range(6)]
    assert all(row is not None and row.state is MemberState.ALIVE for row in rows)


def test_a_roster_that_is_full_of_made_up_members_lets_newcomers_in() -> None:
    cluster = SimulatedCluster(6, racks=4, seed=3, settings=SwimSettings(member_count_max=60))
    cluster.start_all_known()
    cluster.run(5.0)
    for item in sybils(cluster, 200, ports=200):
        for index in range(6):
            say(cluster, item, index)
    assert count(cluster, "members_known") == 60
    assert count(cluster, "members_refused_full") > 0
    late = cluster.add_host("late", "rack-0")
    cluster.start(late, join=(OBSERVER,))
    cluster.run(cluster.now + 120.0)
    for index in range(6):
        for host in cluster.hosts:
            row = cluster.swim(index).member(host.node)
            assert row is not None and row.state is MemberState.ALIVE, host.name
        assert count(cluster, "members_known", index) <= 60


def test_one_address_in_two_spellings_is_one() -> None:
    cluster = watched()
    for host in ("2001:db8::1", "2001:DB8:0::1", "2001:db8:0:0::1", "2001:db8:0:0:0:0:0:1"):
        say(cluster, sybils(cluster, 1, host=host)[0])
    assert count(cluster, "members_known") == 8


class SignedWords(LenientRules):
    """A payload is its writer's letter, and the digits of its version; letters of ``known`` belong here."""

    def __init__(self, known: set[bytes]) -> None:
        self.known = known
        self.asked = 0
        self.twice: list[tuple[bytes, bytes]] = []

    def named_writer(self, key: bytes, statement: bytes) -> bytes:
        return statement[:1]

    def judge(self, kind: PayloadKind, key: bytes, version: int, payload: bytes) -> Verdict | None:
        self.asked += 1
        if payload[1:] != b"%d" % version:
            return None
        return Verdict(payload[:1], is_known=payload[:1] in self.known)

    def told_twice(self, kind: PayloadKind, key: bytes, version: int, known: bytes, other: bytes) -> bool:
        self.twice.append((known, other))
        return not other.startswith(b"x")


def judged(
    statement_count_max: int = 4096, progress_count_max: int = 4096
) -> tuple[SimulatedCluster, SignedWords, list[Event]]:
    cluster = SimulatedCluster(6, racks=4, seed=3)
    cluster.settings = replace(
        cluster.settings, statement_count_max=statement_count_max, progress_count_max=progress_count_max
    )
    cluster.rules = rules = SignedWords({b"a"})
    cluster.start_all_known()
    cluster.run(2.0)
    heard: list[Event] = []
    cluster.on_event = lambda index, event: heard.append(event) if isinstance(event, PayloadHeard) else None
    return cluster, rules, heard


def word(cluster: SimulatedCluster, key: bytes, version: int, payload: bytes, kind: int = 1) -> bytes:
    return wire.event(kind, cluster.hosts[LIAR].node, version, key, payload)


def test_a_statement_that_nobody_signed_is_neither_kept_nor_passed_on() -> None:
    cluster, _, heard = judged()
    say(cluster, word(cluster, b"key", 2**63 - 1, b"x"))
    say(cluster, word(cluster, b"key", 1, b"x", kind=2))
    cluster.run(cluster.now + 5.0)
    assert not heard
    assert [count(cluster, name) for name in ("statements_refused_judge", "progress_refused_judge")] == [1, 1]
    assert all(cluster.swim(index).statistics()["events_kept"] == 0 for index in range(6))
    cluster.swim(VICTIM).publish(PayloadKind.STATEMENT, b"key", 2, b"a2", cluster.now)
    cluster._flush(VICTIM)
    cluster.run(cluster.now + 5.0)
    assert len(heard) == 5


def test_a_statement_of_an_unknown_writer_waits_until_it_is_known() -> None:
    cluster, rules, heard = judged()
    digest = cluster.swim(OBSERVER).view_digest
    say(cluster, word(cluster, b"key", 1, b"b1"))
    cluster.run(cluster.now + 5.0)
    assert not heard
    assert cluster.swim(OBSERVER).view_digest == digest
    assert [count(cluster, "events_kept_back", index) for index in range(6)] == [1, 0, 0, 0, 0, 0]
    rules.known.add(b"b")
    cluster.swim(OBSERVER).judge_again(cluster.now)
    cluster._flush(OBSERVER)
    cluster.run(cluster.now + 1.0)
    assert len(heard) == 6
    assert count(cluster, "events_kept_back") == 0


def test_what_is_kept_back_is_bounded_and_the_loudest_forwarder_loses() -> None:
    cluster, _, _ = judged()
    swim = cluster.swim(OBSERVER)
    swim._items.take([word(cluster, b"key", 1, b"b1")], cluster.now, NodeId(b"another member.."))
    for number in range(200):
        swim._items.take([word(cluster, b"key", number, b"c%d" % number)], cluster.now, FORWARDER)
    table = swim._event_store._kept_back
    assert len(table) == 64
    assert word(cluster, b"key", 1, b"b1") in table


def test_progress_of_an_unknown_writer_is_neither_kept_nor_passed_on() -> None:
    cluster, rules, heard = judged()
    say(cluster, word(cluster, b"key", 9, b"b9", kind=2))
    cluster.run(cluster.now + 5.0)
    assert not heard
    assert count(cluster, "progress_refused_unknown") == 1
    rules.known.add(b"b")
    say(cluster, word(cluster, b"key", 1, b"b1", kind=2))
    cluster.run(cluster.now + 5.0)
    assert len(heard) == 6, "the refused version stands in nobody's way"


def test_one_writer_of_progress_fills_its_share_and_no_more() -> None:
    cluster, rules, _ = judged(progress_count_max=40)
    rules.known.update((b"b", b"c", b"d", b"e"))
    store = cluster.swim(OBSERVER)._event_store
    say(cluster, word(cluster, b"honest", 1, b"a1", kind=2))
    for writer in (b"b", b"c", b"d", b"e"):
        for number in range(30):
            say(cluster, word(cluster, writer + b"%d" % number, 1, writer + b"1", kind=2))
        assert store._progress.count_of(writer) == 10
    assert b"honest" in store._progress
    assert len(store) == 40
    assert all(store._progress.count_of(writer) <= 10 for writer in (b"b", b"c", b"d", b"e"))


def test_one_writer_fills_its_quota_and_no_more() -> None:
    cluster, rules, _ = judged(statement_count_max=40)
    rules.known.update((b"b", b"c", b"d", b"e"))
    for writer in (b"b", b"c", b"d", b"e"):
        for number in range(30):
            say(cluster, word(cluster, writer + b"%d" % number, 1, writer + b"1"))
    store = cluster.swim(OBSERVER)._event_store
    assert {writer: len(rows) for writer, rows in store._written.items()} == {b"b": 10, b"c": 10, b"d": 10, b"e": 10}
    say(cluster, word(cluster, b"honest", 1, b"a1"))
    assert len(store._written[b"a"]) == 1
    assert len(store) == 40


def test_a_writers_statements_that_stay_do_not_depend_on_their_order() -> None:
    cluster, _, _ = judged(statement_count_max=40)
    items = [word(cluster, b"%d" % number, 1, b"a1") for number in range(30)]
    for index, order in ((OBSERVER, items), (VICTIM, items[::-1])):
        cluster.swim(index)._items.take(order, cluster.now, FORWARDER)
    assert cluster.swim(OBSERVER).view_digest == cluster.swim(VICTIM).view_digest
    assert len(cluster.swim(OBSERVER)._event_store) == 10


def test_no_signature_is_checked_of_a_statement_that_finds_no_room() -> None:
    cluster, rules, _ = judged(statement_count_max=40)
    words = [word(cluster, b"%d" % number, 1, b"a1") for number in range(300)]
    store = cluster.swim(OBSERVER)._event_store
    for data in sorted(words, key=lambda one: store.row_of(one)[1]):  # type: ignore[index]
        cluster.swim(OBSERVER)._items.take([data], cluster.now, FORWARDER)
    assert rules.asked == 10
    assert count(cluster, "statements_refused_full") == 290
    say(cluster, word(cluster, b"another", 1, b"x1"))
    assert rules.asked == 11, "the room that others have is theirs"


@pytest.mark.parametrize("kind", [1, 2])
def test_two_words_of_one_version_are_told_once_and_the_first_stays(kind: int) -> None:
    cluster, rules, heard = judged()
    for payload in (b"a1", b"x1", b"x1", b"a1", b"A1", b"A1"):
        cluster.swim(OBSERVER)._items.take([word(cluster, b"key", 1, payload, kind)], cluster.now, FORWARDER)
    assert rules.twice == [(b"a1", b"x1"), (b"a1", b"x1"), (b"a1", b"A1")], "a forgery hides nothing"
    name = "statements_refused_judge" if kind == 1 else "progress_refused_judge"
    assert count(cluster, name) == 2
    cluster._flush(OBSERVER)
    assert [event.payload for event in heard if isinstance(event, PayloadHeard)] == [b"a1"]


def test_a_writer_of_many_statements_begins_no_round_with_each() -> None:
    cluster, _, _ = judged()
    node = cluster.swim(OBSERVER)._node
    hurried = 0
    for number in range(100):
        cluster.swim(OBSERVER)._items.take([word(cluster, b"%d" % number, 1, b"a1")], cluster.now, FORWARDER)
        hurried += node.gossip_due
        node.gossip_due = False
    assert hurried == 16


def test_a_statement_that_is_refused_here_does_not_make_a_host_catch_up_for_ever() -> None:
    cluster, rules, _ = judged()
    cluster.swim(VICTIM).publish(PayloadKind.STATEMENT, b"key", 1, b"a1", cluster.now)
    cluster._flush(VICTIM)
    cluster.run(cluster.now + 2.0)
    rules.known.clear()
    late = cluster.add_host("late", "rack-0")
    cluster.start(late, join=(OBSERVER,))
    cluster.run(cluster.now + 20.0)
    assert count(cluster, "catching_up", late) == 0
    assert count(cluster, "members_live", late) == 7
    sessions = count(cluster, "sync_sessions", late)
    cluster.run(cluster.now + 60.0)
    assert count(cluster, "sync_sessions", late) - sessions < 20


def test_a_host_that_asks_hears_when_a_member_answers_and_not_before() -> None:
    cluster = watched()
    heard: list[tuple[int, NodeId]] = []
    cluster.on_event = lambda index, event: (
        heard.append((index, event.node)) if isinstance(event, MemberAnswered) else None
    )
    swim, victim = cluster.swim(OBSERVER), cluster.hosts[VICTIM].node
    say(cluster, sybils(cluster, 1)[0])
    nobody = next(row.record.node for row in swim.members() if row.record.name == "sybil-0")
    swim._node.roster.note_answered(victim[:8], False)
    for node in (nobody, victim, cluster.hosts[3].node, NodeId(b"a stranger......")):
        assert swim.has_answered(node) is (node == cluster.hosts[3].node)
        swim.ask(node, cluster.now)
    cluster._flush(OBSERVER)
    cluster.run(cluster.now + 0.1)
    assert heard == [(OBSERVER, victim)]
    assert swim.has_answered(victim)
    assert cluster.to_nobody == 1
    for _ in range(100):
        swim.ask(nobody, cluster.now)
    cluster._flush(OBSERVER)
    assert cluster.to_nobody <= 8 + 1


def test_who_never_answered_is_unheard_once_it_is_asked_in_vain_or_gone() -> None:
    cluster = watched()
    swim, member = cluster.swim(OBSERVER), cluster.hosts[3].node
    for item in sybils(cluster, 2):
        say(cluster, item)
    own = swim.self_record().node
    known = {row.record.name: row.record.node for row in swim.members()}
    one, other = known["sybil-0"], known["sybil-1"]
    for ask in range(1, 4):
        for _ in range(2):
            assert not any(map(swim.is_unheard, (one, other, own, member, NodeId(b"a stranger......"))))
            swim.ask(one, cluster.now + ask)
            if ask == 3:
                break
    assert swim.is_unheard(one)
    assert not swim.is_unheard(other), "it has the same address, and was not asked"
    cluster.crash(3)
    cluster.run(cluster.now + 60.0)
    states = {row.record.node: row.state for row in swim.members()}
    assert states[member] is states[other] is MemberState.DEAD
    swim._node.roster._asked.clear()  # as if others had asked it
    assert swim.is_unheard(other)
    assert not swim.is_unheard(member), "it has spoken"
    swim._node.roster.note_answered(one[:8])
    assert not swim.is_unheard(one)


def test_a_helper_cannot_answer_in_the_name_of_a_member_that_does_not_exist() -> None:
    cluster = watched()
    swim = cluster.swim(OBSERVER)
    say(cluster, sybils(cluster, 1)[0])
    [nobody] = [row.record.node for row in swim.members() if row.record.name == "sybil-0"]
    claim = swim._node.roster.claims[nobody[:8]]
    for helpers in ((cluster.hosts[LIAR].node[:8],), ()):
        sequence = swim._pings.send(claim, cluster.now)
        assert sequence is not None
        swim._pings.pending[sequence].helpers = helpers
        ack = wire.PROBE_HEAD.pack(wire.ACK, sequence, 0, 0, 0)
        swim._prober.on_ack(ack, claim, cluster.now)
        assert swim.has_answered(nobody) is not bool(helpers), "who was pinged knows the number, and a helper"


def test_a_member_that_may_be_made_up_keeps_no_host_of_its_name_out() -> None:
    cluster = watched()
    swim = cluster.swim(OBSERVER)
    say(cluster, sybils(cluster, 1)[0])
    [nobody] = [row.record.node for row in swim.members() if row.record.name == "sybil-0"]
    newcomer = cast(Claim, SimpleNamespace(node=b"a newcomer......", record=SimpleNamespace(name="sybil-0")))
    bearer = swim._joiner._bearer_of(newcomer, cluster.now)
    assert bearer is not None
    assert bearer.node == nobody
    for ask in range(3):
        swim.ask(nobody, cluster.now + ask)
    assert swim._joiner._bearer_of(newcomer, cluster.now) is None


def test_events_of_one_version_are_news_once_whatever_their_bytes() -> None:
    cluster, rules, heard = judged()
    rules.known.update((b"b", b"c"))
    digest = cluster.swim(OBSERVER).view_digest
    say(cluster, word(cluster, b"key", 7, b"b7"))
    cluster.run(cluster.now + 5.0)
    assert len(heard) == 6
    assert len({cluster.swim(index).view_digest for index in range(6)} | {digest}) == 2
    before = count(cluster, "events_kept"), cluster.swim(OBSERVER).view_digest
    for payload in (b"a7", b"c7"):
        for origin in (b"\x00" * 16, b"\xff" * 16):
            say(cluster, wire.event(1, NodeId(origin), 7, b"key", payload))
    cluster.run(cluster.now + 5.0)
    assert len(heard) == 6
    assert (count(cluster, "events_kept"), cluster.swim(OBSERVER).view_digest) == before


def test_hosts_that_hold_different_events_of_one_version_agree() -> None:
    cluster, rules, _ = judged()
    rules.known.add(b"b")
    for index, payload in ((OBSERVER, b"a3"), (VICTIM, b"b3")):
        item = word(cluster, b"key", 3, payload)
        cluster.swim(index)._items.take([item], cluster.now, FORWARDER, relay=False)
    assert cluster.swim(OBSERVER).view_digest == cluster.swim(VICTIM).view_digest


def test_probes_made_for_others_are_shared_among_those_that_ask() -> None:
    cluster = settled()
    swim = cluster.swim(OBSERVER)
    subject = cluster.hosts[VICTIM].node[:HANDLE_BYTES]
    body = wire.REQUEST_HEAD.pack(wire.PING_REQ, 7, subject)
    liar, honest = (swim._node.roster.claims[cluster.hosts[index].node[:HANDLE_BYTES]] for index in (LIAR, 3))
    for _ in range(150):
        swim._indirect_prober.on_ping_req(body, liar, cluster.now)
    assert count(cluster, "requests_refused") == 140
    for _ in range(8):
        swim._indirect_prober.on_ping_req(body, honest, cluster.now)
    assert count(cluster, "requests_refused") == 140, "others have their share"
    swim.drain()


def test_lists_and_items_for_one_member_are_bounded() -> None:
    cluster = settled()
    swim = cluster.swim(OBSERVER)
    liar, honest = (swim._node.roster.claims[cluster.hosts[index].node[:HANDLE_BYTES]] for index in (LIAR, 3))
    ask = wire.SEQUENCE_HEAD.pack(wire.SYNC_ASK, 1) + bytes(ASK_BYTES - wire.SEQUENCE_HEAD.size)
    want = wire.SEQUENCE_HEAD.pack(wire.SYNC_WANT, 1) + WANT_ROW.pack(cluster.hosts[VICTIM].node[:HANDLE_BYTES], 0)
    swim.drain()
    for body, answer in ((ask, swim._answers.on_ask), (want, swim._answers.on_want)):
        for _ in range(1000):
            answer(body, liar, cluster.now)
    said = [one for one in swim.drain() if isinstance(one, SendDatagram)]
    assert len(said) <= 2 * 1000, "busy, mostly"
    opened = [cluster.hosts[LIAR].swim._node.seal.open(one.datagram).body for one in said]  # type: ignore[union-attr]
    assert sum(body[0] != wire.BUSY for body in opened) <= 60, "the budget is 80"
    swim._answers.on_ask(ask, honest, cluster.now)
    (told, *_) = [one for one in swim.drain() if isinstance(one, SendDatagram)]
    assert cluster.hosts[3].swim._node.seal.open(told.datagram).body[0] == wire.SYNC_LIST  # type: ignore[union-attr]


def test_a_welcome_that_was_not_asked_for_makes_a_host_ask_nobody() -> None:
    cluster = settled()
    liar, target = cluster.hosts[LIAR], cluster.hosts[OBSERVER]
    assert liar.seal is not None
    before = count(cluster, "sync_sessions")
    for _ in range(20):
        body = wire.WELCOME_HEAD.pack(wire.WELCOME, 0, wire.FLAG_AGAIN)
        cluster.inject(LIAR, target.address, liar.seal.seal(body, target.node))
        cluster.run(cluster.now + 0.5)
    assert count(cluster, "sync_sessions") == before
    assert count(cluster, "welcomes_refused") == 20
    assert count(cluster, "catching_up") == 0
