"""Envelopes as they arrive: what an announced size costs before anything came, and who gives way."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest

from gossipd.runtime.buffer_pool import BufferPool
from gossipd.runtime.rate_limit import RateLimit
from gossipd.transfer.envelope_body import (
    IN_ALL_BYTES,
    PIECE_BYTES,
    SMALL_BYTES,
    EnvelopeRoom,
    _check_pace,
    receive_envelope,
)
from gossipd.transfer.errors import FetchCancelledError, PeerSlowError
from gossipd.transfer.settings import MANIFEST_BYTES_MAX
from membership.member import NodeId
from tests.gossipd.transfer.pairs import MODEL, SERVER, WAIT_S
from tests.gossipd.transfer.scripted import QUICK, client_of, read_request, scripted_server
from tests.gossipd.transfer.test_hostile_servers import ok, say_nothing

ONE, TWO, THREE = (NodeId(bytes([number]) * 16) for number in (1, 2, 3))


class _Channel:
    """Gives bytes until ``ends_at``; then the connection ends."""

    def __init__(self, ends_at: float = math.inf) -> None:
        self.ends_at = ends_at
        self.pieces: list[int] = []

    def receive_body(self, view: memoryview, throttle: RateLimit) -> None:
        if sum(self.pieces) + len(view) > self.ends_at:
            raise ConnectionError
        view[:] = bytes([len(self.pieces) % 256]) * len(view)
        self.pieces.append(len(view))


def received(channel: _Channel, size: int, room: EnvelopeRoom, node: NodeId = ONE) -> bytes:
    return receive_envelope(cast(Any, channel), size, math.inf, node=node, room=room, throttle=RateLimit(None))


@pytest.mark.parametrize("size", [1, PIECE_BYTES, SMALL_BYTES, SMALL_BYTES + 1, 3 * SMALL_BYTES + 7])
def test_all_of_an_envelope_comes_and_its_room_is_given_back(size: int) -> None:
    room, channel = EnvelopeRoom(), _Channel()
    body = received(channel, size, room)
    assert len(body) == size and set(body[:PIECE_BYTES]) == {0}
    assert max(channel.pieces) <= PIECE_BYTES
    assert not room._taken


def test_an_announced_size_takes_no_memory_before_its_bytes_come(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    monkeypatch.setattr(EnvelopeRoom, "take", lambda room, node, count: taken.append(count))
    with pytest.raises(ConnectionError):
        received(_Channel(ends_at=2 * SMALL_BYTES), MANIFEST_BYTES_MAX, EnvelopeRoom())
    assert sum(taken) <= SMALL_BYTES + PIECE_BYTES


def test_room_is_given_back_when_a_body_breaks_off() -> None:
    room = EnvelopeRoom()
    with pytest.raises(ConnectionError):
        received(_Channel(ends_at=5 * SMALL_BYTES), MANIFEST_BYTES_MAX, room)
    assert not room._taken


def test_one_peer_takes_half_of_the_room_and_two_all_but_what_small_ones_need() -> None:
    room = EnvelopeRoom()
    room.take(ONE, MANIFEST_BYTES_MAX)
    with pytest.raises(FetchCancelledError) as caught:
        room.take(ONE, 1)
    assert caught.value.code == "E_POOL"
    assert len(received(_Channel(), MANIFEST_BYTES_MAX, room, TWO)) == MANIFEST_BYTES_MAX
    room.take(TWO, IN_ALL_BYTES - MANIFEST_BYTES_MAX)
    with pytest.raises(FetchCancelledError):
        received(_Channel(), 2 * SMALL_BYTES, room, THREE)
    assert len(received(_Channel(), SMALL_BYTES, room, THREE)) == SMALL_BYTES
    room.give_back(ONE, MANIFEST_BYTES_MAX)
    assert len(received(_Channel(), 2 * SMALL_BYTES, room, THREE)) == 2 * SMALL_BYTES


@pytest.mark.parametrize(("share", "spent_s"), [(0.01, 4.9), (0.2, 6.0), (0.99, 19.9), (0.125, 5.0)])
def test_a_body_that_may_end_in_time_goes_on(share: float, spent_s: float) -> None:
    _check_pace(share, 100.0, 120.0, 100.0 + spent_s)


@pytest.mark.parametrize(("share", "spent_s"), [(0.01, 5.1), (0.2, 9.0), (0.45, 19.0)])
def test_a_body_at_less_than_half_its_pace_is_given_up(share: float, spent_s: float) -> None:
    with pytest.raises(PeerSlowError, match="cannot end in time"):
        _check_pace(share, 100.0, 120.0, 100.0 + spent_s)


def test_a_manifest_of_any_announced_size_takes_no_buffer_of_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BufferPool, "acquire", lambda *given, **named: pytest.fail("it takes a buffer"))

    def script(sock: Any) -> None:
        request = read_request(sock, with_hello=True)
        sock.sendall(ok(request))
        sock.sendall(bytes(PIECE_BYTES))
        say_nothing(sock, request)

    with scripted_server(script) as endpoint, client_of(QUICK) as client, pytest.raises(PeerSlowError):
        client.fetch_manifest(SERVER, endpoint, MODEL, MANIFEST_BYTES_MAX, timeout_s=WAIT_S)
