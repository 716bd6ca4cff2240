"""The control port's connections are bounded by address; libzmq's descriptors are cut, and never another's."""

from __future__ import annotations

import contextlib
import math
import os
import socket
from collections.abc import Iterator

import pytest
import trio
from msgspec.structs import replace

from gossipd.control.accept_limit import AcceptLimit
from gossipd.runtime.flooding_addresses import ADDRESS_FAILURES_MAX, DROP_S, PORT_FAILURES_MAX
from gossipd.runtime.pending_connections import PLACE_LEAST_S
from gossipd.wire import control
from tests.gossipd.control.nodes import QUICK, nodes, until

FLOOD = PORT_FAILURES_MAX + 1
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
        self.limit.listening(self.listener.fileno())

    def knock(self, address: str, now: float = 0.0) -> tuple[socket.socket, socket.socket]:
        """Both ends of a new connection."""
        ours = self.stack.enter_context(
            socket.create_connection(("127.0.0.1", self.number), source_address=(address, 0))
        )
        theirs = self.stack.enter_context(self.listener.accept()[0])
        self.limit.accepted(theirs.fileno(), self.number, now)
        return ours, theirs

    def fail(self, address: str, times: int, *, after_s: float = 0.0) -> None:
        """Connections that end so long after they were accepted."""
        for _ in range(times):
            _, theirs = self.knock(address)
            self.limit.ended(theirs.fileno(), after_s)
        self.limit.drop_floods(after_s)


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


def test_connections_are_counted_until_they_end(port: Port) -> None:
    _, theirs = port.knock("127.0.0.1")
    port.knock("127.0.0.2")
    assert port.limit.open_count == 2
    port.limit.ended(theirs.fileno(), 1.0)
    assert port.limit.open_count == 1


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
    port.limit.ended(10_000, 0.0)
    assert port.limit.turned_away == 0


def test_the_kernel_drops_connections_of_an_address_that_fails_without_end(port: Port) -> None:
    port.fail("127.0.0.2", FLOOD)
    assert port.limit.dropped_addresses(0.0) == ("127.0.0.2",)
    with pytest.raises(TimeoutError):
        socket.create_connection(("127.0.0.1", port.number), 0.2, source_address=("127.0.0.2", 0))
    assert not is_cut(port.knock("127.0.0.3")[0])
    port.limit.drop_floods(DROP_S)
    assert not is_cut(port.knock("127.0.0.2")[0])


def test_members_keys_that_are_known_and_connections_that_stayed_are_no_flood(port: Port) -> None:
    port.fail("127.0.0.1", FLOOD)
    port.fail("127.0.0.2", FLOOD, after_s=FEW.handshake_s + 2.0)
    port.fail("127.0.0.3", FLOOD - 1)
    assert port.limit.is_counting
    port.limit.authenticated("::ffff:127.0.0.3")
    port.fail("127.0.0.3", ADDRESS_FAILURES_MAX)
    assert port.limit.dropped_addresses(0.0) == ()


@pytest.fixture
def quick_drop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few connections are a flood, however slow the machine; it is soon over."""
    for name, value in (("PORT_FAILURES_MAX", 20), ("WINDOW_S", math.inf), ("DROP_S", 1.0)):
        monkeypatch.setattr(f"gossipd.runtime.flooding_addresses.{name}", value)


def gets_in(port: int, address: str) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 0.2, source_address=(address, 0)).close()
    except TimeoutError:
        return False
    return True


@pytest.mark.usefixtures("quick_drop")
async def test_a_flood_from_one_address_is_dropped_and_a_client_that_shares_one_is_not() -> None:
    async with nodes(2, settings=QUICK) as (one, other):
        dropped: set[str] = set()
        with trio.fail_after(60):
            while not dropped:
                for address in ("127.0.0.1", "127.0.0.2"):
                    await trio.to_thread.run_sync(gets_in, other.port, address)
                assert await one.plane.request(other.host.node, control.Ping(), 120) == control.Pong()
                dropped.update(other.plane.listener.dropped_addresses)
        assert dropped == {"127.0.0.2"}


@pytest.mark.usefixtures("quick_drop")
async def test_an_address_is_let_in_again_though_nobody_else_connects() -> None:
    async with nodes(1, settings=QUICK) as (node,):
        with trio.fail_after(60):
            while await trio.to_thread.run_sync(gets_in, node.port, "127.0.0.2"):
                pass
            while not await trio.to_thread.run_sync(gets_in, node.port, "127.0.0.2"):
                pass


async def test_members_talk_while_silent_strangers_flood_the_control_port() -> None:
    settings = replace(QUICK, handshake_s=1.5, pending_max=16, pending_per_address_max=8)
    async with nodes(2, settings=settings) as (one, other):
        with contextlib.ExitStack() as stack:
            for at in range(60):
                address = (f"127.0.0.{at % 3 + 2}", 0)
                stack.enter_context(socket.create_connection(("127.0.0.1", other.port), source_address=address))
            await until(lambda: other.plane.listener.turned_away >= 40)
            with trio.fail_after(120):
                assert await one.plane.request(other.host.node, control.Ping(), 120) == control.Pong()
