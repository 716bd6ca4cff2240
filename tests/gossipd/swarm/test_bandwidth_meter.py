"""The link's measured rate, by values."""

from __future__ import annotations

from random import Random

import pytest

from gossipd.swarm.bandwidth_meter import BandwidthMeter

MIB = 1024 * 1024


def arrivals(meter: BandwidthMeter, length: int, times: list[float]) -> BandwidthMeter:
    for now in times:
        meter.received(length, now)
    return meter


def test_large_chunks_on_a_slow_link_are_measured_though_they_come_seconds_apart() -> None:
    meter = BandwidthMeter()
    meter.expects(3, 0.0)
    arrivals(meter, 4 * MIB, [1.7, 3.4, 5.1])
    assert meter.chunk_time_s(4 * MIB, 0.05) == pytest.approx(1.7)


def test_chunks_that_share_the_link_and_come_together_do_not_look_faster_than_it_is() -> None:
    meter = BandwidthMeter()
    meter.expects(4, 0.0)
    arrivals(meter, MIB, [wave * 4.0 + 0.001 * place for wave in range(1, 8) for place in range(4)])
    assert 0.25 * MIB <= meter.rate <= 1.01 * MIB


def test_long_chunks_that_end_at_about_one_time_show_no_quicker_link() -> None:
    meter = BandwidthMeter()
    meter.expects(4, 0.0)
    chance = Random(1)
    waves = sorted(wave * 8.0 + chance.uniform(-1.0, 1.0) for wave in range(1, 30) for _ in range(4))
    arrivals(meter, 4 * MIB, waves)
    assert 1.8 <= meter.chunk_time_s(4 * MIB, 0.05) <= 2.5


def test_a_limit_that_falls_shows_within_minutes_where_chunks_take_seconds() -> None:
    meter = BandwidthMeter()
    meter.expects(1, 0.0)
    arrivals(meter, 4 * MIB, [2.0 * number for number in range(1, 42)])
    assert meter.chunk_time_s(4 * MIB, 0.05) == pytest.approx(2.0, rel=0.1)
    arrivals(meter, 4 * MIB, [82.0 + 9.0 * number for number in range(1, 82)])
    assert meter.chunk_time_s(4 * MIB, 0.05) == pytest.approx(9.0, rel=0.1)


def test_small_chunks_are_measured_by_tens() -> None:
    meter = BandwidthMeter()
    meter.expects(3, 0.0)
    arrivals(meter, 100_000, [0.01 * number for number in range(1, 10)])
    assert not meter.rate
    arrivals(meter, 100_000, [0.01 * number for number in range(10, 30)])
    assert meter.rate == pytest.approx(10_000_000, rel=0.05)


def test_a_tiny_model_says_nothing_about_the_link() -> None:
    meter = BandwidthMeter()
    meter.expects(3, 0.0)
    arrivals(meter, 1000, [0.1 * number for number in range(1, 100)])
    assert not meter.rate


def test_time_without_a_request_says_nothing_about_the_link() -> None:
    meter = BandwidthMeter()
    meter.expects(1, 0.0)
    arrivals(meter, MIB, [1.0, 2.0, 3.0])
    meter.expects(0, 3.0)
    meter.expects(1, 1000.0)
    arrivals(meter, MIB, [1001.0, 1002.0, 1003.0])
    assert meter.rate == pytest.approx(MIB, rel=0.02)


def test_before_anything_is_measured_the_callers_guess_holds() -> None:
    meter = BandwidthMeter()
    meter.received(MIB, 1.0)
    assert meter.chunk_time_s(MIB, 0.05) == 0.05


def test_how_long_the_first_chunks_have_been_under_way_is_known_until_the_rate_is() -> None:
    meter = BandwidthMeter()
    meter.expects(3, 0.0)
    for now in (0.1, 1.0, 5.0):
        meter.expects(3, now)
    assert (meter.waited_s, meter.chunk_time_s(4 * MIB, 0.05)) == (5.0, 0.05)
    arrivals(meter, 4 * MIB, [8.0])
    assert meter.waited_s == 0.0
    assert meter.chunk_time_s(4 * MIB, 0.05) == pytest.approx(8.0)
