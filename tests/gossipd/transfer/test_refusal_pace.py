"""Refusals without end: who waits for them, whatever it asks for and on how many connections."""

from __future__ import annotations

import socket

import pytest

from gossipd.core.ids import DeploymentId
from gossipd.transfer import refusal_pace
from gossipd.transfer.refusal_pace import BURST, PAUSE_S, PER_S, RefusalPace
from gossipd.transfer.settings import Encryption
from gossipd.wire.transfer import REPLY_BYTES, BulkVerb, Reply, Request, Status
from tests.gossipd.transfer.pairs import CLIENT, MODEL, SERVER, pair
from tests.gossipd.transfer.test_hostile_clients import enter, errors_of

FEW = 3.0


def test_each_peer_has_its_own_bound_and_it_comes_back() -> None:
    pace = RefusalPace()
    assert not any(pace.pause_s(CLIENT, 0.0) for _ in range(int(BURST)))
    assert pace.pause_s(CLIENT, 0.0) == PAUSE_S
    assert not pace.pause_s(SERVER, 0.0)
    assert not any(pace.pause_s(CLIENT, 1.0) for _ in range(int(PER_S)))
    assert pace.pause_s(CLIENT, 1.0) == PAUSE_S


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (Request(BulkVerb.CHUNK, DeploymentId(bytes(32)), 0, 100), Status.UNKNOWN),
        (Request(BulkVerb.CHUNK, MODEL, 4_000_000, 100), Status.RANGE),
        (Request(BulkVerb.MANIFEST, DeploymentId(bytes(32)), 0, 100), Status.UNKNOWN),
    ],
)
def test_who_asks_without_end_for_what_is_not_there_waits_and_is_counted(
    monkeypatch: pytest.MonkeyPatch, asked: Request, status: Status
) -> None:
    monkeypatch.setattr(refusal_pace, "BURST", FEW)
    monkeypatch.setattr(refusal_pace, "PER_S", 0.0)
    monkeypatch.setattr(refusal_pace, "PAUSE_S", 0.001)
    with pair(Encryption.NONE) as running:
        for _ in range(2):
            with enter(running) as sock:
                sock.sendall(asked.to_wire() * 4)
                replies = [Reply.from_wire(sock.recv(REPLY_BYTES, socket.MSG_WAITALL)).status for _ in range(4)]
                assert replies == [status] * 4, "each is answered"
        assert errors_of(running)["E_TOO_MANY_ASKS"] == 2 * 4 - FEW
