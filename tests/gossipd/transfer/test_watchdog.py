"""Late, stalled and slow transfers are cut; steady ones and idle connections are not. Time is given by hand."""

from __future__ import annotations

import threading
import time

import pytest

from gossipd.transfer.channel import Channel, Cut
from gossipd.transfer.settings import BulkSettings
from gossipd.transfer.watchdog import Watchdog

SETTINGS = BulkSettings(stall_s=3.0, grace_s=5.0, rate_min=1000, silence_s=0.5)


class FakeChannel:
    """A channel whose progress is written by the test."""

    def __init__(self) -> None:
        self.cut_by: Cut | None = None
        self.deadline: float | None = None
        self.transfer = 0
        self.is_moving = self.is_waiting = False
        self.moved = 0

    def bytes_moved(self) -> int:
        return self.moved

    def cut(self, reason: Cut) -> None:
        self.cut_by = self.cut_by or reason

    def begin(self) -> None:
        self.transfer += 1
        self.is_moving = True


class Rig:
    """A watchdog whose thread never starts; ``look`` is one tick."""

    def __init__(self) -> None:
        self.silent: list[object] = []
        self.watchdog = Watchdog(SETTINGS, name="test", listener=self)
        self.channel = FakeChannel()
        self.watchdog.add(self.channel)  # type: ignore[arg-type]

    def transfer_fell_silent(self, channel: Channel) -> None:
        self.silent.append(channel)

    def connections_looked_at(self, now: float) -> None:
        """Nothing is closed here."""

    def look(self, now: float, *, moved: int | None = None) -> Cut | None:
        if moved is not None:
            self.channel.moved = moved
        self.watchdog.look(now)
        return self.channel.cut_by


def test_a_deadline_cuts_whatever_goes_on() -> None:
    rig = Rig()
    rig.channel.deadline = 10.0
    assert rig.look(9.9) is None
    assert rig.look(10.0) is Cut.TIMEOUT


def test_an_idle_connection_without_a_deadline_is_left_alone() -> None:
    assert Rig().look(1e9) is None


def test_a_transfer_that_moves_nothing_is_cut() -> None:
    rig = Rig()
    rig.channel.begin()
    assert rig.look(0.0) is None
    assert rig.look(2.9) is None
    assert rig.look(3.0) is Cut.STALLED


def test_progress_puts_the_stall_off() -> None:
    rig = Rig()
    rig.channel.begin()
    for second in range(20):
        assert rig.look(float(second), moved=second * 2000) is None


def test_a_drip_is_cut_after_the_grace() -> None:
    rig = Rig()
    rig.channel.begin()
    for second in range(5):
        assert rig.look(float(second), moved=second) is None
    assert rig.look(5.0, moved=5) is Cut.SLOW


def test_a_quick_start_buys_no_time_for_a_drip() -> None:
    rig = Rig()
    rig.channel.begin()
    rig.look(0.0, moved=0)
    assert rig.look(1.0, moved=100_000_000) is None
    cuts = [rig.look(1.0 + second, moved=100_000_000 + second) for second in range(1, 12)]
    assert cuts[-1] is Cut.SLOW


def test_the_next_transfer_starts_with_a_clean_slate() -> None:
    rig = Rig()
    rig.channel.begin()
    rig.look(0.0)
    rig.look(2.9)
    rig.channel.begin()
    assert rig.look(4.0) is None
    assert rig.look(6.9) is None
    assert rig.look(7.0) is Cut.STALLED


def test_silence_is_told_once_and_again_after_progress() -> None:
    rig = Rig()
    rig.channel.begin()
    for now in (0.0, 0.4, 0.6, 0.8):
        rig.look(now)
    assert rig.silent == [rig.channel]
    rig.look(1.0, moved=1)
    rig.look(1.6)
    assert rig.silent == [rig.channel] * 2


@pytest.mark.parametrize(("since", "silent"), [(0.5, True), (0.0, False)])
def test_it_can_be_asked_who_is_silent(since: float, silent: bool) -> None:
    rig = Rig()
    assert not rig.watchdog.is_silent_since(rig.channel, since)  # type: ignore[arg-type]
    rig.channel.begin()
    rig.look(0.0)
    rig.look(0.4)
    assert rig.watchdog.is_silent_since(rig.channel, since) is silent  # type: ignore[arg-type]


def test_a_channel_that_was_removed_is_not_cut() -> None:
    rig = Rig()
    rig.channel.deadline = 1.0
    rig.watchdog.remove(rig.channel)  # type: ignore[arg-type]
    assert rig.look(2.0) is None


def test_who_waits_for_a_relay_is_not_cut_but_the_host_is_looked_for() -> None:
    rig = Rig()
    rig.channel.begin()
    rig.look(0.0, moved=5)
    rig.channel.is_waiting = True
    assert [rig.look(now) for now in (1.0, 4.0, 6.0, 12.0)] == [None] * 4
    assert rig.silent == [rig.channel]
    rig.channel.is_waiting = False
    assert rig.look(12.2) is Cut.STALLED


def test_it_dozes_only_while_nothing_moves() -> None:
    rig = Rig()
    rig.channel.deadline = 90.0  # of an idle connection
    assert not rig.watchdog.is_busy()
    rig.channel.begin()
    assert rig.watchdog.is_busy()


def test_a_doze_ends_at_the_first_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossipd.transfer.watchdog.TICK_S", 0.001)
    monkeypatch.setattr("gossipd.transfer.watchdog.DOZE_S", 1000.0)
    rig, looked = Rig(), threading.Semaphore(0)
    monkeypatch.setattr(rig, "connections_looked_at", lambda now: looked.release())
    rig.channel.deadline = time.monotonic() + 0.5
    rig.watchdog.start()
    while rig.channel.cut_by is None:
        assert looked.acquire(timeout=120)
    rig.watchdog.close(time.monotonic() + 120)


def test_a_transfer_rouses_the_thread_that_dozes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossipd.transfer.watchdog.TICK_S", 0.001)
    monkeypatch.setattr("gossipd.transfer.watchdog.DOZE_S", 1000.0)
    rig, looked = Rig(), threading.Semaphore(0)
    monkeypatch.setattr(rig, "connections_looked_at", lambda now: looked.release())
    rig.watchdog.start()
    while looked.acquire(timeout=0.2):
        pass  # it looks, and then dozes
    rig.channel.begin()
    rig.watchdog.rouse()
    assert looked.acquire(timeout=120)
    rig.channel.deadline = 1.0  # long past
    while rig.channel.cut_by is None:
        assert looked.acquire(timeout=120)
    rig.watchdog.close(time.monotonic() + 120)


def test_it_ends_when_it_is_closed_during_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()

    def close(now: float) -> None:
        rig.watchdog.remove(rig.channel)  # type: ignore[arg-type]
        rig.watchdog.close(now)

    monkeypatch.setattr(rig, "connections_looked_at", close)
    rig.watchdog.start()
    rig.watchdog._thread.join(120)
    assert not rig.watchdog._thread.is_alive()
