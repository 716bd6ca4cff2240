"""Counters and receive windows of connections for model bytes, on real sockets of this host."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from gossipd.runtime import bulk_sockets
from gossipd.runtime.bulk_sockets import HEAD_BYTES, BulkSockets, WindowLimit, WireBytes

_TCP_WINDOW_CLAMP = 10
LIMIT = WindowLimit(20_000)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection's two ends, with packets as on Ethernet."""
    yield from _connected(1400)


def _connected(packet_bytes: int) -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        for one in (listener, client):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, packet_bytes)
        client.connect(listener.getsockname())
        served, _ = listener.accept()
        with served:
            yield client, served


@pytest.fixture
def large_packets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The same, with packets nearly as on InfiniBand, of half their size."""
    yield from _connected(32_000)


def _move(pair: tuple[socket.socket, socket.socket], nbytes: int) -> None:
    client, served = pair
    served.sendall(bytes(nbytes))
    left = nbytes
    while left:
        left -= len(client.recv(left))


def test_what_connections_move_counts_with_the_heads_of_packets(pair: tuple[socket.socket, socket.socket]) -> None:
    sockets = BulkSockets()
    sockets.add(pair[0])
    before = sockets.look()
    _move(pair, 100_000)
    now = sockets.look()
    assert 100_000 + HEAD_BYTES <= now.received - before.received <= 110_000
    assert now.sent - before.sent < 10_000  # acknowledgements only


def test_what_was_sent_counts_as_arrived_when_it_has(pair: tuple[socket.socket, socket.socket]) -> None:
    sockets = BulkSockets()
    sockets.add(pair[1])
    _move(pair, 100_000)
    pair[0].sendall(b".")  # it brings the last acknowledgement along
    pair[1].recv(1)
    moved = sockets.look()
    assert moved.sent >= 100_000 and moved.acknowledged == moved.sent


def test_the_last_bytes_before_the_end_count(pair: tuple[socket.socket, socket.socket]) -> None:
    sockets = BulkSockets()
    sockets.add(pair[0])
    _move(pair, 50_000)
    sockets.close(pair[0])
    assert sockets.look().received >= 50_000
    assert sockets.look() == sockets.look()


def test_a_window_holds_connections_that_are_there_and_later_ones(pair: tuple[socket.socket, socket.socket]) -> None:
    sockets = BulkSockets()
    sockets.add(pair[0])
    sockets.limit_windows(LIMIT)
    sockets.add(pair[1])
    assert [_window(one) for one in pair] == [20_000, 20_000]
    assert [_buffer(one) for one in pair] == [40_000, 40_000]  # the kernel doubles it
    sockets.limit_windows(None)
    assert min(_window(one) for one in pair) > 1_000_000
    assert min(_buffer(one) for one in pair) > 40_000


def test_unread_bytes_fill_no_more_than_the_small_buffer(pair: tuple[socket.socket, socket.socket]) -> None:
    client, served = pair
    sockets = BulkSockets()
    sockets.limit_windows(WindowLimit(16 * 1024))
    sockets.add(client)
    served.setblocking(False)
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while sent < 50_000_000:
            sent += served.send(bytes(65536))
    assert sockets.look().received < 300_000  # the rest waits in the sender


def test_without_a_limit_no_window_is_touched(pair: tuple[socket.socket, socket.socket]) -> None:
    sockets, before = BulkSockets(), _window(pair[0])
    sockets.add(pair[0])
    sockets.limit_windows(None)
    assert _window(pair[0]) == before


def test_a_socket_that_is_no_connection_counts_for_nothing() -> None:
    sockets = BulkSockets()
    closed = socket.socket()
    closed.close()
    sockets.add(closed)
    sockets.close(socket.socket())
    sockets.limit_windows(LIMIT)
    assert sockets.look() == WireBytes()


def test_bytes_that_came_by_other_ways_are_told_until_the_next_look() -> None:
    sockets = BulkSockets()
    with sockets.unlisted(), sockets.unlisted():
        assert not sockets.were_all()
        assert not sockets.were_all()
    assert not sockets.were_all(), "they ended since the last look"
    assert sockets.were_all()
    with sockets.unlisted():
        pass  # between two looks
    assert not sockets.were_all()


def test_what_wraps_a_connection_counts_from_where_that_was(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    sockets, wrapped = BulkSockets(), pair[0].dup()
    with wrapped:
        sockets.add(pair[0])
        _move(pair, 50_000)
        before = sockets.look()
        sockets.add(wrapped, instead_of=pair[0])
        assert sockets.look() == before


def test_a_window_holds_what_a_long_round_trip_needs() -> None:
    limit = WindowLimit(16_384, bytes_per_s=5e6, seconds=0.001)
    assert limit.window_bytes(0.0, 1460) == 16_384 + 5_000
    assert limit.window_bytes(0.04, 1460) == 16_384 + 405_000


def test_a_window_holds_two_packets_where_they_are_large(
    large_packets: tuple[socket.socket, socket.socket],
) -> None:
    sockets = BulkSockets()
    sockets.limit_windows(LIMIT)
    sockets.add(large_packets[0])
    assert 2 * 30_000 < _window(large_packets[0]) <= 2 * 32_000


def test_what_was_under_way_at_the_end_is_not_under_way_for_ever(pair: tuple[socket.socket, socket.socket]) -> None:
    sockets, served = BulkSockets(), pair[1]
    sockets.add(served)
    served.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            served.send(bytes(65536))  # nobody reads
    sockets.close(served)
    moved = sockets.look()
    assert moved.acknowledged == moved.sent > 0


def test_a_connection_over_another_interface_is_neither_counted_nor_held(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    sockets, before = BulkSockets(), _window(pair[0])
    sockets.watch("eth7")  # theirs is lo
    sockets.limit_windows(LIMIT)
    sockets.add(pair[0])
    sockets.limit_windows(LIMIT)
    assert _window(pair[0]) == before
    sockets.were_all()
    _move(pair, 50_000)
    assert sockets.look() == WireBytes()
    assert not sockets.were_all(), "others cannot be told from it"
    assert sockets.look() == WireBytes() and sockets.were_all(), "it rests"


def test_a_connection_over_the_watched_interface_counts_and_is_held(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    sockets = BulkSockets()
    sockets.limit_windows(LIMIT)
    sockets.add(pair[0])
    sockets.watch("lo")
    assert _window(pair[0]) == 20_000
    _move(pair, 50_000)
    assert sockets.look().received >= 50_000 and sockets.were_all()


def test_a_watch_that_moves_frees_the_windows_of_what_stays(pair: tuple[socket.socket, socket.socket]) -> None:
    sockets = BulkSockets()
    sockets.watch("lo")
    sockets.limit_windows(LIMIT)
    sockets.add(pair[0])
    assert _window(pair[0]) == 20_000
    sockets.watch("eth7")
    assert _window(pair[0]) > 1_000_000


def test_each_local_address_is_looked_up_once(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def interface_with(address: str) -> str:
        asked.append(address)
        return "lo"

    monkeypatch.setattr(bulk_sockets, "interface_with", interface_with)
    sockets = BulkSockets()
    for one in pair:
        sockets.add(one)
        sockets.look()
    assert asked == ["127.0.0.1"]


def _buffer(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def _window(sock: socket.socket) -> int:
    return sock.getsockopt(socket.IPPROTO_TCP, _TCP_WINDOW_CLAMP)
