"""Sizes follow the codec that daemons use, and add up to what the lab has counted on its wires."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import SendDelta
from gossipd.core.ids import DeploymentId
from gossipd.sim.outcome import simulated
from gossipd.sim.scenario import lab
from gossipd.sim.traffic_model import (
    ACKNOWLEDGEMENT_BYTES,
    datagram_bytes,
    delta_bytes,
    holdings_bytes,
    progress_bytes_s,
    request_bytes,
)
from gossipd.sim.world import World
from gossipd.wire.control import Delta, Holdings, Message, Subscribe
from gossipd.wire.control_frame import encode, encode_fields, gaps, join

SEGMENT_BYTES = 14 + 20 + 32  # Ethernet, IPv4, TCP with time stamps
CURVE_BYTES = 2 + 8 + 8 + 16 + 1  # ZMTP's flags and length, CurveZMQ's name, nonce, authenticator and flags
DEPLOYMENT = DeploymentId(b"d" * 32)
STREAM, NUMBER = 40_000, 300  # as long on the wire as nearly all are


def frame_bytes(frame: bytes) -> int:
    return SEGMENT_BYTES + CURVE_BYTES + len(frame)


@pytest.mark.parametrize(
    ("added", "reading"),
    [((), ()), ((7,), ()), ((200,), (3,)), ((5, 6, 300), (1_000, 1_001)), (tuple(range(0, 40, 2)), ())],
)
def test_a_delta_is_as_long_as_the_daemons_codec_makes_it(added: tuple[int, ...], reading: tuple[int, ...]) -> None:
    fields = encode_fields(Delta(STREAM, gaps(added), (), gaps(reading), 3))
    counted = delta_bytes(SendDelta((), DEPLOYMENT, added, (), reading, 3))
    assert counted == frame_bytes(join(Delta, fields, number=NUMBER))


@pytest.mark.parametrize("size", [100, 512, 1_000, 4_000])
def test_holdings_and_requests_are_as_long_as_the_daemons_codec_makes_them(size: int) -> None:
    chunks = ChunkSet(size, (1 << size // 2) - 1)
    holdings: Message = Holdings(DEPLOYMENT, STREAM, size, chunks.to_wire(), 4)
    assert holdings_bytes(chunks) == frame_bytes(encode(holdings, number=NUMBER))
    assert abs(request_bytes() - frame_bytes(encode(Subscribe(DEPLOYMENT)))) <= 2  # its number is a zero


def test_headers_are_counted_for_acknowledgements_and_datagrams_too() -> None:
    assert ACKNOWLEDGEMENT_BYTES == SEGMENT_BYTES
    assert datagram_bytes(100) == 142  # as the lab's own meter counts it (tests/bench/lab/test_lab.py)


def test_rumours_of_progress_grow_with_the_hosts_up_to_their_budget() -> None:
    told = [progress_bytes_s(hosts) for hosts in (1, 6, 16, 40, 100, 10_000)]
    assert told[0] == 0
    assert told == sorted(told)
    assert told[-1] == told[-2]


@pytest.mark.parametrize(("mbit", "measured", "signed"), [(100, 16_500, True), (50, 11_600, False), (50, 15_100, True)])
def test_the_simulated_lab_sends_what_the_lab_has_counted_on_its_wires(
    mbit: float, measured: float, signed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not signed:  # as long as records of progress had 69 bytes instead of 134
        rates = ((1, 0.0), (6, 1979.0), (16, 5536.0), (40, 5625.0), (100, 5628.0))
        monkeypatch.setattr("gossipd.sim.traffic_model._PROGRESS", rates)
    world = World(replace(lab(mb=128, mbit=mbit), chunks=256))  # half of the lab's model, in its chunks of 512 KiB
    world.run()
    assert simulated(world).control_bytes_per_node_s == pytest.approx(measured, rel=0.15)
