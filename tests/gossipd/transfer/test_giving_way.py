"""The pace of a sender that gives way, from readings of its path; and what the kernel is told of it."""

from __future__ import annotations

import socket
import struct

import pytest
from msgspec.structs import replace

from gossipd.transfer.channel import Channel
from gossipd.transfer.giving_way import PATH_BYTES, UNPACED, PathReading, SendPace, read_path
from gossipd.transfer.settings import BulkSettings
from gossipd.transfer.watchdog import Watchdog

RATE_MIN = 256 * 1024
SECOND = 1_250_000_000  # bytes, at 10 Gbit/s; a jumbo frame takes 7 us: the target is 1.01 ms
LOOK_S = 0.05
SO_MAX_PACING_RATE = 47


class Path:
    """A connection that delivers ``rate`` bytes per second, by a clock of its own."""

    def __init__(self, *, rate: int = SECOND, segment_bytes: int = 8948) -> None:
        self.pace = SendPace(rate_min=RATE_MIN)
        self.rate, self.now = rate, 0.0
        self.reading = PathReading(segment_bytes, 0.0002, 0.0001, 0, 0)
        self.pace.heard(self.reading, self.now)

    def look(self, queue_s: float = 0.0, *, lost: int = 0, rate: int | None = None) -> int:
        """The pace after one more look."""
        self.now += LOOK_S
        old = self.reading
        acked = old.acked_bytes + int((self.rate if rate is None else rate) * LOOK_S)
        rtt_s = old.rtt_min_s + queue_s
        self.reading = replace(old, rtt_s=rtt_s, acked_bytes=acked, retransmitted=old.retransmitted + lost)
        self.pace.heard(self.reading, self.now)
        return self.pace.rate


def test_a_path_without_a_queue_is_used_without_a_pace() -> None:
    path = Path()
    assert {path.look() for _ in range(10)} == {UNPACED}


def test_a_long_queue_takes_three_tenths_at_every_fourth_look_down_to_the_least_rate() -> None:
    path = Path()
    rates = [path.look(0.2) for _ in range(200)]
    assert rates[:5] == [pytest.approx(0.7 * SECOND, rel=0.01)] * 4 + [pytest.approx(0.49 * SECOND, rel=0.01)]
    assert rates[-1] == RATE_MIN


def test_a_little_over_the_target_costs_a_little() -> None:
    assert 0.98 < Path().look(0.00101 * 1.1) / SECOND < 0.995


def test_a_pace_doubles_within_five_looks_when_the_path_is_free_again() -> None:
    path = Path()
    for _ in range(20):
        low = path.look(0.02)
    for _ in range(5):
        high = path.look()
    assert high >= 2 * low


def test_a_pace_does_not_rise_beyond_twice_what_is_delivered() -> None:
    path = Path()
    path.look(0.02)
    rates = [path.look(rate=SECOND // 4) for _ in range(100)]
    assert len(set(rates[10:])) == 1
    assert rates[-1] < 1.5 * SECOND


def test_a_sender_that_has_little_to_send_keeps_the_pace_that_it_had() -> None:
    path = Path()
    low = path.look(0.02)
    for _ in range(20):
        high = path.look(rate=1000)
    assert low <= high < 2 * low


def test_lost_packets_count_once_where_switches_hold_less_than_the_target() -> None:
    path = Path()
    first = path.look(lost=3)
    assert first == pytest.approx(0.7 * SECOND, rel=0.01)
    assert path.look() > first


def test_a_slow_link_may_hold_the_packets_that_a_sender_hands_over_at_once() -> None:
    """At 100 Mbit/s a jumbo frame waits 0.7 ms for the one before it, without anybody else on the link."""
    path = Path(rate=12_500_000)
    assert path.look(0.0016) == UNPACED
    assert path.look(0.02) < 12_500_000


def test_a_look_without_an_answer_or_after_a_pause_decides_nothing() -> None:
    path = Path()
    assert path.look(0.02, rate=0) == UNPACED
    path.now += 1.0
    assert path.look(0.02) == UNPACED
    assert path.look(0.02) < SECOND


def test_a_path_is_not_judged_before_a_round_trip_or_by_an_older_kernel() -> None:
    assert read_path(bytes(PATH_BYTES)) is None
    assert read_path(b"\x01" * (PATH_BYTES - 1)) is None


def test_the_kernel_s_reading_is_that_of_its_structure() -> None:
    raw = bytearray(PATH_BYTES)
    for at, value in ((16, 1448), (68, 5000), (100, 7), (148, 200)):
        struct.pack_into("=I", raw, at, value)
    struct.pack_into("=Q", raw, 120, 99)
    assert read_path(bytes(raw)) == PathReading(1448, 0.005, 0.0002, 7, 99)


def test_a_real_connection_is_read_and_paced() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as theirs:
        ours = listener.accept()[0]
        channel = Channel(ours, BulkSettings(background=True), sends_bodies=True)

        def move(count: int) -> PathReading:
            channel.send(bytes(count))
            while count:
                count -= len(theirs.recv(count))
            reading = read_path(ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, PATH_BYTES))
            assert reading is not None
            return reading

        assert move(100_000).segment_bytes > 500
        channel.give_way(1.0)
        moved = move(100_000)
        assert moved.acked_bytes >= 100_000
        assert 0 < moved.rtt_min_s < 1
        channel._pace._last = replace(moved, retransmitted=-1, acked_bytes=0)  # as if one had been lost since
        channel.give_way(1.1)
        told = struct.unpack("=Q", ours.getsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, 8))[0]
        assert RATE_MIN <= told == channel._pace.rate < UNPACED
        channel.close()
        channel.give_way(1.2)  # after the end: nothing


def test_a_watched_server_connection_gives_way_only_where_it_is_wanted() -> None:
    class Counted:
        deadline = None
        transfer, is_moving, is_waiting, gave_way = 1, True, False, 0

        def __init__(self, *, sends_bodies: bool) -> None:
            self.sends_bodies = sends_bodies

        def bytes_moved(self) -> int:
            return 0

        def give_way(self, now: float) -> None:
            self.gave_way += 1

    seen = []
    for background, sends_bodies in ((True, True), (True, False), (False, True)):
        watchdog = Watchdog(BulkSettings(background=background), name="test")
        channel = Counted(sends_bodies=sends_bodies)
        watchdog.add(channel)  # type: ignore[arg-type]
        watchdog.look(0.0)
        seen.append(channel.gave_way)
    assert seen == [1, 0, 0]
