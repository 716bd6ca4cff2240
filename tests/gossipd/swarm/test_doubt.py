"""Of what a peer claims that has sent nothing for long, one chunk counts, until it sends one."""

from __future__ import annotations

from random import Random

import pytest

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import (
    CancelFetch,
    ChunkArriving,
    ChunkStored,
    Command,
    Event,
    FailReason,
    FetchFailed,
    HoldingsHeard,
    SendDelta,
    SourceProbed,
    StartFetch,
    StartSourceRead,
    StartSubscription,
    SubscribeHeard,
)
from gossipd.core.ids import SOURCE
from gossipd.swarm.doubt import FirstClaims, counted
from gossipd.swarm.peers import Peers
from membership.member import NodeId
from tests.gossipd.swarm.planning import CHUNK_BYTES, DEPLOYMENT, SETTINGS, Driven, node, of, opened, view

CHUNKS = 32
FULL = ChunkSet.full(CHUNKS)
_STALL_S, _STEP_S = 3.0, 0.25


def test_of_what_a_doubted_peer_claims_one_missing_chunk_counts() -> None:
    claimed = ChunkSet.of(CHUNKS, (1, 2, 3))
    found = counted(claimed, 0b11100, 0, Random(1))
    assert len(found) == 1
    assert found.bits & 0b01100
    assert counted(claimed, 0b11100, 0b00100, Random(1)).bits == 0b00100, "the one that counted goes on to count"
    assert not counted(claimed, 0b10000, 0, Random(1))


class Stalled:
    """A seed, or another host, among peers that claim every chunk and send none; one does from a time on."""

    def __init__(
        self, peers: int, *, reads: bool = True, honest: NodeId | None = None, delivers_s: float = 0.0,
        rack: str = "a", usual_s: float = 0.0, is_busy: bool = False,
    ) -> None:  # fmt: skip
        self.seed = Driven(reads=reads)
        self.seed.planner._peers.usual_s = usual_s  # from an earlier deployment
        self._reason, self._stall_s = (FailReason.BUSY, _STEP_S) if is_busy else (FailReason.SLOW, _STALL_S)
        self._honest, self._delivers_s = honest, delivers_s
        self._due: list[tuple[float, Event]] = []
        self.read: dict[int, float] = {}
        self.brought = 0
        self.seed.meet(*(view(number, rack if node(number) == honest else "a") for number in range(1, peers + 1)))
        self.seed.wait(6.0)
        self.seed.meet(view(0, term=int(reads), reads=reads))
        self.began_s = self.seed.now
        self._hear(self.seed.tell(opened(CHUNKS), SourceProbed(DEPLOYMENT, True)))

    def run(self, seconds: float) -> None:
        """Answer as such peers do."""
        for _ in range(round(seconds / _STEP_S)):
            now = self.seed.now + _STEP_S
            heard = [event for due_s, event in self._due if due_s <= now]
            self._due = [one for one in self._due if one[0] > now]
            self._hear(self.seed.tell(*heard, after=_STEP_S))

    def _hear(self, commands: list[Command]) -> None:
        now = self.seed.now
        for command in commands:
            if isinstance(command, StartSubscription):
                self._due.append((now + _STEP_S, HoldingsHeard(command.peer, DEPLOYMENT, FULL, 8)))
            elif isinstance(command, StartFetch) and self._sends(command.peer):
                self.brought += 1
                stored = ChunkStored(DEPLOYMENT, command.chunk, command.peer, CHUNK_BYTES, _STEP_S)
                self._due.append((now + _STEP_S, stored))
            elif isinstance(command, StartFetch | CancelFetch):
                is_end = isinstance(command, CancelFetch)
                reason = FailReason.CANCELLED if is_end else self._reason
                failed = FetchFailed(DEPLOYMENT, command.chunk, command.peer, reason)
                self._due.append((now + (_STEP_S if is_end else self._stall_s), failed))
            elif isinstance(command, StartSourceRead):
                for chunk in command.chunks:
                    self.read[chunk] = now - self.began_s
                    self._due.append((now + 2.0, ChunkStored(DEPLOYMENT, chunk, SOURCE, CHUNK_BYTES, 2.0)))

    def _sends(self, peer: NodeId) -> bool:
        return peer == self._honest and self.seed.now >= self.began_s + self._delivers_s


@pytest.mark.parametrize("peers", [1, 3, 6])
def test_peers_that_claim_all_in_turn_hold_up_no_read(peers: int) -> None:
    stalled = Stalled(peers)
    stalled.run(20.0)
    assert len(stalled.read) == CHUNKS


def test_more_peers_that_claim_all_hold_up_reads_no_longer() -> None:
    for peers in (1, 12, 40):
        stalled = Stalled(peers)
        stalled.run(16.0)
        assert min(stalled.read.values()) <= 2 * _STALL_S


@pytest.mark.parametrize("moves", [False, True])
def test_fetches_that_bring_nothing_leave_room_for_others(*, moves: bool) -> None:
    driven = Driven(reads=False)
    driven.meet(*(view(number) for number in range(1, 13)))
    driven.wait(6.0)
    driven.tell(opened(CHUNKS))
    asked = of(StartFetch, driven.tell(*(HoldingsHeard(node(number), DEPLOYMENT, FULL, 8) for number in range(1, 13))))
    assert 4 <= len(asked) < 12
    if moves:
        driven.tell(*(ChunkArriving(DEPLOYMENT, one.chunk, one.peer) for one in asked))
    more = of(StartFetch, driven.wait(_STALL_S - 0.5))
    assert {one.peer for one in asked + more} >= {node(number) for number in range(1, 13)} or moves
    assert not more or not moves


def test_a_doubted_peer_is_asked_last_though_it_is_idle() -> None:
    driven = Driven(reads=False)
    driven.meet(view(1), view(2))
    driven.wait(6.0)
    driven.tell(opened(CHUNKS, tuple(range(1, CHUNKS))))
    (first,) = of(StartFetch, driven.tell(HoldingsHeard(node(1), DEPLOYMENT, FULL, 8)))
    driven.planner.handle(FetchFailed(DEPLOYMENT, 0, node(1), FailReason.SLOW), driven.now)
    heard = [HoldingsHeard(node(1), DEPLOYMENT, FULL, 8), HoldingsHeard(node(2), DEPLOYMENT, FULL, 1)]
    (again,) = of(StartFetch, driven.tell(*heard))
    assert (first.peer, again.peer) == (node(1), node(2))
    assert driven.planner._peers.doubted == {node(1)}


def first_claims() -> tuple[FirstClaims, Peers]:
    """Of hosts 1 to 3, which a host knows; the last two had much at first."""
    claims, peers = FirstClaims(8), Peers(SETTINGS, Random(1))
    for number in (1, 2, 3):
        peers.seen(view(number))
        peers.get(node(number))
        claims.heard(node(number), min(number, 2), is_first=True)
    claims.heard(node(1), 8, is_first=False)
    return claims, peers


def test_of_peers_that_had_much_at_first_one_delivery_makes_the_others_count_again() -> None:
    claims, peers = first_claims()
    assert not claims.uncounted({node(1)}, peers.records, is_late=False), "it had not much at first"
    assert claims.uncounted({node(2)}, peers.records, is_late=False) == {node(2), node(3)}
    peers.delivered(node(3), 0.1, 9.0)
    assert not claims.uncounted({node(2)}, peers.records, is_late=False)


def test_where_nothing_comes_for_long_what_peers_had_at_first_counts_only_if_they_answer() -> None:
    claims, peers = first_claims()
    assert claims.uncounted(set(), peers.records, is_late=True) == {node(2), node(3)}
    assert claims.uncounted(set(), peers.records, is_late=False) == {node(2), node(3)}, "a chunk came from elsewhere"
    claims, peers = first_claims()
    peers.failed(node(2), FailReason.BUSY, 9.0)
    assert not claims.uncounted(set(), peers.records, is_late=True)


def test_a_reader_that_may_not_ask_yet_reads_what_is_only_claimed() -> None:
    reader = Driven()
    reader.meet(*(view(number, f"rack-{number}") for number in range(1, 60)))
    reader.wait(6.0)
    reader.meet(view(0, term=1))
    reader.tell(opened(CHUNKS), SourceProbed(DEPLOYMENT, True), HoldingsHeard(node(1), DEPLOYMENT, FULL, 8))
    assert not of(StartSourceRead, reader.wait(5.0))
    assert of(StartSourceRead, reader.wait(5.0))


def test_a_chunk_of_a_peer_that_has_lied_is_passed_on_only_when_it_is_verified() -> None:
    for sent in (FailReason.CORRUPT, None):
        driven = Driven()
        driven.meet(view(1), view(2))
        driven.wait(6.0)
        driven.tell(opened(CHUNKS), SubscribeHeard(node(2), DEPLOYMENT))
        first = of(StartFetch, driven.tell(HoldingsHeard(node(1), DEPLOYMENT, FULL, 8)))[0]
        if sent is not None:
            driven.tell(FetchFailed(DEPLOYMENT, first.chunk, node(1), sent))
        asked = [first]
        while sent is not None and asked == [first]:
            heard = driven.tell(HoldingsHeard(node(1), DEPLOYMENT, FULL, 8), after=0.5)
            asked = of(StartFetch, heard) or asked
        told = driven.tell(ChunkArriving(DEPLOYMENT, asked[0].chunk, node(1))) + driven.wait(0.5)
        assert any(asked[0].chunk in one.added for one in of(SendDelta, told)) is (sent is None)


def test_a_doubted_peer_that_sends_again_counts_in_full() -> None:
    stalled = Stalled(2, reads=False, honest=node(1), delivers_s=20.0)
    stalled.run(20.0)
    assert stalled.seed.planner._peers.doubted == {node(1), node(2)}
    stalled.run(20.0)
    assert stalled.seed.planner._peers.doubted == {node(2)}
    assert stalled.brought == CHUNKS


def test_chunks_that_doubted_rack_peers_claim_are_imported_beside_them() -> None:
    stalled = Stalled(5, reads=False, honest=node(5), rack="b")
    stalled.run(15.0)
    assert stalled.brought == CHUNKS


@pytest.mark.parametrize(("usual_s", "waits_s"), [(0.1, 6.0), (0.5, 12.0), (5.0, 30.0), (0.0, 30.0)])
def test_a_rack_peer_that_is_always_busy_is_waited_for_as_fetches_take(usual_s: float, waits_s: float) -> None:
    stalled = Stalled(3, reads=False, honest=node(3), rack="b", usual_s=usual_s, is_busy=True)
    stalled.run(waits_s - 1.0)
    assert stalled.brought == 0, "a rack peer that is busy may be honest"
    stalled.run(max(6.0, waits_s / 2))
    assert stalled.brought == CHUNKS
