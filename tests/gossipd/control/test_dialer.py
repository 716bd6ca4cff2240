"""Many links that are wanted at once are dialled in several turns, in the order in which they are wanted."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import zmq

from gossipd.control.dialer import _DIAL_BATCH, ControlDialer
from gossipd.control.settings import ControlSettings
from gossipd.identity.keys import SecretKey
from gossipd.sessions.events import Dial, HangUp, SendReady
from gossipd.sessions.peer_channel import Endpoint
from membership.member import NodeId

SECRET = SecretKey(b"s" * 32)


class _Driver:
    """The sessions want what stands in ``transport``, and have nothing to say."""

    def __init__(self) -> None:
        self.transport: deque[Any] = deque()
        self.due_s = lambda: math.inf

    def advance(self, now: float) -> None:
        """Nothing is due."""

    def take_transport(self) -> Iterator[Any]:
        while self.transport:
            yield self.transport.popleft()

    def take(self, peer: NodeId) -> None:
        """Nothing to say."""


def test_a_turn_dials_and_hangs_up_no_more_than_a_batch_and_asks_for_the_next_turn() -> None:
    driver, hurries = _Driver(), list[int]()
    turn_loop = SimpleNamespace(hurry=lambda: hurries.append(len(driver.transport)))
    with zmq.Context[zmq.Socket[bytes]]() as context:
        dialer = ControlDialer(
            context, secret=SECRET, settings=ControlSettings(), turn_loop=cast(Any, turn_loop),
            driver=cast(Any, driver), dispatcher=cast(Any, None),
        )  # fmt: skip
        try:
            for number in range(2 * _DIAL_BATCH + 3):
                peer = NodeId(number.to_bytes(16, "big"))
                driver.transport.append(SendReady(peer))
                driver.transport.append(Dial(peer, Endpoint("127.0.0.1", 9, SECRET.public.curve25519)))
            driver.transport.append(HangUp(NodeId(bytes(16)), "idle"))
            known = []
            for _ in range(4):
                was_busy = dialer._say(0.0)
                known.append((was_busy, len(dialer._by_peer)))
        finally:
            dialer.close()
    assert known == [
        (True, _DIAL_BATCH), (True, 2 * _DIAL_BATCH), (True, 2 * _DIAL_BATCH + 2), (False, 2 * _DIAL_BATCH + 2)
    ]  # fmt: skip
    assert len(hurries) == 2
