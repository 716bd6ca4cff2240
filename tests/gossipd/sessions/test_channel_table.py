"""All connections: when each is dialed, given up and let go; by values."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random

from msgspec.structs import replace

from gossipd.core.targets import Targets
from gossipd.sessions.channel_table import LET_GO, ChannelTable, LinkCounts
from gossipd.sessions.events import AskPeer, Dial, HangUp, SessionCommand
from gossipd.sessions.failed_peers import PEERS_MAX, FailedPeers, LinkFailure
from gossipd.sessions.peer_channel import ChannelState, Endpoint
from gossipd.sessions.settings import SessionSettings
from membership.member import NodeId

A, B, STRANGER = NodeId(b"a" * 16), NodeId(b"b" * 16), NodeId(b"s" * 16)
SETTINGS = SessionSettings(link_idle_s=60, redial_min_s=1, redial_max_s=5, links_max=2)


class Directory:
    def __init__(self) -> None:
        self.endpoints = {A: Endpoint("a", 1, b"a" * 32), B: Endpoint("b", 1, b"b" * 32)}
        self.silent: set[NodeId] = set()

    def endpoint_of(self, node: NodeId) -> Endpoint | None:
        return self.endpoints.get(node)

    def has_answered(self, node: NodeId) -> bool:
        return node not in self.silent

    def is_target(self, node: NodeId, targets: Targets) -> bool:
        return True


class Driven:
    def __init__(self) -> None:
        self.directory = Directory()
        self.wanted = {A, B}
        self.table = ChannelTable(self.directory, settings=SETTINGS, rng=Random(1))
        self.commands = self.table.commands

    def sweep(self, now: float) -> list[SessionCommand]:
        self.table.sweep(self.wanted.__contains__, now)
        commands = self.commands[:]
        self.commands.clear()
        return commands

    def up(self, peer: NodeId, now: float) -> None:
        self.table.open(peer, now)
        self.sweep(now)
        assert self.table.up(peer, now)

    def move_a(self, now: float) -> None:
        self.table.move(A, now)

    def drop_a(self, now: float) -> None:
        self.table.drop(A)

    def dial(self, peer: NodeId) -> Dial:
        return Dial(peer, self.directory.endpoints[peer])


def test_an_open_channel_is_dialed_once() -> None:
    driven = Driven()
    assert driven.table.next_deadline() == math.inf
    assert driven.table.open(A, 5.0) is driven.table.open(A, 5.0)
    assert driven.table.next_deadline() == 5.0
    assert driven.sweep(5.0) == [driven.dial(A)]
    assert driven.sweep(5.1) == []
    assert driven.table.link_counters["dialed"] == 1


def test_links_are_counted_that_are_wanted_and_that_are_up() -> None:
    driven = Driven()
    assert driven.table.counts(standing=0) == LinkCounts(0, 0, 0)
    driven.up(A, 0.0)
    driven.table.open(B, 0.0)
    assert driven.table.counts(standing=2) == LinkCounts(2, 1, 2)
    driven.table.down(A, "lost", 1.0)
    assert driven.table.counts(standing=2) == LinkCounts(2, 0, 2)


def test_strangers_and_more_than_so_many_are_not_dialed() -> None:
    driven = Driven()
    assert driven.table.open(STRANGER, 0.0) is None
    driven.directory.endpoints[STRANGER] = Endpoint("s", 1, b"s" * 32)
    assert driven.table.open(A, 0.0)
    assert driven.table.open(B, 0.0)
    assert driven.table.open(STRANGER, 0.0) is None
    assert driven.table.link_counters["unknown_peer"] == 2


def test_a_dial_without_an_answer_is_given_up_and_repeated() -> None:
    driven = Driven()
    driven.table.open(A, 0.0)
    driven.sweep(0.0)
    assert driven.table.next_deadline() == 3.0
    assert driven.sweep(3.0) == [HangUp(A, "unreachable")]
    assert driven.table.take_ended() == [(A, "unreachable")]
    assert 3.5 <= driven.table.next_deadline() <= 4.0
    assert driven.sweep(4.0) == [driven.dial(A)]


def test_a_failed_channel_is_let_go_when_nothing_wants_it() -> None:
    driven = Driven()
    driven.up(A, 0.0)
    driven.table.down(A, "lost", 1.0)
    driven.wanted.clear()
    driven.table.review(A, 1.0)
    assert driven.sweep(1.0) == [HangUp(A, "lost")]
    assert driven.table.take_ended() == [(A, "lost")]
    assert driven.table.get(A) is None
    assert 1.5 <= driven.table.next_deadline() <= 2.5, "its pause"
    assert driven.sweep(2.5) == []
    assert driven.table.take_ended() == [(A, LET_GO)]


def fail_once(driven: Driven, now: float) -> None:
    """A is wanted, dialed, fails, and nothing wants it."""
    driven.wanted.add(A)
    driven.table.open(A, now)
    assert driven.dial(A) in driven.sweep(now)
    driven.table.down(A, "refused", now)
    driven.wanted.discard(A)
    driven.table.review(A, now)
    driven.sweep(now)
    assert driven.table.take_ended() == [(A, "refused")]


def fail(driven: Driven, now: float) -> float:
    """The same, until that is over; returns when it is."""
    fail_once(driven, now)
    while not (ended := driven.table.take_ended()):
        now = max(now, driven.table.next_deadline())
        driven.sweep(now)
    assert ended == [(A, LET_GO)]
    return now


def test_a_peer_that_fails_whenever_it_is_wanted_counts_as_failed_ever_longer() -> None:
    driven, now, pauses = Driven(), 10.0, []
    for _ in range(10):
        over_s = fail(driven, now)
        pauses.append(over_s - now)
        now = over_s + 0.5
    for pause_s, usual_s in zip(pauses, (1, 2, 4, 5, 10, 20, 40, 60, 60, 60), strict=True):
        assert 0.5 * usual_s <= pause_s <= 1.5 * usual_s
    driven.sweep(now + 200.0)
    assert fail(driven, now + 200.0) - now - 200.0 <= 1.5, "what was learnt long ago is forgotten"


def test_a_failed_peer_that_is_wanted_waits_as_long_as_any_other() -> None:
    driven, now = Driven(), 10.0
    for _ in range(8):
        now = fail(driven, now)
    driven.wanted.add(A)
    driven.table.open(A, now)
    driven.sweep(now)
    driven.table.down(A, "refused", now)
    dials = [at for at in range(40) if driven.dial(A) in driven.sweep(now + at)]
    assert dials[0] <= SETTINGS.redial_max_s + 1


def test_a_wanted_peer_is_dialed_though_its_failure_counted_long() -> None:
    """A dial that ends in silence ends in the sweep itself, so no look is left of it."""
    table, now = Driven(), 10.0
    for _ in range(8):
        now = wanted_in_vain(table, now)
    table.wanted = {A}
    table.table.open(A, now)
    dials, end_s = [], now + 200.0
    while now < end_s:
        dials += [now] * (table.dial(A) in table.sweep(now))
        now = table.table.next_deadline()
    gaps = [after - before for before, after in pairwise(dials)]
    assert max(gaps) <= 2 * SETTINGS.handshake_s + SETTINGS.redial_max_s + 0.01


def wanted_in_vain(table: Driven, now: float) -> float:
    """The peer is wanted, dialed, silent, and wanted no longer; returns when that is over."""
    table.wanted.add(A)
    table.table.open(A, now)
    table.sweep(now)
    now += 2 * SETTINGS.handshake_s
    table.sweep(now)
    table.wanted.discard(A)
    table.table.review(A, now)
    table.sweep(now)
    assert table.table.take_ended() == [(A, "unreachable")]
    while not (ended := table.table.take_ended()):
        now = max(now, table.table.next_deadline())
        table.sweep(now)
    assert ended == [(A, LET_GO)]
    return now


def test_what_is_new_has_failed_peers_tried_and_what_was_learnt_stays() -> None:
    driven, now = Driven(), 10.0
    for _ in range(6):
        now = fail(driven, now)
    fail_once(driven, now)
    driven.table.try_failed(now + 0.1)
    assert driven.table.take_ended() == [(A, LET_GO)], "it counts as reachable"
    fail_once(driven, now + 0.2)
    driven.table.try_failed(now + 0.3)
    assert not driven.table.take_ended(), "no more often than one that is wanted is dialed"
    driven.sweep(now + 15.0)
    assert not driven.table.take_ended(), "it counts as failed for longer than the time before"
    driven.table.try_failed(now + 15.0)
    assert driven.table.take_ended() == [(A, LET_GO)]


def test_a_failed_peer_that_moves_or_is_gone_begins_as_a_new_one() -> None:
    for forget in (Driven.move_a, Driven.drop_a):
        driven, now = Driven(), 10.0
        for _ in range(6):
            now = fail(driven, now)
        forget(driven, now)
        assert fail(driven, now) - now <= 1.5


def test_of_very_many_failed_peers_the_first_ones_are_tried_again() -> None:
    peers = FailedPeers()
    nodes = [NodeId(number.to_bytes(16)) for number in range(PEERS_MAX + 2)]
    gone = [peers.note(node, LinkFailure(1.0, 20.0, 5.0)) for node in nodes]
    assert gone == [None] * PEERS_MAX + nodes[:2]
    assert peers.reachable_again(19.0) == []
    assert peers.reachable_again(20.0) == nodes[2:]
    assert peers.reachable_again(24.9) == []
    assert peers.take(nodes[5]) == LinkFailure(1.0, 20.0, 5.0, is_over=True)
    assert peers.reachable_again(25.0) == []
    assert peers.take(nodes[6]) is None


def test_a_failed_channel_that_is_down_does_not_fail_again() -> None:
    driven = Driven()
    driven.up(A, 0.0)
    driven.table.down(A, "lost", 1.0)
    driven.table.down(A, "lost", 1.0)
    driven.table.down(STRANGER, "lost", 1.0)
    assert driven.table.take_ended() == [(A, "lost")]
    assert driven.table.link_counters["failed"] == 1


def test_an_idle_channel_that_nothing_wants_is_closed_in_time() -> None:
    driven = Driven()
    driven.up(A, 0.0)
    driven.wanted.clear()
    driven.table.open(A, 10.0)  # a message
    assert driven.sweep(60.0) == []
    assert driven.table.next_deadline() == 70.0
    assert driven.sweep(70.0) == [HangUp(A, "idle")]
    assert (driven.table.get(A), driven.table.take_ended()) == (None, []), "no evidence about the peer"


def test_a_wanted_channel_is_never_idle() -> None:
    driven = Driven()
    driven.up(A, 0.0)
    assert driven.sweep(1000.0) == []
    assert driven.table.next_deadline() == math.inf
    driven.wanted.clear()
    driven.table.review(A, 1000.0)
    assert driven.sweep(1000.0) == [HangUp(A, "idle")]


def test_hurry_shortens_a_pause_and_nothing_else() -> None:
    driven = Driven()
    driven.up(A, 0.0)
    driven.table.hurry(A)
    driven.table.hurry(B)
    channel = driven.table.get(A)
    assert channel is not None
    for _ in range(4):
        driven.table.down(A, "lost", 100.0)
        channel.state = ChannelState.DIALING
    driven.table.down(A, "lost", 100.0)
    driven.table.hurry(A)
    assert driven.table.next_deadline() <= 101.0


def test_a_peer_that_moved_is_dialed_where_it_is_now() -> None:
    driven = Driven()
    driven.up(A, 0.0)
    driven.table.move(A, 1.0)
    assert driven.sweep(1.0) == [], "its record changed, its address did not"
    driven.directory.endpoints[A] = Endpoint("elsewhere", 1, b"a" * 32)
    driven.table.move(A, 1.0)
    assert driven.commands == [HangUp(A, "moved")]
    driven.table.move(A, 1.0)
    assert driven.sweep(1.0) == [HangUp(A, "moved"), driven.dial(A)]


def test_a_connection_to_a_peers_earlier_life_is_dead_whatever_its_address() -> None:
    driven = Driven()
    driven.up(A, 0.0)
    driven.directory.endpoints[A] = replace(driven.directory.endpoints[A], boot=2)
    driven.table.move(A, 1.0)
    assert driven.commands == [HangUp(A, "moved")], "after a power cut nobody else says so"
    assert driven.table.take_ended() == [(A, "moved")]
    assert driven.dial(A) in driven.sweep(driven.table.next_deadline())


def test_a_peer_without_an_address_is_forgotten() -> None:
    driven = Driven()
    driven.up(A, 0.0)
    del driven.directory.endpoints[A]
    driven.table.move(A, 1.0)
    assert driven.table.take_ended() == [(A, "forgotten")]
    driven.table.open(B, 1.0)
    del driven.directory.endpoints[B]
    assert driven.sweep(1.0) == [HangUp(A, "forgotten"), HangUp(B, "forgotten")]
    assert driven.table.get(B) is None


def test_another_key_at_an_address_ends_the_channel_that_was_there() -> None:
    driven = Driven()
    driven.up(A, 0.0)
    driven.directory.endpoints[B] = Endpoint("a", 1, b"b" * 32)
    driven.table.open(B, 1.0)
    assert driven.sweep(1.0) == [HangUp(A, "moved"), driven.dial(B)]
    assert driven.table.take_ended() == [(A, "moved")]


def test_a_handshake_that_comes_too_late_counts_for_nothing() -> None:
    driven = Driven()
    driven.up(A, 0.0)
    assert driven.table.up(A, 1.0) is None
    assert driven.table.up(STRANGER, 1.0) is None
    driven.table.down(A, "lost", 2.0)
    assert driven.table.up(A, 2.0) is None


def test_a_peer_that_never_answered_is_asked_and_dialed_when_it_has() -> None:
    driven = Driven()
    driven.directory.silent.add(A)
    driven.table.open(A, 0.0)
    assert driven.sweep(0.0) == [AskPeer(A)]
    driven.table.move(A, 0.1)  # its record has changed, and it is as silent as before
    assert driven.sweep(0.1) == []
    assert driven.table.up(A, 0.1) is None
    driven.directory.silent.clear()
    driven.table.move(A, 0.2)
    driven.table.move(A, 0.2)
    assert driven.sweep(0.2) == [driven.dial(A)]
    assert driven.table.up(A, 0.3)


def test_a_peer_that_does_not_answer_is_unreachable_and_never_dialed() -> None:
    driven = Driven()
    driven.directory.silent.add(A)
    driven.table.open(A, 0.0)
    commands = [command for second in range(300) for command in driven.sweep(float(second))]
    assert {type(command) for command in commands} == {AskPeer, HangUp}
    assert (A, "unreachable") in driven.table.take_ended()
    assert driven.table.link_counters["dialed"] == 0


def test_a_peer_that_does_not_exist_has_half_a_second() -> None:
    driven = Driven()
    driven.directory.silent.add(A)
    driven.table.open(A, 0.0)
    driven.sweep(0.0)
    assert driven.table.next_deadline() == SETTINGS.ask_s
    driven.sweep(SETTINGS.ask_s)
    assert driven.table.take_ended() == [(A, "unreachable")]


def test_a_peer_that_answers_late_has_all_the_time_of_a_dial() -> None:
    driven = Driven()
    driven.directory.silent.add(A)
    driven.table.open(A, 0.0)
    driven.sweep(0.0)
    driven.directory.silent.clear()
    driven.table.move(A, 0.4)
    driven.sweep(0.4 + 1.9 * SETTINGS.handshake_s)
    assert driven.table.take_ended() == []
    assert driven.table.next_deadline() == 0.4 + 2 * SETTINGS.handshake_s


def test_a_silent_peer_that_names_anothers_address_does_not_end_its_connection() -> None:
    driven = Driven()
    driven.directory.endpoints[B] = driven.directory.endpoints[A]
    driven.directory.silent.add(B)
    driven.up(A, 0.0)
    driven.table.open(B, 1.0)
    assert driven.sweep(1.0) == [AskPeer(B)]
    channel = driven.table.get(A)
    assert channel is not None and channel.state is ChannelState.UP
