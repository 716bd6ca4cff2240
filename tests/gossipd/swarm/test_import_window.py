"""The window of fetches from other racks: shut by fetches that were cut for being slow, opened by those that arrive."""

from __future__ import annotations

from gossipd.swarm.import_window import ImportWindow

MOST = 16


def test_nothing_is_limited_before_a_fetch_was_slow() -> None:
    assert ImportWindow(MOST).room(0) == MOST
    assert ImportWindow(MOST).room(MOST + 1) == 0


def test_a_slow_fetch_halves_what_was_under_way() -> None:
    window = ImportWindow(MOST)
    window.too_slow(1.0, under_way=8, now=6.0)
    assert window.room(0) == 4


def test_fetches_that_were_slow_together_count_once() -> None:
    window = ImportWindow(MOST)
    for under_way in (8, 7, 6):
        window.too_slow(1.0, under_way, now=6.0)
    assert window.room(0) == 4
    window.too_slow(7.0, under_way=4, now=12.0)
    assert window.room(0) == 2


def test_one_fetch_may_always_be_under_way() -> None:
    window = ImportWindow(MOST)
    for turn in range(20):
        window.too_slow(float(turn), under_way=1, now=float(turn))
    assert window.room(0) == 1


def test_a_windowful_of_arrivals_opens_it_by_one_up_to_the_most() -> None:
    window = ImportWindow(MOST)
    window.too_slow(1.0, under_way=8, now=6.0)
    for _ in range(5):
        window.arrived(1.0)
    assert window.room(0) == 5
    for _ in range(1_000):
        window.arrived(1.0)
    assert window.room(0) == MOST


def test_what_such_a_fetch_takes_follows_the_last_few() -> None:
    window = ImportWindow(MOST)
    window.arrived(4.0)
    assert window.usual_s == 4.0
    for _ in range(30):
        window.arrived(1.0)
    assert 1.0 <= window.usual_s < 1.01
