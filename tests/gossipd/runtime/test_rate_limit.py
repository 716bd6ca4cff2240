"""The throttle is exact on its own clock, shared by threads, changeable, and nothing when unset."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from gossipd.runtime.rate_limit import BANKED_S, PIECE_S, RateLimit

WAIT_S = 120.0


class Clock:
    """Monotonic time that waiting moves: a throttle's sleeps take no time, and are exact or late as told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, late_s: float = 0.0) -> None:
        self.now = 1000.0
        self.late_s = late_s
        monkeypatch.setattr("gossipd.runtime.rate_limit.time.monotonic", lambda: self.now)
        monkeypatch.setattr(threading.Condition, "wait", self.wait)

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None, "a throttle never waits for ever"
        self.now += timeout + self.late_s
        return False


@pytest.mark.parametrize("late_s", [0.0, 0.003, 0.02], ids=["on time", "3 ms late", "20 ms late"])
@pytest.mark.parametrize("rate", [64 * 1024, 10_000_000, 1_250_000_000])
def test_the_rate_is_exact_within_two_per_cent(monkeypatch: pytest.MonkeyPatch, rate: int, late_s: float) -> None:
    clock = Clock(monkeypatch, late_s=late_s)
    throttle = RateLimit(rate)
    started = clock.now
    left = total = rate * 10
    while left:
        piece = throttle.piece(left)
        throttle.take(piece)
        left -= piece
    assert total / (clock.now - started) == pytest.approx(rate, rel=0.02)


def test_time_that_nobody_used_is_banked_only_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    throttle = RateLimit(1000)
    clock.now += 3600
    started = clock.now
    throttle.take(1000)
    assert clock.now - started == pytest.approx(1 - BANKED_S)


def test_without_a_limit_nothing_waits_and_a_piece_is_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    throttle = RateLimit()
    assert throttle.piece(1 << 40) == 1 << 40
    throttle.take(1 << 40)
    assert clock.now == 1000.0


def test_a_limit_set_later_does_not_count_what_went_before(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    throttle = RateLimit(1000)
    throttle.take(5000)
    throttle.set_rate(None)
    throttle.take(1 << 40)
    throttle.set_rate(2000)
    started = clock.now
    throttle.take(2000)
    assert clock.now - started == pytest.approx(1.0, abs=2 * BANKED_S)


def test_what_is_limited_within_a_wider_limit_keeps_to_both(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    wide = RateLimit(2_000)
    narrow = RateLimit(1_000, within=wide)
    started = clock.now
    narrow.take(10_000)
    assert clock.now - started == pytest.approx(10, abs=2 * BANKED_S)
    narrow.set_rate(None)
    assert narrow.rate == 2_000
    assert narrow.piece(1 << 30) == wide.piece(1 << 30)
    started = clock.now
    narrow.take(5_000)
    wide.take(5_000)
    assert clock.now - started == pytest.approx(5, abs=2 * BANKED_S), "they share the wider one"
    wide.set_rate(None)
    narrow.set_rate(1_000)
    assert narrow.rate == 1_000
    assert wide.rate is None


def test_pieces_are_short_against_every_deadline() -> None:
    throttle = RateLimit(1_000_000)
    assert throttle.piece(1 << 30) <= 1_000_000 * 0.05
    assert throttle.piece(10) == 10


def test_a_change_of_rate_reaches_those_who_wait() -> None:
    throttle = RateLimit(1)
    waiting = threading.Thread(target=throttle.take, args=(1_000_000,))
    waiting.start()
    throttle.set_rate(1e12)
    waiting.join(WAIT_S)
    assert not waiting.is_alive()


def test_removing_the_limit_and_closing_wake_those_who_wait() -> None:
    ends: list[Callable[[RateLimit], None]] = [lambda throttle: throttle.set_rate(None), RateLimit.close]
    for end in ends:
        throttle = RateLimit(1)
        waiting = threading.Thread(target=throttle.take, args=(1_000_000,))
        waiting.start()
        end(throttle)
        waiting.join(WAIT_S)
        assert not waiting.is_alive()


def test_a_rate_of_nothing_is_refused() -> None:
    for rate in (0, -1):
        with pytest.raises(AssertionError):
            RateLimit(rate)
        with pytest.raises(AssertionError):
            RateLimit().set_rate(rate)


def test_a_limit_within_two_others_keeps_to_the_lowest_of_the_three(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    widest = RateLimit(1000)
    middle = RateLimit(within=widest)
    inner = RateLimit(4000, within=middle)
    assert inner.rate == middle.rate == 1000
    started = clock.now
    for _ in range(100):
        inner.take(100)
    assert 10_000 / (clock.now - started) == pytest.approx(1000, rel=0.02)


def test_what_was_asked_for_at_a_high_rate_waits_no_longer_at_a_low_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    throttle = RateLimit(1_000_000)
    mark = throttle._issue(2_000_000)
    throttle.set_rate(10_000)
    started = clock.now
    throttle._wait(mark)
    assert clock.now - started == pytest.approx(2, rel=0.05)
    throttle.take(10_000)
    assert clock.now - started == pytest.approx(3, rel=0.05), "what is asked for now keeps to the new rate"


def test_pieces_of_a_short_high_rate_are_those_of_the_lower_one() -> None:
    widest = RateLimit()
    inner = RateLimit(within=RateLimit(within=widest))
    widest.set_rate(100_000_000, piece_rate=10_000_000)
    assert (inner.rate, inner.piece(1 << 30)) == (100_000_000, int(10_000_000 * PIECE_S))
    widest.set_rate(None)
    assert inner.piece(1 << 30) == 1 << 30
