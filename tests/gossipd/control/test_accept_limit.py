"""The control port's connections are bounded by address; libzmq's descriptors are cut, and never another's."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest
import trio

from gossipd.control.accept_limit import AcceptLimit
from gossipd.runtime.pending_connections import PLACE_LEAST_S
from gossipd.wire import control
from tests.gossipd.control.nodes import QUICK, nodes, until

FEW = replace(QUICK, handshake_s=60.0, pending_max=8, pending_per_address_max=4)


class Addresses:
    def is_member_address(self, address: str) -> bool:
        return address == "127.0.0.1"


class Port:
    """A listening socket whose accepted connections the limit is told of, as libzmq does."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.stack = stack
        self.listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.number = int(self.listener.getsockname()[1])
        self.limit = AcceptLimit(FEW, Addresses())

    def knock(self, address: str, now: float = 0.0) -> tuple[socket.socket, socket.socket]:
        """Both ends of a new connection."""
        ours = self.stack.enter_context(
            socket.create_connection(("127.0.0.1", self.number), source_address=(address, 0))
        )
        theirs = self.stack.enter_context(self.listener.accept()[0])
        self.limit.accepted(theirs.fileno(), self.number, now)
        return ours, theirs


@pytest.fixture
def port() -> Iterator[Port]:
    with contextlib.ExitStack() as stack:
        yield Port(stack)


def is_cut(sock: socket.socket) -> bool:
    try:
        return sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False


def test_the_oldest_silent_connection_of_the_greediest_address_is_cut(port: Port) -> None:
    floods = [port.knock("127.0.0.2")[0] for _ in range(4)]
    newcomer, _ = port.knock("127.0.0.3")
    assert [is_cut(sock) for sock in [*floods, newcomer]] == [True, False, False, False, False]
    assert port.limit.turned_away == 1


def test_a_member_is_accepted_while_strangers_have_every_place_of_theirs(port: Port) -> None:
    for _ in range(20):
        port.knock("127.0.0.2")
    members = [port.knock("127.0.0.1")[0] for _ in range(4)]
    assert not any(map(is_cut, members))


def test_connections_older_than_a_handshake_are_not_counted(port: Port) -> None:
    for _ in range(4):
        port.knock("127.0.0.2")
    assert not is_cut(port.knock("127.0.0.2", now=FEW.handshake_s + 1.0)[0])
    assert port.limit.turned_away == 0


def test_a_descriptor_that_is_another_connection_by_now_is_not_cut(port: Port) -> None:
    _, theirs = port.knock("127.0.0.2")
    other, accepted = port.knock("127.0.0.1")
    os.dup2(accepted.fileno(), theirs.fileno())
    for _ in range(3):
        port.knock("127.0.0.2")
    port.knock("127.0.0.2", now=PLACE_LEAST_S)
    assert port.limit.turned_away == 1
    assert not is_cut(other)


def test_descriptors_that_are_no_connection_to_the_port_are_left_alone(port: Port) -> None:
    port.limit.accepted(port.listener.fileno(), port.number, 0.0)
    port.limit.accepted(10_000, port.number, 0.0)
    port.limit.ended(10_000)
    assert port.limit.turned_away == 0


async def test_members_talk_while_silent_strangers_flood_the_control_port() -> None:
    settings = replace(QUICK, handshake_s=1.5, pending_max=16, pending_per_address_max=8)
    async with nodes(2, settings=settings) as (one, other):
        with contextlib.ExitStack() as stack:
            for at in range(60):
                address = (f"127.0.0.{at % 3 + 2}", 0)
                stack.enter_context(socket.create_connection(("127.0.0.1", other.port), source_address=address))
            await until(lambda: other.plane.listener.turned_away >= 40)
            with trio.fail_after(2):
                assert await one.plane.request(other.host.node, control.Ping(), 2.0) == control.Pong()
