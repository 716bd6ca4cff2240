"""The campaign's witness of announcements: what was announced and not heard is seen, after a moment; by values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import DeltaHeard, HoldingsHeard, PeerLost, SendDelta, SendHoldings
from gossipd.core.ids import DeploymentId
from membership.member import NodeId
from tests.sim.campaign.announced import HOLE_S, Announcements

A, B = NodeId(b"a" * 16), NodeId(b"b" * 16)
MODEL = DeploymentId(b"m" * 32)


def pair() -> tuple[Announcements, Announcements, Any]:
    """A tells B, which has its Holdings; and what B's plane knows of A."""
    speaker, listener = Announcements(), Announcements()
    speaker.say(SendHoldings(B, MODEL, ChunkSet.of(8, [1]), 4))
    listener.hear(HoldingsHeard(A, MODEL, ChunkSet.of(8, [1]), 4))
    plane = SimpleNamespace(
        is_quiet_between=lambda peer: peer == A, told_by=lambda peer, deployment: speaker.told.get((B, MODEL))
    )
    return speaker, listener, cast(Any, plane)


def test_what_was_heard_as_it_was_announced_is_no_hole() -> None:
    speaker, listener, plane = pair()
    speaker.say(SendDelta((B,), MODEL, (2, 3), (1,), (), 4))
    listener.hear(DeltaHeard(A, MODEL, (2, 3), (1,), (), 4))
    assert [listener.holes(plane, now) for now in (0.0, 100.0)] == [(1, []), (1, [])]


def test_what_stays_missing_is_a_hole() -> None:
    speaker, listener, plane = pair()
    speaker.say(SendDelta((B,), MODEL, (2,), (), (), 4))
    assert listener.holes(plane, 0.0) == (1, [])
    assert listener.holes(plane, HOLE_S) == (1, [])
    assert listener.holes(plane, HOLE_S + 0.1) == (1, [(A, MODEL)])


def test_new_holdings_mend_a_hole() -> None:
    speaker, listener, plane = pair()
    speaker.say(SendDelta((B,), MODEL, (2,), (), (), 4))
    listener.holes(plane, 0.0)
    listener.hear(HoldingsHeard(A, MODEL, ChunkSet.of(8, [1, 2]), 4))
    assert listener.holes(plane, HOLE_S + 0.1) == (1, [])


def test_what_cannot_be_compared_is_no_hole() -> None:
    speaker, listener, plane = pair()
    speaker.say(SendDelta((B,), MODEL, (2,), (), (), 4))
    listener.holes(plane, 0.0)
    speaker.say(PeerLost(B))
    assert listener.holes(plane, HOLE_S + 0.1) == (0, [])


def test_what_is_still_on_its_way_is_no_hole() -> None:
    speaker, listener, plane = pair()
    plane.is_quiet_between = lambda peer: False
    speaker.say(SendDelta((B,), MODEL, (2,), (), (), 4))
    listener.holes(plane, 0.0)
    assert listener.holes(plane, HOLE_S + 0.1) == (1, [])
