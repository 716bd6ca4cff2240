"""What a peer's end looks like from here: processes that are killed, stopped, and come back."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from gossipd.control.link import Endpoint
from gossipd.control.settings import ControlSettings
from gossipd.core.events import PeerReachable
from gossipd.wire import control
from membership.member import NodeId, node_id
from tests.gossipd.control.nodes import DEPLOYMENT, Node, nodes, secret_of, until

ROOT = Path(__file__).resolve().parents[3]
SOON = ControlSettings(handshake_s=0.4, zap_hold_s=0.1, redial_min_s=0.02, redial_max_s=0.1, heartbeat_s=0.1)


@asynccontextmanager
async def process(number: int) -> AsyncIterator[tuple[subprocess.Popen[bytes], int]]:
    """A node of its own, its process and its port."""
    command = [sys.executable, "-m", "tests.gossipd.control.lone_node", str(number)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as running:
        try:
            assert running.stdout is not None
            yield running, int(await trio.to_thread.run_sync(running.stdout.readline))
        finally:
            running.kill()


def introduce(node: Node, number: int, port: int) -> NodeId:
    public = secret_of(number).public
    peer = node_id(public.ed25519)
    node.host.known[public.curve25519] = peer
    node.host.directory[peer] = Endpoint("127.0.0.1", port, public.curve25519)
    return peer


async def test_a_killed_peer_is_known_to_be_gone_without_waiting_for_a_heartbeat() -> None:
    patient = ControlSettings(heartbeat_s=60)
    async with nodes(1, settings=patient) as (node,), process(2) as (running, port):
        peer = introduce(node, 2, port)
        assert await node.plane.request(peer, control.Ping(), 10) == control.Pong()
        running.kill()
        await until(lambda: PeerReachable(peer, False) in node.host.events)


async def test_a_stopped_peer_is_known_by_its_missing_heartbeats_and_comes_back() -> None:
    async with nodes(1, settings=SOON) as (node,), process(2) as (running, port):
        peer = introduce(node, 2, port)
        node.plane.subscribe(peer, DEPLOYMENT)  # a reason to keep the link
        assert await node.plane.request(peer, control.Ping(), 10) == control.Pong()
        running.send_signal(signal.SIGSTOP)
        await until(lambda: PeerReachable(peer, False) in node.host.events)
        running.send_signal(signal.SIGCONT)
        await until(lambda: node.host.events[-1] == PeerReachable(peer, True))
