"""The kernel's filter on real listening sockets of both families, and of both at once."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from gossipd.runtime.connection_filter import ConnectionFilter
from gossipd.runtime.flooding_addresses import DROPPED_MAX

OTHERS = {
    4: tuple(f"127.1.{number // 200}.{number % 200 + 1}" for number in range(DROPPED_MAX - 1)),
    6: tuple(f"fe80::1:{number + 1:x}" for number in range(DROPPED_MAX - 1)),
}


@pytest.fixture(params=["127.0.0.1", "::1", "::"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    is_dual = request.param == "::"
    with socket.create_server((request.param, 0), family=family, dualstack_ipv6=is_dual) as sock:
        sock.settimeout(120)
        yield sock


def sources(listener: socket.socket) -> list[str]:
    """Addresses that can reach it."""
    name = listener.getsockname()[0]
    return {"127.0.0.1": ["127.0.0.1", "127.0.0.9"], "::1": ["::1"], "::": ["127.0.0.9", "::1"]}[name]


def gets_in(listener: socket.socket, source: str) -> bool:
    """Whether an attempt is answered; the kernel's loopback answers at once or never."""
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    target = "::1" if ":" in source else "127.0.0.1"
    with socket.socket(family) as sock:
        sock.bind((source, 0))
        sock.settimeout(0.2)
        try:
            sock.connect((target, listener.getsockname()[1]))
        except TimeoutError:
            return False
        listener.accept()[0].close()
        return True


def test_attempts_from_a_dropped_address_are_not_answered_and_others_are(listener: socket.socket) -> None:
    connection_filter = ConnectionFilter(listener.fileno())
    everybody = sources(listener)
    assert all(gets_in(listener, one) for one in everybody)
    for dropped in everybody:
        connection_filter.drop((dropped, *OTHERS[4], *OTHERS[6]))
        assert [gets_in(listener, one) for one in everybody] == [one != dropped for one in everybody]
    connection_filter.drop(())
    assert all(gets_in(listener, one) for one in everybody)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_segments_that_are_no_attempt_pass_from_a_dropped_address(address: str) -> None:
    """On a UDP socket, where the sixth byte after the header stands where TCP has its flags."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    syn, ack, push_ack, syn_ack = b"\x02", b"\x10", b"\x18", b"\x12"
    with socket.socket(family, socket.SOCK_DGRAM) as receiver, socket.socket(family, socket.SOCK_DGRAM) as sender:
        receiver.bind((address, 0))
        receiver.settimeout(120)
        ConnectionFilter(receiver.fileno()).drop((address,))
        for flags in (syn, ack, push_ack, syn, syn_ack):
            sender.sendto(bytes(5) + flags + bytes(20), receiver.getsockname())
        assert [receiver.recv(100)[5:6] for _ in range(3)] == [ack, push_ack, syn_ack]


def test_a_connection_that_inherits_the_filter_goes_on_when_its_address_is_dropped() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection_filter = ConnectionFilter(listener.fileno())
        connection_filter.drop(("127.0.0.8",))
        with socket.create_connection(listener.getsockname(), source_address=("127.0.0.9", 0)) as ours:
            connection_filter.drop(("127.0.0.9",))
            with listener.accept()[0] as theirs:
                theirs.settimeout(120)
                ours.sendall(b"word")
                assert theirs.recv(100) == b"word"


def test_a_socket_without_filters_or_that_is_closed_is_left_alone() -> None:
    reading, writing = os.pipe()
    connection_filter = ConnectionFilter(reading)
    connection_filter.drop(("127.0.0.1",))
    os.close(reading)
    os.close(writing)
    connection_filter.drop(())
