"""The brain of the control connections by values: subscriptions, deltas, repairs, evidence, and bounds."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gossipd.core import events
from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import (
    DeltaHeard,
    EndSubscription,
    HoldingsHeard,
    PeerLost,
    PeerReachable,
    SendDelta,
    SendHoldings,
    StartSubscription,
    SubscribeHeard,
    UnsubscribeHeard,
)
from gossipd.core.targets import Targets
from gossipd.sessions.events import (
    Dial,
    EndpointChanged,
    HangUp,
    KeepTokens,
    LinkDown,
    MessageHeard,
    RefuseSubscriber,
    RequestChanged,
    StandingLinksChosen,
)
from gossipd.sessions.exchange import ASKS_BURST, ASKS_PER_S, NEWS_BURST
from gossipd.sessions.peer_channel import Endpoint
from gossipd.sessions.send_queue import DeltaPayload, Outgoing
from gossipd.wire import control
from tests.gossipd.sessions.driving import CHUNKS, GREETING, MODEL, OTHER, SETTINGS, Host, Network, closed, node, opened

A, B, C = node(0), node(1), node(2)


def network(count: int = 2, *, is_open: bool = True, **changed: float) -> Network:
    found = Network(count, replace(SETTINGS, **changed))
    if is_open:
        for host in found.hosts.values():
            host.tell(opened())
    return found


def holdings(peer: Host, *chunks: int) -> SendHoldings:
    return SendHoldings(peer.node, MODEL, ChunkSet.of(CHUNKS, chunks), 4)


def delta(*peers: Host, added: tuple[int, ...] = (), free_slots: int = 1) -> SendDelta:
    return SendDelta(tuple(peer.node for peer in peers), MODEL, added, (), (), free_slots)


def listening(found: Network, listener: int = 0, told: int = 1) -> tuple[Host, Host]:
    """``listener`` is subscribed at ``told`` and has its Holdings."""
    a, b = found[listener], found[told]
    a.tell(StartSubscription(b.node, MODEL))
    found.run()
    b.tell(holdings(a, 1, 2))
    found.run()
    assert a.of(HoldingsHeard)[-1].peer == b.node
    return a, b


# ---- subscribing -----------------------------------------------------------------------------------


def test_a_subscription_dials_greets_asks_and_is_answered() -> None:
    found = network()
    a, b = listening(found)
    assert [message for to, message in a.sent if to == B] == [GREETING, control.Subscribe(MODEL)]
    assert b.of(SubscribeHeard) == [SubscribeHeard(A, MODEL)]
    assert a.of(HoldingsHeard) == [HoldingsHeard(B, MODEL, ChunkSet.of(CHUNKS, [1, 2]), 4)]
    assert a.of(PeerReachable) == [PeerReachable(B, True)]


def test_a_delta_reaches_all_subscribers_and_no_others() -> None:
    found = network(4)
    a, *others = (found[at] for at in range(4))
    for told in (1, 2):
        listening(found, told, 0)
    a.tell(SendDelta((B, C, node(3)), MODEL, (4, 9), (5,), (6,), 1))
    found.run()
    expected = DeltaHeard(A, MODEL, (4, 9), (5,), (6,), 1)
    assert [host.of(DeltaHeard) for host in others] == [[expected], [expected], []]
    assert a.sessions.counters["dropped_Delta"] == 1
    (first,), (second,) = (a.sent_to(peer, DeltaPayload) for peer in (B, C))
    assert first is second, "packed once for all"


def test_deltas_that_are_split_leave_no_gap() -> None:
    found = network()
    a, b = listening(found)
    b.tell(delta(a, added=tuple(range(CHUNKS))))
    found.run()
    assert [chunk for heard in a.of(DeltaHeard) for chunk in heard.added] == list(range(CHUNKS))
    assert a.sessions.statistics()["follow_gaps"] == 0


def test_a_peer_that_reads_slowly_is_told_in_one_delta() -> None:
    found = network()
    a, b = listening(found)
    b.is_slow = True
    for chunk in range(5):
        b.tell(delta(a, added=(chunk,), free_slots=chunk))
        found.run()
    assert a.of(DeltaHeard) == []
    b.is_slow = False
    found.run()
    assert a.of(DeltaHeard) == [DeltaHeard(B, MODEL, (0, 1, 2, 3, 4), (), (), 4)]


def test_an_unsubscribed_peer_is_told_no_more() -> None:
    found = network()
    a, b = listening(found)
    a.tell(EndSubscription(B, MODEL))
    found.run()
    assert b.of(UnsubscribeHeard) == [UnsubscribeHeard(A, MODEL)]
    b.tell(holdings(a, 1))
    found.run()
    assert len(a.of(HoldingsHeard)) == 1
    assert a.sent_to(B, control.Unsubscribe) == [control.Unsubscribe(MODEL)]
    a.tell(EndSubscription(B, MODEL))
    found.run()
    assert len(a.sent_to(B, control.Unsubscribe)) == 1


@pytest.mark.parametrize("is_open", [True, False])
def test_a_host_that_restarts_and_does_not_ask_is_told_no_more(*, is_open: bool) -> None:
    found = network()
    _, b = listening(found)
    a = found.restart(0)
    if is_open:
        a.tell(opened())
    found.run(SETTINGS.redial_max_s)
    assert b.of(SubscribeHeard)[1:] == [SubscribeHeard(A, MODEL)], "it may have missed something"
    b.tell(holdings(a, 1))
    found.run()
    assert a.of(HoldingsHeard) == []
    assert b.of(UnsubscribeHeard) == [UnsubscribeHeard(A, MODEL)]
    b.tell(holdings(a, 1), delta(a, added=(3,)))
    found.run()
    assert len(b.sent_to(A, control.Holdings)) == 2


def test_holdings_that_nobody_asked_for_are_declined_within_bounds() -> None:
    found = network()
    a = found[0]
    for number in range(int(ASKS_BURST) + 100):
        a.tell(MessageHeard(B, control.Holdings(OTHER, 1, CHUNKS, b"", 0), number))
    found.run()
    assert len(a.sent_to(B, control.Unsubscribe)) <= ASKS_BURST


def test_a_peer_that_is_no_target_is_told_no_holdings() -> None:
    some = network(3, is_open=False)
    meant = opened(targets=Targets(names=("host-0", "host-1")))
    some[0].tell(meant)
    for number in (1, 2):
        some[number].tell(opened(), StartSubscription(A, MODEL))
    some.run()
    assert some[0].of(SubscribeHeard) == [SubscribeHeard(B, MODEL)]
    assert RefuseSubscriber(C, MODEL) in some[0].commands
    assert some[0].sessions.counters["refused_not_a_target"] == 1


def test_a_peer_that_asks_without_end_is_answered_so_many_times() -> None:
    some = network(3)
    ask = control.Subscribe(MODEL)
    some[0].tell(*(MessageHeard(B, ask, number) for number in range(10_000)))
    assert len(some[0].of(SubscribeHeard)) == ASKS_BURST
    assert some[0].sessions.counters["refused_too_many_questions"] == 10_000 - ASKS_BURST
    some.now += 1.0
    some[0].tell(*(MessageHeard(B, ask, number) for number in range(100)), MessageHeard(C, ask, 1))
    assert len(some[0].of(SubscribeHeard)) == ASKS_BURST + ASKS_PER_S + 1, "others are not concerned"


@pytest.mark.parametrize("kind", ["holdings", "delta"])
def test_a_peer_that_tells_its_chunks_without_end_is_heard_so_often(kind: str) -> None:
    chunks, some = 100_000, network(3, is_open=False)
    some[0].tell(opened(chunks=chunks), StartSubscription(B, MODEL), StartSubscription(C, MODEL))
    some.run()
    whole = control.Holdings(MODEL, 1, chunks, ChunkSet(chunks).to_wire(), 0)
    some[0].tell(MessageHeard(B, whole, 0), MessageHeard(C, whole, 0))
    delta = control.Delta(1, (0, *[1] * 255), (), (), 0)
    told, kept = (whole, HoldingsHeard) if kind == "holdings" else (delta, DeltaHeard)
    amount = 128 + (chunks if kind == "holdings" else 3 * 256)
    many = int(NEWS_BURST / amount) + 50
    some[0].tell(*(MessageHeard(B, told, number) for number in range(1, many)))
    heard = len(some[0].of(kept))
    assert heard == pytest.approx((NEWS_BURST - chunks) / amount, abs=3), "the first holdings are in it"
    assert some[0].sessions.counters["refused_too_much_news"] >= 45
    some[0].tell(MessageHeard(C, told, 1))
    assert len(some[0].of(kept)) == heard + 1, "others are not concerned"
    some.now += SETTINGS.resubscribe_s
    some[0].tell(MessageHeard(B, delta, many))
    some.run()
    assert some[0].sent_to(B, control.Subscribe)[1:], "what was left out is asked for again"
    some[0].tell(MessageHeard(B, whole, many + 1))
    assert len(some[0].of(HoldingsHeard)) >= 3


def test_an_early_question_of_a_peer_that_is_no_target_is_refused_when_the_deployment_opens() -> None:
    some = network(is_open=False)
    some[1].tell(opened(), StartSubscription(A, MODEL))
    some.run()
    some[0].tell(opened(targets=Targets(names=("host-0",))))
    some.run()
    assert (some[0].of(SubscribeHeard), RefuseSubscriber(B, MODEL) in some[0].commands) == ([], True)


def test_a_peer_that_is_no_target_any_more_is_told_nothing_further() -> None:
    some = network(is_open=False)
    some[0].tell(opened(targets=Targets(names=("host-*",))))
    some[1].tell(opened(), StartSubscription(A, MODEL))
    some.run()
    assert some[0].of(SubscribeHeard)
    some.names[B] = "renamed"
    some[0].tell(EndpointChanged(B))
    assert some[0].of(UnsubscribeHeard) == [UnsubscribeHeard(B, MODEL)]
    some[0].tell(closed())


def test_an_early_question_is_heard_when_the_deployment_opens() -> None:
    found = network(is_open=False)
    a, b = found[0], found[1]
    a.tell(opened(), StartSubscription(B, MODEL))
    found.run()
    assert b.of(SubscribeHeard) == []
    b.tell(opened())
    assert b.of(SubscribeHeard) == [SubscribeHeard(A, MODEL)]
    b.tell(holdings(a, 3))
    found.run()
    assert [heard.chunks for heard in a.of(HoldingsHeard)] == [ChunkSet.of(CHUNKS, [3])]


def test_an_early_question_that_was_taken_back_is_not_heard() -> None:
    found = network(is_open=False)
    a, b = found[0], found[1]
    a.tell(StartSubscription(B, MODEL))
    found.run()
    a.tell(EndSubscription(B, MODEL))
    found.run()
    b.tell(opened())
    assert (b.of(SubscribeHeard), b.of(UnsubscribeHeard)) == ([], [])


# ---- the retry clock -------------------------------------------------------------------------------


def test_a_question_without_an_answer_is_repeated() -> None:
    found = network()
    found[0].tell(StartSubscription(B, MODEL))
    found.run(11.0)
    assert len(found[1].of(SubscribeHeard)) == 3
    assert found[0].sessions.statistics()["follow_repeated"] == 2


def test_a_question_that_was_answered_is_not_repeated() -> None:
    found = network()
    a, b = listening(found)
    found.run(1000.0)
    assert len(b.of(SubscribeHeard)) == 1
    a.tell(StartSubscription(B, MODEL))
    found.run()
    assert len(b.of(SubscribeHeard)) == 2, "the planner may ask again when it likes"


def test_a_gap_is_mended_by_new_holdings() -> None:
    found = network()
    a, b = listening(found)
    found.run(6.0)
    found.is_lossy = True
    b.tell(delta(a, added=(5,)))
    found.run()
    found.is_lossy = False
    b.tell(delta(a, added=(6,)))
    found.run()
    assert [heard.added for heard in a.of(DeltaHeard)] == [(6,)], "a fact of its own"
    assert len(b.of(SubscribeHeard)) == 2
    b.tell(holdings(a, 5, 6))
    found.run(100.0)
    assert len(b.of(SubscribeHeard)) == 2


def test_a_gap_right_after_a_question_waits_for_the_clock() -> None:
    found = network()
    a, b = listening(found)
    found.is_lossy = True
    b.tell(delta(a, added=(5,)))
    found.run()
    found.is_lossy = False
    b.tell(delta(a, added=(6,)))
    found.run(4.9)
    assert len(b.of(SubscribeHeard)) == 1
    found.run(0.1)
    assert len(b.of(SubscribeHeard)) == 2


# ---- broken connections ----------------------------------------------------------------------------


def test_a_subscriber_whose_link_failed_asks_again_when_it_is_up() -> None:
    found = network()
    a, b = listening(found)
    a.tell(LinkDown(B, "lost"))
    assert a.of(PeerReachable)[-1] == PeerReachable(B, False)
    found.run(1.0)
    assert a.of(PeerReachable)[-1] == PeerReachable(B, True)
    assert len(b.of(SubscribeHeard)) == 2


def test_a_subscriber_that_missed_something_is_told_everything_again() -> None:
    found = network()
    a, b = listening(found)
    b.tell(LinkDown(A, "lost"), delta(a, added=(5,)))
    assert b.sessions.counters["dropped_Delta"] == 1
    found.run(1.0)
    assert b.of(SubscribeHeard) == [SubscribeHeard(A, MODEL)] * 2
    b.tell(holdings(a, 1, 2, 5))
    found.run()
    assert a.of(HoldingsHeard)[-1].chunks == ChunkSet.of(CHUNKS, [1, 2, 5])
    assert a.sessions.statistics()["follow_gaps"] == 0


def test_a_restarted_peer_is_subscribed_to_again() -> None:
    found = network()
    a, _ = listening(found)
    b = found.restart(1)
    b.tell(opened())
    found.run(1.0)
    assert b.of(SubscribeHeard) == [SubscribeHeard(A, MODEL)]
    b.tell(holdings(a, 7), delta(a, added=(8,)))
    found.run()
    assert a.of(HoldingsHeard)[-1].chunks == ChunkSet.of(CHUNKS, [7])
    assert a.of(DeltaHeard)[-1].added == (8,)


def test_evidence_is_reported_when_it_changes_and_not_else() -> None:
    found = network()
    a, _ = listening(found)
    found.dead.add(B)
    a.tell(LinkDown(B, "lost"))
    found.run(20.0)
    assert a.of(PeerReachable) == [PeerReachable(B, True), PeerReachable(B, False)]
    assert a.sessions.counters["down_unreachable"] > 1


def test_evidence_that_nothing_will_renew_is_taken_back() -> None:
    found = network()
    a, _ = listening(found)
    a.tell(EndSubscription(B, MODEL))
    found.dead.add(B)
    a.tell(LinkDown(B, "lost"))
    found.run(10.0)
    assert [heard.reachable for heard in a.of(PeerReachable)] == [True, False, True]
    assert a.sessions._channels.get(B) is None


def test_a_deployment_that_opens_has_peers_tried_that_had_failed_for_long() -> None:
    """One that was cut off may be the only host that has the model."""
    found = network()
    a, _ = listening(found)
    found.dead.add(B)
    a.tell(LinkDown(B, "lost"))
    for _ in range(8):
        found.run(40.0)
        a.tell(EndSubscription(B, MODEL))
        found.run(5.0)
        a.tell(StartSubscription(B, MODEL))
    found.run(20.0)
    a.tell(EndSubscription(B, MODEL))
    found.run(5.0)
    assert a.of(PeerReachable)[-1] == PeerReachable(B, False)
    a.tell(opened(OTHER))
    assert a.of(PeerReachable)[-1] == PeerReachable(B, True)


def test_a_failed_link_is_dialed_with_growing_pauses_only_while_it_is_wanted() -> None:
    found = network()
    a, _ = listening(found)
    found.dead.add(B)
    a.tell(LinkDown(B, "lost"))
    found.run(100.0)
    dials = sum(isinstance(command, Dial) for command in a.commands)
    assert 100 / 4 < dials < 100 / 2 + 5
    a.tell(EndSubscription(B, MODEL))
    found.run(100.0)
    assert sum(isinstance(command, Dial) for command in a.commands) == dials


def test_a_peer_that_moved_is_no_evidence() -> None:
    found = network()
    a, _ = listening(found)
    found.endpoints[B] = Endpoint("elsewhere", 1, b"k" * 32)
    a.tell(EndpointChanged(B))
    found.run(1.0)
    assert a.of(PeerReachable) == [PeerReachable(B, True)]
    assert a.sessions.counters["down_moved"] == 1
    assert a.commands.count(Dial(B, found.endpoints[B])) == 1


# ---- deployments and members -----------------------------------------------------------------------


def test_a_closed_deployment_is_spoken_of_no_more() -> None:
    found = network()
    a, b = listening(found)
    b.tell(delta(a, added=(1,)), closed(), delta(a, added=(2,)))
    found.run()
    assert a.of(DeltaHeard) == []
    assert b.sessions.counters["dropped_Delta"] == 1
    a.tell(StartSubscription(B, MODEL))
    found.run()
    assert len(b.of(SubscribeHeard)) == 1, "from now on it asks too early"


def test_a_deployment_that_opens_again_is_told_of_to_its_listeners() -> None:
    found = network()
    a, b = listening(found)
    b.tell(closed(), opened())
    assert b.of(SubscribeHeard) == [SubscribeHeard(A, MODEL)] * 2, "the listener knows of no gap"
    b.tell(holdings(a, 7))
    found.run(1.0)
    assert a.of(HoldingsHeard)[-1].chunks == ChunkSet.of(CHUNKS, (7,))


def test_a_listener_that_left_while_a_deployment_was_closed_is_told_nothing() -> None:
    found = network()
    a, b = listening(found)
    b.tell(closed())
    a.tell(EndSubscription(B, MODEL))
    found.run(1.0)
    b.tell(opened())
    assert b.of(SubscribeHeard) == [SubscribeHeard(A, MODEL)]


def test_a_closed_deployment_is_listened_to_no_more() -> None:
    found = network()
    a, b = listening(found)
    a.tell(closed())
    found.run(100.0)
    assert b.of(UnsubscribeHeard) == [UnsubscribeHeard(A, MODEL)]
    assert len(b.of(SubscribeHeard)) == 1
    assert a.sessions._channels.get(B) is None, "nothing wants the connection"


def test_nothing_is_kept_of_a_peer_that_is_lost() -> None:
    found = network()
    a, b = listening(found)
    for host, peer in ((a, B), (b, A)):
        host.tell(PeerLost(peer))
        assert host.sessions._channels.get(peer) is None
        assert HangUp(peer, "forgotten") in host.commands
    assert a.of(PeerReachable) == [PeerReachable(B, True)], "the verdict says it already"
    b.tell(holdings(a, 1))
    found.run(100.0)
    assert len(a.of(HoldingsHeard)) == 1
    assert len(b.of(SubscribeHeard)) == 1


def test_a_listener_that_was_lost_is_told_everything_when_back() -> None:
    found = network()
    a, b = listening(found)
    b.tell(PeerLost(A))
    b.tell(delta(a, added=(5,)))
    found.run(1.0)
    assert a.of(DeltaHeard) == [], "the listener knows of no gap"
    b.tell(EndpointChanged(A))
    assert b.of(SubscribeHeard) == [SubscribeHeard(A, MODEL)] * 2
    b.tell(holdings(a, 1, 2, 5))
    found.run(1.0)
    assert a.of(HoldingsHeard)[-1].chunks == ChunkSet.of(CHUNKS, (1, 2, 5))
    b.tell(EndpointChanged(A))
    assert len(b.of(SubscribeHeard)) == 2, "once"


def test_a_lost_listener_that_restarted_meanwhile_declines_what_it_is_told() -> None:
    found = network()
    a, b = listening(found)
    b.tell(PeerLost(A))
    a.tell(EndSubscription(B, MODEL))
    a.sessions._exchange.subscriptions.end_peer(B)
    found.run(1.0)
    b.tell(EndpointChanged(A))
    b.tell(holdings(a, 1))
    found.run(1.0)
    assert not b.sessions._exchange.subscribers.has(A, MODEL)


def test_standing_links_are_dialed_a_few_at_a_time_and_stay() -> None:
    found = network(4)
    a = found[0]
    peers = frozenset({B, C, node(3)})
    for expected in (2, 3):
        a.tell(StandingLinksChosen(peers, 2))
        found.run()
        assert sum(a.sessions._channels.get(peer) is not None for peer in peers) == expected
    found.run(1000.0)
    a.tell(StandingLinksChosen(frozenset({B}), 2))
    found.run(59.9)
    assert a.sessions._channels.get(C), "it may be wanted again in a moment"
    found.run(0.2)
    assert [a.sessions._channels.get(peer) is not None for peer in (B, C)] == [True, False]


def test_a_standing_link_that_broke_is_dialed_at_once_when_a_deployment_opens() -> None:
    found = network()
    a = found[0]
    a.tell(StandingLinksChosen(frozenset({B}), 1))
    found.dead.add(B)
    found.run(60.0)
    channel = a.sessions._channels.get(B)
    assert channel is not None
    channel.dial_at_s = found.now + 1e6  # so long a pause that only this test could sit it out
    found.dead.clear()
    found.run()
    a.tell(opened(OTHER))
    found.run(1.0)
    assert a.of(PeerReachable)[-1] == PeerReachable(B, True)


# ---- requests --------------------------------------------------------------------------------------


def test_a_request_keeps_its_link_while_it_is_open() -> None:
    found = network(link_idle_s=10.0)
    a = found[0]
    a.tell(RequestChanged(B, is_open=True))
    assert a.sessions.put(B, control.Ping(), found.now, number=7)
    found.run(60.0)
    assert a.sessions._channels.get(B) is not None
    a.tell(RequestChanged(B, is_open=False))
    found.run(1.0)
    assert a.sessions._channels.get(B) is None


def test_a_request_does_not_sit_out_a_long_pause() -> None:
    found = network()
    a, _ = listening(found)
    channel = a.sessions._channels.get(B)
    assert channel is not None
    channel._pause_s = 4.0
    a.tell(LinkDown(B, "lost"))
    channel.dial_at_s = found.now + 1e6
    a.tell(RequestChanged(B, is_open=True))
    found.run(1.0)
    assert a.of(PeerReachable)[-1] == PeerReachable(B, True)


def test_a_message_to_a_stranger_is_refused() -> None:
    found = network()
    assert not found[0].sessions.put(C, control.Ping(), found.now)
    assert found[0].sessions.counters["dropped_Ping"] == 1


def test_a_full_queue_refuses_and_counts() -> None:
    found = network(link_queue_messages_max=3)
    put = found[0].sessions.put
    assert [put(B, control.Ping(), found.now) for _ in range(5)] == [True, True, True, False, False]
    assert found[0].sessions.counters["dropped_Ping"] == 2


def test_a_message_that_was_put_back_is_sent_first() -> None:
    found = network()
    a, _ = listening(found)
    assert a.sessions.put(B, control.Ping(), found.now, number=1)
    assert a.sessions.put(B, control.TokenWanted(), found.now, number=2)
    first = Outgoing(control.Ping(), 1)
    assert a.sessions.take(B) == first
    a.sessions.put_back(B, first)
    assert [a.sessions.take(B), a.sessions.take(B)] == [first, (control.TokenWanted(), 2)]
    assert a.sessions.take(B) is None


# ---- what a peer must not send ---------------------------------------------------------------------


def test_holdings_that_do_not_fit_are_dropped_and_counted() -> None:
    found = network()
    a = found[0]
    a.tell(StartSubscription(B, MODEL))
    for message in (
        control.Holdings(MODEL, 1, CHUNKS - 1, ChunkSet(CHUNKS - 1).to_wire(), 1),
        control.Holdings(MODEL, 1, CHUNKS, b"\0" * 9, 1),
        control.Holdings(OTHER, 1, CHUNKS, ChunkSet(CHUNKS).to_wire(), 1),
    ):
        a.tell(MessageHeard(B, message, 0))
    assert (a.of(HoldingsHeard), a.sessions.counters["bad_holdings"]) == ([], 3)


def test_a_delta_past_the_end_of_the_model_is_dropped() -> None:
    found = network()
    a, b = listening(found)
    stream = b.sent_to(A, control.Holdings)[0].stream
    for number, gaps in enumerate(((CHUNKS,), (CHUNKS - 1,)), start=1):
        a.tell(MessageHeard(B, control.Delta(stream, gaps, (), (), 1), number))
    assert [heard.added for heard in a.of(DeltaHeard)] == [(CHUNKS - 1,)]
    assert a.sessions.counters["bad_delta"] == 1


@pytest.mark.parametrize("message", [control.Pong(), control.Ping(), control.Token(b"t" * 32, 10)])
def test_what_is_neither_word_nor_question_is_counted(message: control.Message) -> None:
    found = network()
    found[0].tell(MessageHeard(B, message, 0))
    assert found[0].sessions.counters["misplaced"] == 1


def test_tokens_are_kept_only_with_holdings_that_were_asked_for() -> None:
    found = network()
    a = found[0]
    message = control.Holdings(MODEL, 1, CHUNKS, ChunkSet(CHUNKS).to_wire(), 4, tokens=(b"t" * 32,), valid_s=10)
    a.tell(MessageHeard(B, message, 0))
    assert a.commands == []
    a.tell(StartSubscription(B, MODEL), MessageHeard(B, message, 0))
    assert KeepTokens(B, (b"t" * 32,), 10) in a.commands


def test_holdings_that_find_no_room_are_counted_and_the_planner_may_answer_again() -> None:
    found = network(link_queue_messages_max=1)
    a, b = found[0], found[1]
    b.tell(MessageHeard(A, control.Subscribe(MODEL), 0))
    assert b.sessions.put(A, control.Ping(), found.now)
    b.tell(holdings(a, 1), delta(a, added=(2,)))
    assert b.sessions.counters["dropped_Holdings"] == b.sessions.counters["dropped_Delta"] == 1


def test_every_deployment_has_a_stream_of_its_own() -> None:
    found = network()
    a, b = listening(found)
    for host in (a, b):
        host.tell(opened(OTHER))
    a.tell(StartSubscription(B, OTHER))
    found.run()
    b.tell(events.SendHoldings(A, OTHER, ChunkSet(CHUNKS), 1))
    b.tell(delta(a, added=(5,)), SendDelta((A,), OTHER, (6,), (), (), 1))
    found.run()
    assert [(heard.deployment, heard.added) for heard in a.of(DeltaHeard)] == [(MODEL, (5,)), (OTHER, (6,))]


def test_who_never_answered_stays_unreachable_until_it_does() -> None:
    found = network()
    found.unheard.add(B)
    a = found[0]
    for _ in range(2):  # roles come and go
        a.tell(StartSubscription(B, MODEL))
        found.run(2.0)
        a.tell(EndSubscription(B, MODEL))
        found.run(20.0)
    assert a.of(PeerReachable) == [PeerReachable(B, False)]
    found.unheard.clear()
    a.tell(EndpointChanged(B))
    assert a.of(PeerReachable) == [PeerReachable(B, False), PeerReachable(B, True)]
