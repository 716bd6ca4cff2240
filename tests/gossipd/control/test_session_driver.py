"""Commands of the sessions find the part that performs them: the daemon, the requests, or the dialer."""

from __future__ import annotations

import math
from random import Random

from gossipd.control.requests import RequestTable
from gossipd.control.session_driver import SessionDriver
from gossipd.control.settings import ControlSettings
from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import (
    DeploymentOpened,
    HoldingsHeard,
    PeerReachable,
    SendHoldings,
    StartSubscription,
    SubscribeHeard,
)
from gossipd.core.model import Shape
from gossipd.runtime.turn_loop import TurnLoop
from gossipd.sessions.events import Dial, EndpointChanged, HangUp, LinkDown, LinkUp, MessageHeard, SendReady
from gossipd.sessions.peer_channel import Endpoint
from gossipd.sessions.send_queue import Outgoing
from gossipd.wire import control
from membership.member import NodeId
from tests.gossipd.control.nodes import DEPLOYMENT, FakeHost, secret_of

PEER = NodeId(b"p" * 16)
WHERE = Endpoint("127.0.0.1", 1, b"k" * 32)
TOKENS = (b"t" * 32,)


class Wakes(TurnLoop):
    """A turn loop that counts how often it was woken."""

    count = 0

    def wake(self) -> None:
        self.count += 1


class Driven:
    def __init__(self) -> None:
        self.host, self.requests, self.turn_loop = FakeHost(secret_of(1)), RequestTable(limit=4), Wakes()
        self.host.directory[PEER] = WHERE
        self.driver = SessionDriver(
            host=self.host, requests=self.requests, settings=ControlSettings(), rng=Random(1), turn_loop=self.turn_loop
        )
        self.driver.feed(DeploymentOpened(DEPLOYMENT, Shape(8, 1, 8, 1), ChunkSet(8)))

    def up(self) -> None:
        """The peer subscribes, and is dialed."""
        self.driver.feed(MessageHeard(PEER, control.Subscribe(DEPLOYMENT), 0))
        self.driver.feed(StartSubscription(PEER, DEPLOYMENT))
        self.driver.advance(self.driver.due_s())
        assert list(self.driver.take_transport()) == [Dial(PEER, WHERE)]
        self.driver.feed(LinkUp(PEER))


async def test_reports_reach_the_daemon_and_the_rest_the_dialer() -> None:
    driven = Driven()
    driven.up()
    assert driven.host.events == [SubscribeHeard(PEER, DEPLOYMENT), PeerReachable(PEER, True)]
    assert list(driven.driver.take_transport()) == [SendReady(PEER)]
    assert list(driven.driver.take_transport()) == []


async def test_a_failed_link_fails_the_requests_that_went_over_it() -> None:
    driven = Driven()
    driven.up()
    list(driven.driver.take_transport())
    with driven.requests.opened(PEER, control.Pong) as pending:
        driven.driver.feed(LinkDown(PEER, "lost"))
        assert pending._failure == "lost"
    assert list(driven.driver.take_transport()) == [HangUp(PEER, "lost")]


async def test_holdings_get_their_tokens_once_when_they_leave() -> None:
    driven = Driven()
    driven.host.tokens = TOKENS
    driven.up()
    driven.driver.feed(SendHoldings(PEER, DEPLOYMENT, ChunkSet(8), 4))
    taken: list[Outgoing] = []
    while (outgoing := driven.driver.take(PEER)) is not None:
        taken.append(outgoing)
    (holdings,) = [one for one in taken if isinstance(one.message, control.Holdings)]
    assert isinstance(holdings.message, control.Holdings)
    assert (holdings.message.tokens, holdings.message.valid_s) == (TOKENS, 10)
    driven.driver.sessions.put_back(PEER, holdings)
    driven.host.tokens = ()
    assert driven.driver.take(PEER) == holdings, "those that it was given are not lost"


async def test_tokens_that_came_are_handed_on() -> None:
    driven = Driven()
    driven.up()
    message = control.Holdings(DEPLOYMENT, 7, 8, ChunkSet(8).to_wire(), 4, tokens=TOKENS, valid_s=9)
    driven.driver.feed(MessageHeard(PEER, message, 0))
    assert driven.host.given == [(PEER, TOKENS, 9)]
    assert driven.host.events[-1] == HoldingsHeard(PEER, DEPLOYMENT, ChunkSet(8), 4)


async def test_the_turn_loop_is_woken_only_for_something_new() -> None:
    driven = Driven()
    assert (driven.driver.due_s(), driven.turn_loop.count) == (math.inf, 0)
    driven.driver.feed(StartSubscription(PEER, DEPLOYMENT))
    assert driven.turn_loop.count == 1, "a dial is due"
    assert driven.driver.due_s() < math.inf
    driven.driver.feed(MessageHeard(PEER, control.Hello("test"), 0))
    assert driven.turn_loop.count == 1


async def test_a_peer_that_never_answered_is_asked_by_membership_before_it_is_dialed() -> None:
    driven = Driven()
    driven.host.silent.add(PEER)
    driven.driver.feed(StartSubscription(PEER, DEPLOYMENT))
    driven.driver.advance(driven.driver.due_s())
    assert driven.host.asked == [PEER]
    assert list(driven.driver.take_transport()) == []
    driven.host.silent.clear()
    driven.driver.feed(EndpointChanged(PEER))
    assert list(driven.driver.take_transport()) == [Dial(PEER, WHERE)]
