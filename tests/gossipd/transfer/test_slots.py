"""Slots are few, per peer fewer, and every change is told."""

from __future__ import annotations

import pytest

from gossipd.transfer.slots import SLOW_MEMORY_S, SLOW_S, UNKNOWN_S, UploadSlots
from membership.member import NodeId

A, B = NodeId(b"a" * 16), NodeId(b"b" * 16)


def test_slots_run_out_and_come_back() -> None:
    told: list[int] = []
    slots = UploadSlots(2, 2, on_change=told.append)
    assert slots.acquire(A)
    assert slots.acquire(B)
    assert not slots.acquire(B)
    slots.release(A, 0.0)
    assert slots.acquire(B)
    assert told == [1, 0, 1, 0]


def test_one_peer_cannot_take_them_all() -> None:
    slots = UploadSlots(3, 2)
    assert slots.acquire(A)
    assert slots.acquire(A)
    assert not slots.acquire(A)
    assert slots.free == 1
    assert slots.acquire(B)


def test_slow_readers_that_nothing_is_known_of_share_half_of_the_slots() -> None:
    slots = UploadSlots(8, 4)
    readers = [NodeId(bytes([number]) * 16) for number in range(4)]
    taken = [sum(slots.acquire(reader, 1 << 20) for _ in range(4)) for reader in readers]
    assert taken == [4, 1, 1, 1], "one slot is left for a fifth"
    assert slots.acquire(A)


def test_a_slow_upload_lends_its_slot_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("gossipd.transfer.slots.time.monotonic", lambda: now)
    slots = UploadSlots(1, 1)
    assert slots.acquire(A, 1 << 20)
    slots.note_upload(A, 1 << 20, now - 0.01)
    slots.release(A, now)
    assert slots.acquire(B, 1 << 20)
    now += 0.9
    assert not slots.acquire(A, 1 << 20)
    now += 0.2
    assert slots.acquire(A, 1 << 20)


def test_of_a_peer_that_has_read_nothing_to_its_end_half_of_the_usual_rate_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    for is_known in (True, False):
        slots = UploadSlots(1, 1)
        for peer in (A, B) if is_known else (A,):
            slots.note_upload(peer, 1000, started=clock.now - 1.0)
        assert slots.acquire(B, 1000)
        clock.now += 2.5
        assert slots.acquire(A, 1000) is not is_known


def test_the_hint_follows_how_long_uploads_take(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1.0
    monkeypatch.setattr("gossipd.transfer.slots.time.monotonic", lambda: now)
    slots = UploadSlots(2, 2)
    assert slots.retry_after_s == 0
    for _ in range(50):
        assert slots.acquire(A)
        slots.release(A, started=now - 0.5)
    assert slots.retry_after_s == pytest.approx(0.25, rel=0.01)


def test_fewer_slots_from_now_on_cut_nobody_and_more_are_told_at_once() -> None:
    told: list[int] = []
    slots = UploadSlots(3, 3, on_change=told.append)
    assert slots.acquire(NodeId(b"a" * 16))
    assert slots.acquire(NodeId(b"a" * 16))
    slots.resize(1)
    assert (slots.free, slots.busy) == (0, 2)
    assert not slots.acquire(NodeId(b"b" * 16))
    slots.resize(4)
    assert slots.free == 2
    assert told == [2, 1, 0, 2]


def test_a_peer_far_slower_than_others_has_one_slot_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("gossipd.transfer.slots.time.monotonic", lambda: now)
    slots = UploadSlots(8, 4)
    for number in range(5):
        slots.note_upload(NodeId(bytes([number]) * 16), 16_000_000, now - 1.0)
    slots.note_upload(A, 16_000_000, now - 100.0)
    slots.note_upload(B, 0, now - SLOW_S)
    for node in (A, B):
        assert slots.acquire(node)
        assert not slots.acquire(node)
    now += SLOW_MEMORY_S + 1
    assert slots.acquire(A)


def test_where_every_upload_is_slow_nobody_is_and_one_liar_does_not_change_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("gossipd.transfer.slots.time.monotonic", lambda: now)
    slots = UploadSlots(8, 4)
    for _ in range(100):
        slots.note_upload(B, 1_000_000, now)
    for number in range(5):
        node = NodeId(bytes([number]) * 16)
        slots.note_upload(node, 16_000_000, now - 30.0)
        slots.note_upload(node, 16_000_000, now - 30.0)
    assert slots.acquire(NodeId(bytes([4]) * 16))
    assert slots.acquire(NodeId(bytes([4]) * 16))


class Clock:
    """Monotonic seconds that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("gossipd.transfer.slots.time.monotonic", lambda: self.now)


def test_the_slot_of_an_upload_far_slower_than_others_is_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, slots = Clock(monkeypatch), UploadSlots(2, 2)
    other = NodeId(b"c" * 16)
    for peer in (A, B, other):
        slots.note_upload(peer, 1000, started=clock.now - 1.0)
    assert slots.acquire(A, 1000)
    assert slots.acquire(other, 1000)
    assert not slots.acquire(B, 1000)
    clock.now += SLOW_S
    assert not slots.acquire(B, 1000), "a third of the usual rate"
    clock.now += 8.0
    assert not slots.acquire(A, 1000), "it has an upload that takes long"
    assert slots.acquire(B, 1000)
    assert slots.free == 1
    slots.release(A, clock.now - SLOW_S - 8.0)
    assert slots.free == 1


def test_while_no_rate_is_known_as_many_slots_are_lent_and_then_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, slots = Clock(monkeypatch), UploadSlots(2, 1)
    peers = [NodeId(bytes([number]) * 16) for number in range(9)]
    assert [slots.acquire(peer, 1000) for peer in peers[:3]] == [True, True, False]
    clock.now += UNKNOWN_S
    assert [slots.acquire(peer, 1000) for peer in peers[3:6]] == [True, True, False]
    clock.now += UNKNOWN_S
    assert [slots.acquire(peer, 1000) for peer in peers[6:8]] == [True, False]
    slots.note_upload(peers[6], 1000, started=clock.now)
    slots.release(peers[6], clock.now)
    assert slots.acquire(peers[8], 1000), "one that was quick shows that the others are slow"


def test_before_its_first_upload_a_host_compares_with_what_it_receives(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, slots = Clock(monkeypatch), UploadSlots(4, 2)
    peers = [NodeId(bytes([number]) * 16) for number in range(40)]
    slots.note_received(1000, 0.5)
    for begin in range(0, 36, 4):
        assert [slots.acquire(peer, 1000) for peer in peers[begin : begin + 5]] == [True] * 4 + [False]
        clock.now += 1.1
    assert slots.free == 0, "it is told when the next change comes"
    assert slots.acquire(peers[36], 1000)


def test_a_peer_whose_upload_takes_long_has_no_second_before_rates_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, slots = Clock(monkeypatch), UploadSlots(4, 4)
    assert slots.acquire(A, 1000)
    assert slots.acquire(A, 1000)
    clock.now += UNKNOWN_S
    assert not slots.acquire(A, 1000)
    assert slots.acquire(B, 1000)


def test_slow_readers_that_hold_more_than_all_slots_do_not_close_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, slots = Clock(monkeypatch), UploadSlots(8, 4)
    slow = [NodeId(bytes([number]) * 16) for number in range(16)]
    for _ in range(5):
        for peer in slow:
            while slots.acquire(peer, 1000):
                pass
        slots.resize(4)
        clock.now += UNKNOWN_S
    assert slots.busy > 8
    assert slots.acquire(A, 1000)
