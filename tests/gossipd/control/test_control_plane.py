"""Two and more real control planes on loopback: requests, one-way words, news, and what happens when links break."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from gossipd.api.refusal_counters import refused
from gossipd.control.requests import PeerSilentError, PeerUnreachableError, RequestRefusedError
from gossipd.control.settings import ControlSettings
from gossipd.core import events
from gossipd.core.chunkset import ChunkSet
from gossipd.runtime import zmq_trio
from gossipd.wire import control
from gossipd.wire.control_frame import encode
from tests.gossipd.control.nodes import DEPLOYMENT, QUICK, Node, nodes, start, until
from tests.gossipd.control.test_admission import visit


def opened(*found: Node, size: int = 1000) -> None:
    for node in found:
        node.open(size)


async def follow(follower: Node, told: Node, held: ChunkSet, *, free_slots: int = 4) -> None:
    """``follower`` is subscribed at ``told``, and has its Holdings."""
    before = len(told.of(events.SubscribeHeard))
    heard = len(follower.of(events.HoldingsHeard))
    follower.subscribe(told.host.node)
    await until(lambda: len(told.of(events.SubscribeHeard)) > before)
    told.send_holdings(follower, held, free_slots)
    await until(lambda: len(follower.of(events.HoldingsHeard)) > heard)


async def test_a_request_is_answered_by_the_node_it_was_sent_to() -> None:
    async with nodes(3) as (a, b, c):
        b.host.answer = lambda _: control.Token(b"b" * 32, 30)
        c.host.answer = lambda _: control.Token(b"c" * 32, 30)
        assert await a.plane.request(b.host.node, control.TokenWanted(), 120) == control.Token(b"b" * 32, 30)
        assert await a.plane.request(c.host.node, control.TokenWanted(), 120) == control.Token(b"c" * 32, 30)
        assert [identity.node for identity, _ in b.host.requests] == [a.host.node]


async def test_a_ping_is_answered_by_the_plane_itself() -> None:
    async with nodes(2) as (a, b):
        assert await a.plane.request(b.host.node, control.Ping(), 120) == control.Pong()
        assert b.host.requests == []


async def test_many_requests_at_once_get_their_own_replies() -> None:
    async with nodes(2) as (a, b):
        b.host.answer = lambda asked: (
            control.PartKept(asked.offset) if isinstance(asked, control.ManifestPart) else None
        )
        replies: list[tuple[int, control.Message]] = []

        async def ask(number: int) -> None:
            part = control.ManifestPart(DEPLOYMENT, 100, number, b"m")
            replies.append((number, await a.plane.request(b.host.node, part, 120)))

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(ask, number)
        assert sorted(replies) == [(number, control.PartKept(number)) for number in range(100)]


async def test_a_reply_of_the_wrong_kind_is_no_reply() -> None:
    async with nodes(2) as (a, b):
        b.host.answer = lambda _: control.PartKept(7)
        with pytest.raises(PeerSilentError):
            await a.plane.request(b.host.node, control.TokenWanted(), 0.1)
        await until(lambda: a.plane.statistics().get("control_unasked_reply") == 1)


async def test_a_request_ends_at_its_deadline() -> None:
    async with nodes(2) as (a, b):
        with pytest.raises(PeerSilentError, match=b.host.node.hex()[:12]):
            await a.plane.request(b.host.node, control.TokenWanted(), 0.05)


async def test_a_refusal_carries_the_peers_code() -> None:
    async with nodes(2) as (a, b):
        b.host.answer = lambda _: control.Refused("E_BUSY", "later")
        with pytest.raises(RequestRefusedError, match="later") as caught:
            await a.plane.request(b.host.node, control.TokenWanted(), 120)
        assert caught.value.code == "E_BUSY"


async def test_a_request_to_a_stranger_or_to_a_closed_port_fails_at_once() -> None:
    async with nodes(2) as (a, b):
        b.scope.cancel()
        with pytest.raises(PeerUnreachableError):
            await a.plane.request(b.host.node, control.Ping(), 120)
        del a.host.directory[b.host.node]
        a.plane.hear(events.PeerLost(b.host.node))
        with pytest.raises(PeerUnreachableError):
            await a.plane.request(b.host.node, control.Ping(), 120)


async def test_a_request_does_not_sit_out_a_long_pause_before_dialing_again() -> None:
    slow = ControlSettings(handshake_s=20.0, zap_hold_s=0.1, redial_min_s=0.01, redial_max_s=3600)
    async with nodes(2, settings=slow) as (a, b):
        await a.plane.request(b.host.node, control.Ping(), 120)
        channel = a.channel(b)
        assert channel is not None
        a.subscribe(b.host.node)  # a reason to keep the link
        channel._pause_s = 3600
        a.lose(b)
        assert await a.plane.request(b.host.node, control.Ping(), 120) == control.Pong()


async def test_a_worker_thread_can_ask() -> None:
    async with nodes(2) as (a, b):
        reply = await trio.to_thread.run_sync(a.plane.request_from_thread, b.host.node, control.Ping(), 120)
        assert reply == control.Pong()


async def test_a_link_begins_with_hello_and_carries_one_way_words() -> None:
    async with nodes(2) as (a, b):
        assert a.plane.driver.put(b.host.node, control.Hello("gossipd test, again"))
        await until(lambda: b.greetings == 2)


async def test_a_follower_hears_holdings_and_then_every_delta_in_order() -> None:
    async with nodes(2) as (a, b):
        opened(a, b)
        held = ChunkSet.of(1000, [1, 2, 999])
        await follow(a, b, held)
        for chunk in range(300):
            b.send_delta(a, added=(chunk,), reading=(chunk + 1,), free_slots=chunk % 5)
            if chunk % 10 == 0:
                await trio.lowlevel.checkpoint()
        await until(lambda: {c for e in a.of(events.DeltaHeard) for c in e.added} == set(range(300)))
        assert a.of(events.HoldingsHeard) == [events.HoldingsHeard(b.host.node, DEPLOYMENT, held, 4)]
        assert a.plane.statistics()["follow_gaps"] == 0
        assert a.of(events.DeltaHeard)[-1].free_slots == 299 % 5


async def test_one_delta_reaches_all_followers_and_nobody_else() -> None:
    async with nodes(4) as (a, b, c, d):
        opened(a, b, c, d)
        for follower in (b, c):
            await follow(follower, a, ChunkSet(1000))
        a.send_delta(b, c, d, added=(4,), dropped=(5,), reading=(6,), free_slots=1)
        await until(lambda: b.of(events.DeltaHeard) and c.of(events.DeltaHeard))
        expected = events.DeltaHeard(a.host.node, DEPLOYMENT, (4,), (5,), (6,), 1)
        assert b.of(events.DeltaHeard) == c.of(events.DeltaHeard) == [expected]
        assert d.host.events == []


async def test_more_news_than_one_frame_holds_is_split_without_a_gap() -> None:
    async with nodes(2) as (a, b):
        opened(a, b, size=100_000)
        await follow(a, b, ChunkSet(100_000))
        b.send_delta(a, added=tuple(range(0, 100_000, 50)), free_slots=2)
        wanted = set(range(0, 100_000, 50))
        await until(lambda: {c for e in a.of(events.DeltaHeard) for c in e.added} == wanted)
        assert a.plane.statistics()["follow_gaps"] == 0


async def test_a_follower_that_asks_too_early_is_heard_when_the_deployment_opens() -> None:
    async with nodes(2) as (a, b):
        opened(a)
        a.subscribe(b.host.node)
        await until(lambda: b.plane.statistics()["entrance_received"] >= 2)
        assert b.of(events.SubscribeHeard) == []
        opened(b)
        assert b.of(events.SubscribeHeard) == [events.SubscribeHeard(a.host.node, DEPLOYMENT)]


async def test_unsubscribing_ends_the_news() -> None:
    async with nodes(2) as (a, b):
        opened(a, b)
        await follow(a, b, ChunkSet(1000))
        a.plane.hear(events.EndSubscription(b.host.node, DEPLOYMENT))
        await until(lambda: b.of(events.UnsubscribeHeard))
        b.send_holdings(a, ChunkSet(1000))
        await a.plane.request(b.host.node, control.Ping(), 120)
        assert len(a.of(events.HoldingsHeard)) == 1


async def test_a_subscription_without_an_answer_is_repeated() -> None:
    async with nodes(2, settings=QUICK) as (a, b):
        opened(a, b)
        a.subscribe(b.host.node)
        await until(lambda: len(b.of(events.SubscribeHeard)) >= 3)


async def test_a_restarted_node_is_followed_again_by_itself() -> None:
    async with trio.open_nursery() as nursery:
        a, b = await start(nursery, 1), await start(nursery, 2)
        a.host.introduce(b.host, b.port)
        b.host.introduce(a.host, a.port)
        opened(a, b)
        await follow(a, b, ChunkSet.of(1000, [1]))
        b.scope.cancel()
        await until(lambda: events.PeerReachable(b.host.node, False) in a.host.events)
        again = await start(nursery, 2, port=b.port)
        again.host.introduce(a.host, a.port)
        opened(again)
        await until(lambda: again.of(events.SubscribeHeard))
        again.send_holdings(a, ChunkSet.of(1000, [1, 2]))
        await until(lambda: len(a.of(events.HoldingsHeard)) == 2)
        assert a.of(events.PeerReachable) == [
            events.PeerReachable(b.host.node, True),
            events.PeerReachable(b.host.node, False),
            events.PeerReachable(b.host.node, True),
        ]
        nursery.cancel_scope.cancel()


async def test_a_peer_that_was_lost_when_nobody_needed_it_may_be_asked_again() -> None:
    async with trio.open_nursery() as nursery:
        a, b = await start(nursery, 1), await start(nursery, 2)
        a.host.introduce(b.host, b.port)
        b.host.introduce(a.host, a.port)
        opened(a, b)
        await follow(a, b, ChunkSet.of(1000, [1]))
        a.plane.hear(events.EndSubscription(b.host.node, DEPLOYMENT))
        b.scope.cancel()
        await until(lambda: len(a.of(events.PeerReachable)) == 3)
        assert [heard.reachable for heard in a.of(events.PeerReachable)] == [True, False, True]
        nursery.cancel_scope.cancel()


async def test_a_node_whose_link_to_a_follower_broke_tells_it_everything_again() -> None:
    async with trio.open_nursery() as nursery:
        a, b = await start(nursery, 1), await start(nursery, 2)
        a.host.introduce(b.host, b.port)
        b.host.introduce(a.host, a.port)
        opened(a, b)
        await follow(a, b, ChunkSet(1000))
        before = len(b.of(events.SubscribeHeard))
        b.lose(a)
        await until(lambda: len(b.of(events.SubscribeHeard)) > before)
        nursery.cancel_scope.cancel()


async def test_a_moved_member_is_dialed_at_its_new_address() -> None:
    async with trio.open_nursery() as nursery:
        a, b = await start(nursery, 1), await start(nursery, 2)
        a.host.introduce(b.host, b.port)
        b.host.introduce(a.host, a.port)
        assert await a.plane.request(b.host.node, control.Ping(), 120) == control.Pong()
        elsewhere = await start(nursery, 2)
        elsewhere.host.introduce(a.host, a.port)
        a.host.introduce(elsewhere.host, elsewhere.port)
        a.plane.member_changed(b.host.node)
        assert await a.plane.request(b.host.node, control.Ping(), 120) == control.Pong()
        assert elsewhere.plane.statistics()["zap_accepted"] == 1
        nursery.cancel_scope.cancel()


async def test_an_idle_link_is_closed_and_opened_again_when_needed() -> None:
    idle = ControlSettings(handshake_s=20.0, zap_hold_s=0.1, link_idle_s=0.05, redial_min_s=0.02)
    async with nodes(2, settings=idle) as (a, b):
        await a.plane.request(b.host.node, control.Ping(), 120)
        await until(lambda: a.channel(b) is None)
        assert await a.plane.request(b.host.node, control.Ping(), 120) == control.Pong()
        assert a.plane.statistics()["link_dialed"] == 2


async def test_links_to_acquaintances_are_dialed_a_few_at_a_time_and_stay_without_a_word() -> None:
    idle = ControlSettings(handshake_s=20.0, zap_hold_s=0.1, link_idle_s=0.05, redial_min_s=0.02)
    async with nodes(4, settings=idle) as (a, *others):
        known = frozenset(other.host.node for other in others)
        a.plane.keep_links(known, dials_max=2)
        assert sum(a.channel(other) is not None for other in others) == 2
        a.plane.keep_links(known, dials_max=2)
        await until(lambda: all(other.greetings for other in others))  # greeted
        a.plane.keep_links(known - {others[0].host.node}, dials_max=2)
        await until(lambda: a.channel(others[0]) is None)
        assert all(a.channel(other) is not None for other in others[1:])
        assert a.plane.statistics()["link_dialed"] == 3


async def test_a_link_to_an_acquaintance_that_broke_is_dialed_again_by_itself() -> None:
    async with nodes(2) as (a, b):
        a.plane.keep_links(frozenset({b.host.node}), dials_max=1)
        await until(lambda: b.greetings)
        b.scope.cancel()
        await until(lambda: a.of(events.PeerReachable)[-1] == events.PeerReachable(b.host.node, False))
        async with trio.open_nursery() as nursery:
            again = await start(nursery, 2, port=b.port)
            again.host.introduce(a.host, a.port)
            await until(lambda: again.greetings)
            assert a.of(events.PeerReachable)[-1] == events.PeerReachable(b.host.node, True)
            nursery.cancel_scope.cancel()


async def test_when_a_deployment_opens_acquaintances_are_dialed_without_sitting_out_a_pause() -> None:
    async with nodes(2) as (a, b):
        a.plane.keep_links(frozenset({b.host.node}), dials_max=1)
        await until(lambda: b.greetings)
        b.scope.cancel()
        await until(lambda: a.plane.statistics()["link_failed"])
        async with trio.open_nursery() as nursery:
            channel = a.channel(b)
            assert channel is not None
            channel.dial_at_s += 1e6  # so long a pause that only this test could sit it out
            again = await start(nursery, 2, port=b.port)
            again.host.introduce(a.host, a.port)
            opened(a)
            await until(lambda: again.greetings)
            nursery.cancel_scope.cancel()


async def test_holdings_bring_tokens_and_only_to_subscribers() -> None:
    async with nodes(2) as (a, b):
        opened(a, b)
        b.host.tokens = (b"t" * 32, b"u" * 32)
        await follow(a, b, ChunkSet(1000))
        assert a.host.given == [(b.host.node, (b"t" * 32, b"u" * 32), 10)]
        b.host.tokens = ()
        b.send_holdings(a, ChunkSet(1000))
        await until(lambda: len(a.of(events.HoldingsHeard)) == 2)
        assert len(a.host.given) == 1


async def test_a_full_queue_refuses_and_counts() -> None:
    narrow = ControlSettings(link_queue_messages_max=3)
    async with nodes(2, settings=narrow) as (a, b):
        sent = [a.plane.driver.put(b.host.node, control.Hello(f"word {word}")) for word in range(5)]
        assert sent == [True, True, True, False, False]
        assert a.plane.statistics()["control_dropped_Hello"] == 2


async def test_what_a_peer_must_not_send_is_dropped_and_counted() -> None:
    async with nodes(2) as (a, b):
        opened(a, b)
        b.subscribe(a.host.node)
        holdings: list[control.Message] = [
            control.Holdings(DEPLOYMENT, 1, size, chunks.to_wire() + b"\x00\x00\x00\x00", 1)
            for size, chunks in ((999, ChunkSet(999)), (1000, ChunkSet(16)))
        ]
        with visit(b, a.host.secret) as identity:
            for frame in (b"\x07", b"\x01\xc1", b"\x01\x92\x63\x00", b"\x01\x92\x09\x00", b"\x01\x93\x02\x00\xa1x"):
                identity.socket.send(frame)
            for message in (*holdings, control.Ping()):
                identity.socket.send(encode(message))
            assert await identity.reply() == control.Pong()
        counted = b.plane.statistics()
        assert counted["control_undecodable_version"] == 1
        assert counted["control_undecodable_msgpack"] == 1
        assert counted["control_unknown_kind"] == 1
        assert counted["control_misplaced"] == 1
        assert counted["control_undecodable_fields"] == 1
        assert counted["control_bad_holdings"] == 2
        turned_away = {"undecodable_version", "undecodable_msgpack", "unknown_kind", "misplaced", "undecodable_fields"}
        turned_away |= {"bad_holdings"}
        assert {f"control_{reason}" for reason in turned_away} == {
            reason for reason, count in refused({}, counted, {}).items() if count
        }
        assert b.of(events.HoldingsHeard) == []


async def test_news_past_the_end_of_the_model_is_dropped() -> None:
    async with nodes(2) as (a, b):
        opened(a, b)
        await follow(a, b, ChunkSet(1000))
        b.send_delta(a, added=(1000,))
        await until(lambda: a.plane.statistics().get("control_bad_delta"))
        b.send_delta(a, added=(999,))
        await until(lambda: a.of(events.DeltaHeard))
        assert [e.added for e in a.of(events.DeltaHeard)] == [(999,)]
        assert refused({}, a.plane.statistics(), {})["control_bad_delta"] == 1


async def test_a_closed_deployment_is_spoken_of_no_more() -> None:
    async with nodes(2) as (a, b):
        opened(a, b)
        await follow(a, b, ChunkSet(1000))
        b.plane.hear(events.DeploymentClosed(DEPLOYMENT))
        b.send_delta(a, added=(1,))
        assert b.plane.statistics()["control_dropped_Delta"] == 1


async def test_a_member_that_is_gone_is_neither_followed_nor_told() -> None:
    async with nodes(2) as (a, b):
        opened(a, b)
        await follow(a, b, ChunkSet(1000))
        a.plane.hear(events.PeerLost(b.host.node))
        b.plane.hear(events.PeerLost(a.host.node))
        assert a.channel(b) is None
        b.send_holdings(a, ChunkSet(1000))
        await a.plane.request(b.host.node, control.Ping(), 120)
        assert len(a.of(events.HoldingsHeard)) == 1


async def test_a_plane_that_stops_leaves_its_port_free() -> None:
    async with trio.open_nursery() as nursery:
        first = await start(nursery, 1)
        first.scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        second = await start(nursery, 1, port=first.port, settings=QUICK)
        assert second.port == first.port
        nursery.cancel_scope.cancel()


async def test_no_wake_up_is_lost_when_sending_and_receiving_interleave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmq_trio, "SAFETY_POLL_S", 3600.0)  # nothing else wakes a task whose edge was eaten
    async with nodes(2) as (a, b):

        async def ask(asking: Node, asked: Node, number: int) -> None:
            for _ in range(60):
                assert await asking.plane.request(asked.host.node, control.Ping(), 120) == control.Pong()
                asking.plane.driver.put(asked.host.node, control.Hello(f"word {number}"))

        with trio.fail_after(120):
            async with trio.open_nursery() as nursery:
                for number in range(8):
                    nursery.start_soon(ask, a, b, number)
                    nursery.start_soon(ask, b, a, number)
