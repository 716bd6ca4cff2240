"""The states of one connection and its pauses; by values."""

from __future__ import annotations

from gossipd.core.ids import DeploymentId
from gossipd.sessions.peer_channel import ChannelState, Endpoint, PeerChannel
from gossipd.sessions.send_queue import DeltaPayload
from gossipd.sessions.settings import SessionSettings
from gossipd.wire.control import Holdings
from membership.member import NodeId

PEER = NodeId(b"p" * 16)
WHERE = Endpoint("h", 1, b"k" * 32)


def channel(now: float = 0.0) -> PeerChannel:
    return PeerChannel(PEER, SessionSettings(redial_min_s=1, redial_max_s=5), now)


def test_a_new_channel_is_dialed_at_once() -> None:
    found = channel(7.0)
    assert (found.state, found.dial_at_s, found.used_s) == (ChannelState.WAITING, 7.0, 7.0)


def test_a_dialed_channel_has_two_handshakes_time() -> None:
    found = channel()
    found.dial(WHERE, 10.0)
    assert (found.state, found.endpoint, found.dial_until_s) == (ChannelState.DIALING, WHERE, 13.0)


def test_a_failed_channel_drops_its_queue_and_waits_longer_each_time_up_to_a_bound() -> None:
    found, pauses = channel(), []
    for _ in range(5):
        found.queue.put_holdings(Holdings(DeploymentId(b"m" * 32), 7, 8, b"\0", 1))
        found.queue.put_delta(DeltaPayload(7, (1,), (), (), 1))
        found.is_ready = True
        found.dial(WHERE, 10.0)
        assert found.fail(100.0, jitter=1.0) == 2
        assert (found.state, bool(found.queue), found.is_ready) == (ChannelState.WAITING, False, False)
        pauses.append(found.dial_at_s - 100.0)
    assert pauses == [1, 2, 4, 5, 5]
    found.up(0.0)
    found.fail(100.0, jitter=0.5)
    assert found.dial_at_s == 100.5


def test_a_channel_that_never_holds_is_dialed_ever_later() -> None:
    found, now, pauses = channel(), 100.0, []
    for held_s in (0.0, 0.0, 4.9, 0.0, 5.0, 0.0):
        found.dial(WHERE, now)
        found.up(now)
        now += held_s
        found.fail(now, jitter=1.0)
        pauses.append(found.dial_at_s - now)
        now = found.dial_at_s
    assert pauses == [1, 2, 4, 5, 1, 2]


def test_hurry_leaves_the_shortest_pause() -> None:
    found = channel()
    for _ in range(4):
        found.fail(100.0, jitter=1.0)
    assert found.dial_at_s == 105.0
    found.hurry()
    assert found.dial_at_s == 101.0
    found.fail(200.0, jitter=0.1)
    found.hurry()
    assert found.dial_at_s == 200.5, "never later than it was"
