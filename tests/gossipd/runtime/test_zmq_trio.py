"""Waiting for a ZeroMQ socket under trio: no wake-up may be lost, whatever else touched the socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio
import trio.testing
import zmq

from gossipd.runtime import zmq_trio
from gossipd.runtime.zmq_trio import SocketWakeup, tcp_address

Pair = tuple[zmq.Socket[bytes], zmq.Socket[bytes]]


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """Two ends of one pipe, and no safety poll that would hide a lost wake-up."""
    monkeypatch.setattr(zmq_trio, "SAFETY_POLL_S", 3600.0)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    near, far = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    near.bind("inproc://pair")
    far.connect("inproc://pair")
    yield near, far
    near.close(0)
    far.close(0)
    context.term()


async def test_a_message_whose_edge_another_call_has_eaten_is_still_seen(pair: Pair) -> None:
    near, far = pair
    far.send(b"x")
    assert near.getsockopt(zmq.EVENTS)  # reads the state, and with it the edge
    with trio.fail_after(120):
        await SocketWakeup().wait(near, seconds_max=3600)
    assert near.recv(zmq.NOBLOCK) == b"x"


async def test_a_wait_ends_when_a_message_comes(pair: Pair) -> None:
    near, far = pair
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: SocketWakeup().wait(near, seconds_max=3600))
            await trio.testing.wait_all_tasks_blocked()
            far.send(b"x")


async def test_a_ring_ends_the_present_wait_or_the_next_one_and_only_one(pair: Pair) -> None:
    near, _ = pair
    wakeup = SocketWakeup()
    with trio.fail_after(120):
        wakeup.ring()
        wakeup.ring()
        await wakeup.wait(near, seconds_max=3600)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: wakeup.wait(near, seconds_max=3600))
            await trio.testing.wait_all_tasks_blocked()
            wakeup.ring()
    with trio.move_on_after(0) as scope:
        await wakeup.wait(near, seconds_max=3600)
    assert scope.cancelled_caught


async def test_a_wait_is_bounded_even_without_a_ring(pair: Pair) -> None:
    with trio.fail_after(120):
        await SocketWakeup().wait(pair[0], seconds_max=0.001)
        await SocketWakeup().wait(pair[0], seconds_max=-1)


def test_addresses_are_written_as_zeromq_reads_them() -> None:
    assert tcp_address("10.0.0.1", 7946) == "tcp://10.0.0.1:7946"
    assert tcp_address("fd00::1", 7946) == "tcp://[fd00::1]:7946"
