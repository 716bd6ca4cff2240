"""The campaign's connections keep what TCP promises: in order, whatever was cut and mended meanwhile; by values."""

from __future__ import annotations

import pytest

from gossipd.core.ids import DeploymentId
from gossipd.sessions.send_queue import Outgoing
from gossipd.wire.control import Subscribe
from membership.member import NodeId
from tests.sim.campaign.plane import Connection, Plane
from tests.sim.campaign.world import World

OWN, PEER = 0, 1
WORDS = [Outgoing(Subscribe(DeploymentId(bytes([number]) * 32)), 0) for number in range(4)]


def test_messages_that_a_cut_held_back_arrive_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(1, hosts=8, kinds=())
    for daemon in world.daemons:
        daemon.boot(join=(), roster=[])
    heard: list[Outgoing] = []
    monkeypatch.setattr(Plane, "hear_message", lambda self, node, outgoing: heard.append(outgoing))
    plane, connection = world.daemons[OWN].plane, Connection(PEER)
    connection.is_up, connection.under_way = True, len(WORDS)
    for word, when in zip(WORDS, (0.0, 1.05, 1.15, 1.32), strict=True):
        world.at(when, plane._arrive, connection, word)
    cut = [(OWN, PEER)]
    world.at(1.0, world.wires.cut_pairs, cut)
    # Each would be sent again 0.2 s after it was tried; this finds the third one first, and the fourth before both.
    world.at(1.3, world.wires.mend_pairs, cut)
    world.wires.run(1.0)
    assert heard == WORDS[:1]
    world.wires.run(3.0)
    assert heard == WORDS
    assert connection.under_way == 0


def test_what_a_cut_holds_back_is_lost_with_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(1, hosts=8, kinds=())
    for daemon in world.daemons:
        daemon.boot(join=(), roster=[])
    heard: list[tuple[NodeId, Outgoing]] = []
    monkeypatch.setattr(Plane, "hear_message", lambda self, node, outgoing: heard.append((node, outgoing)))
    plane, connection = world.daemons[OWN].plane, Connection(PEER)
    cut = [(OWN, PEER)]
    world.wires.cut_pairs(cut)
    plane._arrive(connection, WORDS[0])
    connection.is_over = True
    world.wires.mend_pairs(cut)
    world.wires.run(3.0)
    assert not heard
