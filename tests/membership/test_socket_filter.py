"""The filter on real sockets of both families."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from membership.seal import KeyRing, key_tag
from membership.socket_filter import SocketFilter

TAGS = [b"\x01\x02\x03\x04", b"\xff\x00\xee\x00", b"tags"]


@pytest.fixture(params=["127.0.0.1", "::1"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as receiver, socket.socket(family, socket.SOCK_DGRAM) as sender:
        receiver.bind((request.param, 0))
        receiver.settimeout(120)
        sender.connect(receiver.getsockname())
        yield receiver, sender


@pytest.mark.parametrize("tags", [TAGS[:1], TAGS, [bytes((number,)) * 4 for number in range(64)]])
def test_only_datagrams_with_a_version_and_a_tag_come_through(
    pair: tuple[socket.socket, socket.socket], tags: list[bytes]
) -> None:
    receiver, sender = pair
    wanted = [b"\x01" + tag + b"body" for tag in tags]
    strange = [b"", b"\x01", b"\x01\x01\x02\x03", b"\x02" + tags[0] + b"body", b"\x01none" + b"body", bytes(1399)]
    socket_filter = SocketFilter(receiver)
    socket_filter.admit(1, tags)
    for datagram in strange + wanted:
        sender.send(datagram)
    assert [receiver.recv(2000) for _ in wanted] == wanted
    assert socket_filter.admit_all() == len(strange)


def test_everything_comes_through_again_when_it_is_off(pair: tuple[socket.socket, socket.socket]) -> None:
    receiver, sender = pair
    socket_filter = SocketFilter(receiver)
    assert socket_filter.admit_all() == 0
    socket_filter.admit(1, TAGS)
    sender.send(b"noise")
    assert socket_filter.admit_all() == 1
    sender.send(b"noise")
    assert receiver.recv(100) == b"noise"
    assert socket_filter.admit_all() == 0


def test_another_key_ring_gets_through_while_a_filter_is_on(pair: tuple[socket.socket, socket.socket]) -> None:
    receiver, sender = pair
    ring = KeyRing(b"c" * 16, (b"k" * 32,))
    newer = key_tag(ring.cluster_id, b"n" * 32)
    socket_filter = SocketFilter(receiver)
    socket_filter.admit(1, [key_tag(ring.cluster_id, ring.keys[0])])
    sender.send(b"\x01" + newer)
    socket_filter.admit(1, [newer])
    sender.send(b"\x01" + newer + b"now")
    assert receiver.recv(100) == b"\x01" + newer + b"now"
    assert socket_filter.admit_all() == 1  # both filters are one time without everything


def test_a_socket_without_filters_hears_everything() -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with left, right:
        socket_filter = SocketFilter(left)
        socket_filter.admit(1, [])  # no key, and nothing to compare with
        right.send(b"noise")
        assert left.recv(100) == b"noise"
        assert socket_filter.admit_all() == 0
