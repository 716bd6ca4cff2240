"""Records, seals, items, windows and queues: the small pieces, by value."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from membership import wire
from membership.digest import BUCKET_COUNT, Digest
from membership.errors import RecordError, SealError, SettingsError, WireError
from membership.health import LocalHealth
from membership.isolation import Isolation
from membership.member import NodeId, Record, contact_of, node_id
from membership.record import decode_record, encode_signed, parse_record, sign_record
from membership.replay import ReplayWindows
from membership.rumours import RumourClass, Rumours
from membership.seal import DATAGRAM_BYTES_MAX, OVERHEAD_BYTES, DatagramSeal, KeyRing
from membership.settings import SwimSettings
from membership.suspicion import Credit, Suspicion
from membership.tombstones import Tombstones
from membership.verified_cache import verify_ed25519

CLUSTER = b"c" * 16
HOME, AWAY = ("10.0.0.1", 7946), ("10.0.0.2", 7946)
KEY = Ed25519PrivateKey.from_private_bytes(b"s" * 32)
RECORD = Record(
    KEY.public_key().public_bytes_raw(), 7, 1, "node-1", "rack-1", "zone", "10.0.0.1", 7946, 7947, b"t" * 32, 5, "1.0",
    b"p",
)  # fmt: skip


def test_a_signed_record_comes_back_as_it_was() -> None:
    signed, data = sign_record(RECORD, CLUSTER, KEY.sign)
    assert decode_record(data, CLUSTER, verify_ed25519) == signed
    assert encode_signed(signed) == data


@given(st.data())
def test_a_record_with_any_byte_changed_is_refused(draw: st.DataObject) -> None:
    _, data = sign_record(RECORD, CLUSTER, KEY.sign)
    at = draw.draw(st.integers(0, len(data) - 1))
    flip = draw.draw(st.integers(1, 255))
    with pytest.raises(WireError):
        decode_record(data[:at] + bytes((data[at] ^ flip,)) + data[at + 1 :], CLUSTER, verify_ed25519)


def test_a_record_of_another_cluster_is_refused() -> None:
    _, data = sign_record(RECORD, CLUSTER, KEY.sign)
    with pytest.raises(WireError):
        decode_record(data, b"d" * 16, verify_ed25519)


@given(st.binary(max_size=600))
def test_arbitrary_bytes_are_no_record(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_record(data, CLUSTER, verify_ed25519)


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""}, {"name": "n" * 65}, {"payload": b"x" * 65}, {"port": 0}, {"port": 70000}, {"boot": 2**53 + 1},
        {"version": -1}, {"host": ""}, {"public_key": b"short"}, {"rack": "r" * 33}, {"rack": "r\n"},
    ],
)  # fmt: skip
def test_a_record_that_does_not_fit_is_the_callers_fault(change: dict[str, object]) -> None:
    with pytest.raises(RecordError):
        sign_record(replace(RECORD, **change), CLUSTER, KEY.sign)


@pytest.mark.parametrize("text", ["a\nnode-2", "\x1b[2J", "\u202e", "\x7f", "\r"])
@pytest.mark.parametrize("field", ["name", "rack", "zone", "host", "software"])
def test_a_record_whose_text_moves_the_cursor_is_refused(field: str, text: str) -> None:
    size = len(text.encode())
    _, data = sign_record(replace(RECORD, **{field: "#" * size}), CLUSTER, KEY.sign)
    part = data[:-64].replace(bytes([size]) + b"#" * size, bytes([size]) + text.encode())
    signed = part + KEY.sign(b"gossip member record 1\x00" + CLUSTER + part)
    with pytest.raises(WireError, match="cannot be shown"):
        decode_record(signed, CLUSTER, verify_ed25519)


def test_parsing_alone_checks_no_signature() -> None:
    signed, data = sign_record(RECORD, CLUSTER, lambda message: b"z" * 64)
    assert parse_record(data) == signed


def test_a_record_that_could_not_be_written_down_again_is_not_taken() -> None:
    _, data = sign_record(RECORD, CLUSTER, KEY.sign)
    at = 1 + 32 + 32 + 8 + 4 + 2 + 2  # where the capacity is
    with pytest.raises(WireError):
        parse_record(data[:at] + b"\xff" * 8 + data[at + 8 :])


A, B = node_id(b"a" * 32), node_id(b"b" * 32)
RING = KeyRing(CLUSTER, (b"k" * 32,))


def test_a_sealed_datagram_opens_at_its_receiver_only() -> None:
    sealed = DatagramSeal(RING, A, 1).seal(b"hello", B)
    opened = DatagramSeal(RING, B, 9).open(sealed)
    assert (opened.node, opened.boot, opened.counter, opened.body) == (A, 1, 1, b"hello")
    with pytest.raises(SealError):
        DatagramSeal(RING, NodeId(b"x" * 16), 9).open(sealed)


def test_a_hello_to_an_address_opens_at_anybody_with_the_key() -> None:
    sealed = DatagramSeal(RING, A, 1).seal(b"hello", None)
    assert DatagramSeal(RING, NodeId(b"x" * 16), 9).open(sealed).body == b"hello"
    assert len(sealed) == OVERHEAD_BYTES + 5


def test_the_same_words_never_look_the_same_twice() -> None:
    seal = DatagramSeal(RING, A, 1)
    assert seal.seal(b"hello", B) != seal.seal(b"hello", B)


@given(st.data())
def test_a_sealed_datagram_with_any_bit_changed_is_dropped(draw: st.DataObject) -> None:
    sealed = DatagramSeal(RING, A, 1).seal(b"hello", B)
    at = draw.draw(st.integers(0, len(sealed) * 8 - 1))
    changed = bytearray(sealed)
    changed[at // 8] ^= 1 << at % 8
    with pytest.raises(SealError):
        DatagramSeal(RING, B, 9).open(bytes(changed))


@pytest.mark.parametrize("ring", [KeyRing(b"x" * 16, (b"k" * 32,)), KeyRing(CLUSTER, (b"l" * 32,))])
def test_another_cluster_or_key_cannot_open(ring: KeyRing) -> None:
    with pytest.raises(SealError):
        DatagramSeal(ring, B, 9).open(DatagramSeal(RING, A, 1).seal(b"hello", B))


def test_keys_rotate_with_an_overlap() -> None:
    old, both, new = RING, KeyRing(CLUSTER, (b"n" * 32, b"k" * 32)), KeyRing(CLUSTER, (b"n" * 32,))
    for sender, receiver in ((old, both), (both, new), (new, both)):
        assert DatagramSeal(receiver, B, 9).open(DatagramSeal(sender, A, 1).seal(b"hi", B)).body == b"hi"
    with pytest.raises(SealError):
        DatagramSeal(new, B, 9).open(DatagramSeal(old, A, 1).seal(b"hi", B))


def test_a_running_seal_changes_its_keys_and_never_repeats_a_nonce() -> None:
    old, new = b"k" * 32, b"n" * 32
    rings = [(old,), (old, new), (new, old), (old, new), (new,)]
    seal, used = DatagramSeal(RING, A, 1), set()
    for keys in rings:
        ring = KeyRing(CLUSTER, keys)
        seal.set_keys(ring)
        for _ in range(3):
            sealed = seal.seal(b"hi", B)
            opened = DatagramSeal(ring, B, 9).open(sealed)
            used.add((sealed[1:5], opened.counter))
    assert len(used) == 3 * len(rings)


def test_a_key_that_was_dropped_opens_nothing_even_from_a_sender_that_was_heard_under_it() -> None:
    receiver, sender = DatagramSeal(RING, B, 9), DatagramSeal(RING, A, 1)
    receiver.open(sender.seal(b"hi", B))
    receiver.set_keys(KeyRing(CLUSTER, (b"n" * 32,)))
    with pytest.raises(SealError):
        receiver.open(sender.seal(b"hi", B))


def test_a_key_ring_of_another_cluster_is_refused_and_changes_nothing() -> None:
    seal = DatagramSeal(RING, A, 1)
    with pytest.raises(SealError):
        seal.set_keys(KeyRing(b"x" * 16, (b"k" * 32,)))
    assert DatagramSeal(RING, B, 9).open(seal.seal(b"hi", B)).body == b"hi"


def test_oversized_and_empty_datagrams_are_dropped_before_any_cipher() -> None:
    for size in (0, OVERHEAD_BYTES, DATAGRAM_BYTES_MAX + 1, 65000):
        with pytest.raises(SealError):
            DatagramSeal(RING, B, 9).open(bytes(size))


def test_a_key_ring_does_not_show_its_keys() -> None:
    assert "6b" * 4 not in repr(RING)
    assert "kkkk" not in repr(RING)


@given(st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=60)), max_size=20))
def test_items_come_apart_as_they_were_put_together(contents: list[tuple[int, bytes]]) -> None:
    items = [wire.item(kind, content) for kind, content in contents]
    assert wire.split_items(b"xx" + b"".join(items), 2) == items


def test_items_that_do_not_add_up_are_refused() -> None:
    for body in (b"\x01", b"\x01\x00", b"\x01\x00\x05abcd"):
        with pytest.raises(WireError):
            wire.split_items(body, 0)


@given(st.integers(0, 255), st.binary(max_size=200))
def test_no_item_parser_lets_anything_but_wire_errors_out(kind: int, content: bytes) -> None:
    data = wire.item(kind, content)
    for parse in (
        wire.parse_claim, wire.parse_accusation, wire.parse_notice, wire.parse_forget, wire.parse_event,
        wire.parse_roster,
    ):  # fmt: skip
        try:
            parse(data)
        except WireError:
            continue


def test_a_counter_is_fresh_once() -> None:
    windows = ReplayWindows(10)
    assert [windows.is_fresh(A, 1, counter, HOME, HOME) for counter in (5, 5, 7, 6, 6, 5)] == [
        True,
        False,
        True,
        True,
        False,
        False,
    ]


@given(st.lists(st.integers(0, 600), max_size=200))
def test_a_window_never_lets_one_counter_pass_twice(counters: list[int]) -> None:
    windows = ReplayWindows(10)
    passed = [counter for counter in counters if windows.is_fresh(A, 1, counter, HOME, HOME)]
    assert len(passed) == len(set(passed))


def test_a_newer_boot_starts_afresh_when_the_record_vouches_for_it() -> None:
    windows = ReplayWindows(10)
    assert windows.is_fresh(A, 1, 100, HOME, HOME)
    assert windows.is_fresh(A, 2, 1, HOME, None)
    assert windows.is_fresh(A, 1, 101, HOME, HOME)
    assert not windows.is_fresh(A, 2, 1, HOME, HOME), "seen before the record came"
    assert windows.is_fresh(A, 2, 2, HOME, HOME)
    assert not windows.is_fresh(A, 1, 102, HOME, None)


def test_a_false_boot_or_counter_silences_only_its_sender() -> None:
    windows = ReplayWindows(10)
    assert windows.is_fresh(A, 1, 5, HOME, HOME)
    assert windows.is_fresh(A, 2**53, 1, AWAY, None)
    assert windows.is_fresh(A, 1, 2**64 - 1, AWAY, HOME)
    assert windows.is_fresh(A, 2, 2**64 - 1, AWAY, None)
    assert windows.is_fresh(A, 1, 6, HOME, HOME)
    assert windows.is_fresh(A, 2, 1, HOME, None)
    assert windows.is_fresh(A, 2, 2, HOME, HOME)


def test_a_replay_from_another_address_is_still_a_replay() -> None:
    windows = ReplayWindows(10)
    assert windows.is_fresh(A, 1, 5, HOME, None)
    assert not windows.is_fresh(A, 1, 5, AWAY, HOME)
    assert windows.is_fresh(A, 1, 6, HOME, HOME)
    assert not windows.is_fresh(A, 1, 6, AWAY, HOME)
    assert not windows.is_fresh(A, 1, 6, AWAY, None), "off the roster"


def test_windows_are_bounded() -> None:
    windows = ReplayWindows(3)
    for sender in range(9):
        windows.is_fresh(NodeId(bytes((sender,)) * 16), 1, 1, HOME, HOME)
    assert len(windows) == 3
    for sender in range(5000):
        windows.is_fresh(A, 9, 1, ("10.0.0.9", sender), None)
    assert len(windows) == 3 + 4096


def test_a_rumour_is_passed_on_a_limited_number_of_times() -> None:
    queue = RumourClass(1e9, 10)
    queue.add("a", b"item", "w")
    assert [len(queue.take(1000, 3, 1.0)) for _ in range(5)] == [1, 1, 1, 0, 0]


def test_the_least_sent_goes_first_and_a_newer_one_supersedes() -> None:
    queue = RumourClass(1e9, 10)
    queue.add("old", b"o" * 40, "w")
    queue.take(1000, 9, 1.0)
    queue.add("new", b"n" * 40, "w")
    assert queue.take(45, 9, 1.0) == [b"n" * 40]
    queue.add("new", b"N" * 40, "w")
    assert queue.take(45, 9, 1.0) == [b"N" * 40]


def test_an_urgent_rumour_goes_before_all_others() -> None:
    queue = RumourClass(1e9, 10)
    queue.add("contradiction", b"c" * 40, "w", urgent=True)
    for number in range(5):
        queue.add(number, b"%d" % number * 40, "w")
    assert queue.take(45, 9, 1.0) == [b"c" * 40]


def test_hearing_it_from_others_makes_it_less_worth_telling() -> None:
    queue = RumourClass(1e9, 10)
    queue.add("a", b"item", "w")
    for _ in range(4):
        queue.heard_again("a")
    assert [len(queue.take(1000, 3, 1.0)) for _ in range(3)] == [1, 0, 0]


def test_rumours_keep_to_their_bytes_per_second() -> None:
    def sent_in_a_second(rumours: int, *, doubles: bool = True) -> int:
        queue = RumourClass(1000, 100, doubles=doubles)
        for number in range(rumours):
            queue.add(number, b"x" * 100, "w")
        return sum(len(item) for tick in range(20) for item in queue.take(1000, 99, 1.0 + tick / 20))

    assert 1000 <= sent_in_a_second(20) <= 1500
    assert 2000 <= sent_in_a_second(60) <= 3000  # a long backlog doubles the rate, if it may
    assert 1000 <= sent_in_a_second(60, doubles=False) <= 1500


def test_membership_pays_for_the_datagrams_that_carry_nothing_else() -> None:
    queue = RumourClass(1000, 100)
    for number in range(20):
        queue.add(number, b"x" * 100, "w")
    datagrams = [queue.take(1000, 99, 1.0 + tick / 20, overhead=80) for tick in range(20)]
    sent_bytes = sum(sum(map(len, items)) + 80 for items in datagrams if items)
    assert 900 <= sent_bytes <= 1500


def test_a_queue_is_bounded_and_counts_what_it_drops() -> None:
    queue = RumourClass(1e9, 5)
    for number in range(8):
        queue.add(number, b"x", "w")
    assert (len(queue), queue.dropped) == (5, 3)


def test_a_writer_of_many_waits_behind_those_of_few() -> None:
    queue = RumourClass(1e9, 1000)
    queue.add("honest", b"h" * 40, "honest", urgent=True)
    for number in range(400):
        queue.add(number, b"%3d" % number * 20, "liar", urgent=True)  # newer than the honest word, each of them
    sent = [item for _ in range(60) for item in queue.take(60, 9, 1.0)]
    assert sent.count(b"h" * 40) >= 2
    assert len(sent) == 60  # and the liar has what is left


def test_one_writer_leaves_half_of_the_budget_for_what_others_say_next() -> None:
    queue = RumourClass(1000, 1000)
    for number in range(200):
        queue.add(number, b"l" * 50, "liar", urgent=True)
    for tick in range(100):  # it takes all that comes back, and no more
        taken = sum(len(item) for item in queue.take(1000, 99, 1.0 + tick / 20))
        assert taken <= (500 if tick == 0 else 100)
        queue.add("news", b"l" * 50, "liar", urgent=True)
    queue.add("honest", b"h" * 80, "honest", urgent=True)
    heard = [queue.take(100, 99, 6.0)[:1] for _ in range(3)]
    assert heard == [[b"h" * 80]] * 3, "at once, to three members"


def test_a_writer_that_paused_is_heard_like_any_other_again() -> None:
    queue = RumourClass(1000, 1000)
    for number in range(10):
        queue.add(number, b"l" * 50, "loud", urgent=True)
    while queue.take(1000, 2, 1.0):
        pass
    queue.add("more", b"m" * 50, "loud", urgent=True)
    queue.add("honest", b"h" * 50, "honest")
    assert queue.take(50, 9, 1.1) == [b"h" * 50], "it has taken more than half of the budget"
    for number in range(10):
        queue.discard(number)
    queue.add("even more", b"e" * 50, "loud", urgent=True)
    assert queue.take(50, 9, 3.0) == [b"e" * 50]


def test_a_full_queue_drops_what_its_loudest_writer_said_first() -> None:
    queue = RumourClass(1e9, 20)
    queue.add("honest", b"h" * 40, "honest")
    for number in range(400):
        queue.add(number, b"%3d" % number, "liar")
    sent = [item for _ in range(5) for item in queue.take(1000, 1, 1.0)]
    assert len(sent) == 20
    assert b"h" * 40 in sent
    assert b"  0" not in sent


def test_no_class_starves_another() -> None:
    rumours = Rumours(10**9, 10**9, 10**9)
    for number in range(200):
        rumours.membership.add(("m", number), b"m" * 50, "w")
        rumours.statements.add(("s", number), b"s" * 50, "w")
        rumours.progress.add(("p", number), b"p" * 50, "w")
    datagram = rumours.take(1200, 9, 1.0)
    assert all(datagram.count(letter) >= 100 for letter in (b"m", b"s", b"p"))


def test_two_accusers_in_two_other_racks_make_a_case() -> None:
    racks = {"own": 3, "r1": 2, "r2": 2}
    suspicion = Suspicion(0, 0.0)
    suspicion.add(b"1", "r1", b"")
    assert not suspicion.is_corroborated("own", racks)
    suspicion.add(b"2", "r1", b"")
    assert not suspicion.is_corroborated("own", racks)
    suspicion.add(b"3", "own", b"")
    assert not suspicion.is_corroborated("own", racks)
    suspicion.add(b"4", "r2", b"")
    assert suspicion.is_corroborated("own", racks)


def test_with_one_other_rack_two_accusers_and_that_rack_are_enough() -> None:
    suspicion = Suspicion(0, 0.0)
    suspicion.add(b"1", "own", b"")
    suspicion.add(b"2", "own", b"")
    assert not suspicion.is_corroborated("own", {"own": 3, "r1": 2})
    assert suspicion.is_corroborated("own", {"own": 3})
    suspicion.add(b"3", "r1", b"")
    assert suspicion.is_corroborated("own", {"own": 3, "r1": 2})


def test_the_wait_shrinks_with_each_accuser_and_a_lone_one_waits_longest() -> None:
    settings = SwimSettings()
    racks = {"own": 3, "r1": 2, "r2": 2}
    suspicion = Suspicion(0, 0.0)
    waits = []
    for accuser, rack in ((b"1", "r1"), (b"2", "r2"), (b"3", "r1"), (b"4", "r2")):
        suspicion.add(accuser, rack, b"")
        waits.append(suspicion.wait_s(settings, 100, "own", racks))
    assert waits == sorted(waits, reverse=True)
    assert waits[0] == pytest.approx(6 * waits[-1])
    assert waits[-1] == pytest.approx(settings.suspicion_s(100))


def test_a_useless_accuser_makes_way_for_a_useful_one() -> None:
    suspicion = Suspicion(0, 0.0)
    for accuser in (b"1", b"2", b"3", b"4"):
        suspicion.add(accuser, "own", b"")
    assert not suspicion.has_room_for("own", "own")
    assert suspicion.has_room_for("r1", "own")
    assert len(suspicion.accusers) == 3


def test_an_accuser_that_is_contradicted_often_is_not_believed_for_a_while() -> None:
    credit = Credit()
    for _ in range(5):
        credit.contradicted(b"liar", 10.0)
    assert not credit.is_believed(b"liar", 11.0)
    assert credit.is_believed(b"liar", 100.0)
    assert credit.is_believed(b"other", 11.0)


def test_two_silent_rounds_are_isolation_and_one_answer_ends_it() -> None:
    isolation = Isolation(0.6, 10, 3)
    isolation.note_silence()
    assert not isolation.hears_nobody()
    isolation.note_silence()
    assert isolation.hears_nobody()
    isolation.answered()
    assert not isolation.hears_nobody()


def test_a_group_that_hears_only_its_own_rack_knows_it() -> None:
    isolation = Isolation(0.6, 10, 3)
    for number in range(6):
        isolation.note_outside(float(number), bytes((number,)), answered=False)
    assert isolation.hears_only_own_rack()
    assert isolation.failed_mostly_since(3.0)


def test_one_dead_host_in_a_small_rack_silences_nobody() -> None:
    isolation = Isolation(0.6, 10, 3)
    for number in range(10):
        isolation.note_outside(float(number), b"same", answered=False)
    assert not isolation.hears_only_own_rack()


def test_health_scales_and_recovers_within_its_bounds() -> None:
    health = LocalHealth(8, timeout_s=0.2)
    for _ in range(20):
        health.worsen()
    assert health.factor(0.0) == 8
    for _ in range(20):
        health.improve()
    assert health.factor(0.0) == 1
    assert LocalHealth(8, timeout_s=0.2, enabled=False).factor(0.0) == 1


def test_own_lateness_stretches_time_outs_and_fades() -> None:
    health = LocalHealth(8, timeout_s=0.2)
    health.note_late(0.19, 10.0)  # a probe's answer that is as late is still in time
    assert health.factor(10.0) == 1
    health.note_late(0.7, 10.0)
    health.note_late(0.3, 10.1)
    health.improve()
    assert [health.factor(now) for now in (10.1, 13.0, 15.1, 20.0)] == [4, 3, 2, 1]
    health.note_late(9.0, 30.0)
    assert health.factor(30.0) == 8


def test_lateness_and_the_score_do_not_hide_each_other() -> None:
    health = LocalHealth(8, timeout_s=0.2)
    health.worsen(2)
    health.note_late(0.9, 10.0)
    assert health.factor(10.0) == 5
    assert health.factor(60.0) == 3


def test_a_tombstone_blocks_a_life_not_a_person_and_not_for_ever() -> None:
    stones = Tombstones(2, 10.0)
    stones.add(b"h", 5, 0.0)
    assert stones.blocks(b"h", 5, 1.0)
    assert not stones.blocks(b"h", 6, 1.0)
    assert not stones.blocks(b"h", 5, 11.0)
    for number in range(5):
        stones.add(bytes((number,)), 1, 0.0)
    assert len(stones) == 2


@given(st.lists(st.tuples(st.integers(0, BUCKET_COUNT - 1), st.integers(0, 2**64 - 1))))
def test_a_digest_does_not_depend_on_the_order_and_forgets_completely(marks: list[tuple[int, int]]) -> None:
    forward, backward = Digest(), Digest()
    for bucket, mark in marks:
        forward.change(bucket, mark)
    for bucket, mark in reversed(marks):
        backward.change(bucket, mark)
    assert (forward.total, forward.bucket_hashes()) == (backward.total, backward.bucket_hashes())
    for bucket, mark in marks:
        forward.change(bucket, -mark)
    assert (forward.total, set(forward.bucket_hashes())) == (0, {0})


@pytest.mark.parametrize(
    "wrong",
    [
        {"probe_timeout_s": 0.3},
        {"gossip_fanout": 0},
        {"helper_count": 9},
        {"isolation_share": 0.2},
        {"event_bytes_max": 901},
    ],
)
def test_settings_out_of_range_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        replace(SwimSettings(), **wrong).validate()


def test_an_address_is_told_as_a_configuration_takes_it() -> None:
    assert RECORD.contact == "10.0.0.1:7946"
    assert replace(RECORD, host="fd00::1").contact == contact_of("fd00::1", 7946) == "[fd00::1]:7946"
