"""What a peer's end looks like from here: processes that are killed, stopped, and come back; hosts that vanish."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import trio
import zmq

from gossipd.control.settings import ControlSettings
from gossipd.core.events import PeerReachable
from gossipd.sessions.peer_channel import Endpoint
from gossipd.wire import control
from membership.member import NodeId, node_id
from tests.gossipd.control.nodes import Node, nodes, secret_of, until

ROOT = Path(__file__).resolve().parents[3]
SOON = ControlSettings(
    handshake_s=20.0, zap_hold_s=0.1, redial_min_s=0.02, redial_max_s=0.1, heartbeat_s=0.5, silence_s=0.5
)


@asynccontextmanager
async def process(
    number: int, *, within: tuple[str, ...] = (), address: str = "127.0.0.1"
) -> AsyncIterator[tuple[subprocess.Popen[bytes], int]]:
    """A node of its own, its process and its port."""
    command = [*within, sys.executable, "-m", "tests.gossipd.control.lone_node", str(number), address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as running:
        try:
            assert running.stdout is not None
            yield running, int(await trio.to_thread.run_sync(running.stdout.readline))
        finally:
            running.kill()


@contextmanager
def other_host(address: str) -> Iterator[str]:
    """A namespace with ``address`` at the other end of a cable; its name, which is also its interface's."""
    name = f"gv{os.getpid()}"
    own = f"{address.rpartition('.')[0]}.1"
    try:
        for line in (
            f"netns add {name}",
            f"link add {name} type veth peer name {name} netns {name}",
            f"addr add {own}/30 dev {name}",
            f"link set {name} up",
            f"-n {name} addr add {address}/30 dev {name}",
            f"-n {name} link set {name} up",
        ):
            subprocess.run(["ip", *line.split()], check=True, timeout=120)
        yield name
    finally:
        # The cable first: a namespace with the rest of a connection outlives its name, and its address with it.
        for line in (f"link del {name}", f"netns del {name}"):
            subprocess.run(["ip", *line.split()], check=True, timeout=120)


def introduce(node: Node, number: int, port: int, address: str = "127.0.0.1") -> NodeId:
    public = secret_of(number).public
    peer = node_id(public.ed25519)
    node.host.known[public.curve25519] = peer
    node.host.directory[peer] = Endpoint(address, port, public.curve25519)
    return peer


async def test_a_killed_peer_is_known_to_be_gone_without_waiting_for_a_heartbeat() -> None:
    patient = ControlSettings(heartbeat_s=60)
    async with nodes(1, settings=patient) as (node,), process(2) as (running, port):
        peer = introduce(node, 2, port)
        assert await node.plane.request(peer, control.Ping(), 120) == control.Pong()
        running.kill()
        await until(lambda: PeerReachable(peer, False) in node.host.events)


@pytest.mark.parametrize("heartbeat_s", [5.0, ControlSettings().heartbeat_s, 60.0])
async def test_a_peer_waits_longer_than_heartbeats_last_and_counts_so_far(heartbeat_s: float) -> None:
    async with nodes(1, settings=ControlSettings(heartbeat_s=heartbeat_s)) as (node,):
        ttl_ms = int(node.plane.dialer._socket.getsockopt(zmq.HEARTBEAT_TTL))
    assert heartbeat_s * 1000 < ttl_ms < 1 << 16


async def test_a_stopped_peer_is_known_by_its_missing_heartbeats_and_comes_back() -> None:
    async with nodes(1, settings=SOON) as (node,), process(2) as (running, port):
        peer = introduce(node, 2, port)
        node.subscribe(peer)  # a reason to keep the link
        assert await node.plane.request(peer, control.Ping(), 120) == control.Pong()
        running.send_signal(signal.SIGSTOP)
        await until(lambda: PeerReachable(peer, False) in node.host.events)
        running.send_signal(signal.SIGCONT)
        await until(lambda: node.host.events[-1] == PeerReachable(peer, True))


@pytest.mark.needs("netns")
async def test_a_vanished_host_is_known_by_what_it_has_not_acknowledged_and_not_before_something_was_said() -> None:
    settings = ControlSettings(heartbeat_s=60, silence_s=0.3)
    address = "198.19.77.2"
    with other_host(address) as name:
        within = ("ip", "netns", "exec", name)
        async with nodes(1, settings=settings) as (node,), process(2, within=within, address=address) as (_, port):
            peer = introduce(node, 2, port, address)
            node.subscribe(peer)  # a reason to dial again, should the cable not have been ready
            await until(lambda: node.host.events[-1:] == [PeerReachable(peer, True)])
            assert await node.plane.request(peer, control.Ping(), 120) == control.Pong()
            await trio.to_thread.run_sync(subprocess.run, ["ip", "-n", name, "link", "set", name, "down"])
            assert node.host.events[-1] == PeerReachable(peer, True)
            node.plane.driver.put(peer, control.Hello("are you there?"))
            await until(lambda: node.host.events[-1] == PeerReachable(peer, False))
