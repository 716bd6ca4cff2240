"""Marks on real sockets, read from what arrives."""

from __future__ import annotations

import socket

import pytest

from gossipd.runtime.traffic_marks import mark


def received_octet(family: socket.AddressFamily, host: str, dscp: int) -> int:
    """The octet of a datagram's header that a marked socket has sent."""
    with socket.socket(family, socket.SOCK_DGRAM) as ours, socket.socket(family, socket.SOCK_DGRAM) as theirs:
        theirs.settimeout(120)
        theirs.bind((host, 0))
        theirs.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        if family == socket.AF_INET6:
            theirs.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
        mark(ours, dscp)
        ours.sendto(b"datagram", theirs.getsockname())
        _, told, _, _ = theirs.recvmsg(64, 256)
        return next(value[0] for level, _, value in told if level in (socket.IPPROTO_IP, socket.IPPROTO_IPV6))


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
@pytest.mark.parametrize("dscp", [0, 1, 8, 46])
def test_datagrams_arrive_with_the_mark_of_their_socket(family: socket.AddressFamily, host: str, dscp: int) -> None:
    assert received_octet(family, host, dscp) == dscp << 2


def test_a_peer_with_ipv4_of_an_ipv6_socket_sees_the_mark_too() -> None:
    with (
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as ours,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as theirs,
    ):
        theirs.settimeout(120)
        theirs.bind(("127.0.0.1", 0))
        theirs.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        ours.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        mark(ours, 8)
        ours.sendto(b"datagram", ("::ffff:127.0.0.1", theirs.getsockname()[1]))
        _, told, _, _ = theirs.recvmsg(64, 256)
        assert [value[0] for _, _, value in told] == [32]


def test_a_connection_that_is_accepted_has_its_listener_s_mark_and_no_priority_yet() -> None:
    with socket.socket() as listener, socket.socket() as ours:
        mark(listener, 8)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        ours.connect(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == 32
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY) == 0
            mark(accepted, 8)
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY) == 2


def test_an_unmarked_socket_is_as_the_system_made_it() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 5)
        mark(ours, 0)
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY) == 5
