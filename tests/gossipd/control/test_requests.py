"""Requests by values: who may answer what, and how each ends."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from gossipd.control.requests import PeerSilentError, PeerUnreachableError, RequestRefusedError, RequestTable
from gossipd.wire import control
from membership.member import NodeId

PEER, OTHER = NodeId(b"p" * 16), NodeId(b"q" * 16)


async def test_only_the_node_that_was_asked_can_answer_and_only_in_kind() -> None:
    requests = RequestTable(limit=10)
    with requests.opened(PEER, control.Pong) as pending:
        assert not requests.heard(OTHER, pending.number, control.Pong())
        assert not requests.heard(PEER, pending.number + 1, control.Pong())
        assert not requests.heard(PEER, pending.number, control.PartKept(1))
        assert requests.heard(PEER, pending.number, control.Pong())
        assert requests.heard(PEER, pending.number, control.Refused("E_LATE"))  # the first reply counts
        assert await pending.wait(0) == control.Pong()
    assert not requests.heard(PEER, pending.number, control.Pong())


async def test_a_refusal_answers_any_request() -> None:
    requests = RequestTable(limit=10)
    with requests.opened(PEER, control.Pong) as pending:
        assert requests.heard(PEER, pending.number, control.Refused("E_BUSY"))
        with pytest.raises(RequestRefusedError) as caught:
            await pending.wait(0)
        assert caught.value.code == "E_BUSY"


async def test_a_failed_link_ends_the_requests_to_that_peer_at_once() -> None:
    requests = RequestTable(limit=10)
    with requests.opened(PEER, control.Pong) as one, requests.opened(OTHER, control.Pong) as other:
        requests.fail(PEER, "lost")
        with pytest.raises(PeerUnreachableError, match="lost"):
            await one.wait(60)
        assert requests.heard(OTHER, other.number, control.Pong())
        assert await other.wait(60) == control.Pong()
    assert not requests._pending


async def test_no_reply_is_an_error_at_the_deadline(autojump_clock: trio.testing.MockClock) -> None:
    requests = RequestTable(limit=10)
    with requests.opened(PEER, control.Pong) as pending, pytest.raises(PeerSilentError, match="30 s"):
        await pending.wait(30)


async def test_requests_under_way_are_bounded() -> None:
    requests = RequestTable(limit=1)
    with requests.opened(PEER, control.Pong), pytest.raises(PeerUnreachableError), requests.opened(PEER, control.Pong):
        pass
    with requests.opened(PEER, control.Pong):
        requests.fail_all()
