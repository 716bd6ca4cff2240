"""The brain as a daemon drives it: events in, commands out."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from msgspec.structs import replace

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import (
    CancelFetch,
    ChunkArriving,
    ChunkEnding,
    ChunkLost,
    ChunkStored,
    ClaimSeed,
    Command,
    DeltaHeard,
    DeploymentClosed,
    DeploymentOpened,
    DeploymentPaused,
    EndSubscription,
    FailReason,
    FetchFailed,
    FinishModel,
    HoldingsHeard,
    IsolationChanged,
    LimitUploads,
    MembersSeen,
    PeerLost,
    PeerReachable,
    PeerSeen,
    PeerWantHeard,
    ProbeSource,
    ReportStall,
    SendDelta,
    SendHoldings,
    SourceProbed,
    SourceReadFailed,
    SourceReadMoves,
    StallReason,
    StartFetch,
    StartSourceRead,
    StartSubscription,
    SubscribeHeard,
)
from gossipd.core.ids import COPIED, LOCAL, SOURCE, DeploymentId
from gossipd.core.model import Shape
from gossipd.core.sketch import KnownHoldings
from gossipd.swarm.announcements import FEW_WAITS
from gossipd.swarm.deployment_swarm import DeploymentSwarm
from gossipd.swarm.maintenance import refresh_roles
from gossipd.swarm.rendezvous import bucket_of
from gossipd.swarm.settings import PlannerSettings
from gossipd.swarm.surroundings import Surroundings
from membership.member import NodeId
from tests.gossipd.swarm.planning import (
    CHUNK_BYTES,
    DEPLOYMENT,
    OWN,
    SETTINGS,
    Driven,
    node,
    of,
    opened,
    seed_alone,
    shape,
    view,
)

A, B = node(1), node(2)
OTHER = DeploymentId(b"o" * 32)
LAZY_S = FEW_WAITS * SETTINGS.news_lazy_s + 0.5  # by then all that is to be told has been told


def holdings(number: int, *chunks: int, size: int = 8, free: int = 4) -> HoldingsHeard:
    return HoldingsHeard(node(number), DEPLOYMENT, ChunkSet.of(size, chunks), free)


def delta(number: int, *added: int, free: int = 4, reading: tuple[int, ...] = ()) -> DeltaHeard:
    return DeltaHeard(node(number), DEPLOYMENT, added, (), reading, free)


def stored(chunk: int, supplier: object) -> ChunkStored:
    return ChunkStored(DEPLOYMENT, chunk, supplier, CHUNK_BYTES, 0.1)  # type: ignore[arg-type]


def reading(driven: Driven, deployment: DeploymentId = DEPLOYMENT) -> list[int]:
    """What is on its way from storage."""
    replica = driven.swarm(deployment).replica
    return [chunk for chunk in replica.flights if replica.reads_now(chunk)]


def among_rack_peers(chunks: int = 8, held: tuple[int, ...] = ()) -> Driven:
    """A host that is no seed, with two rack mates, of which 1 is the seed."""
    driven = Driven()
    driven.meet(view(1, term=1), view(2))
    driven.tell(opened(chunks, held), after=4.0)
    return driven


def test_a_host_asks_its_neighbours_for_news_and_answers_those_who_ask() -> None:
    driven = Driven()
    driven.meet(view(1, term=1), view(2))
    commands = driven.tell(opened(8, (3,)))
    assert {command.peer for command in of(StartSubscription, commands)} == {A, B}
    (answer,) = of(SendHoldings, driven.tell(SubscribeHeard(A, DEPLOYMENT)))
    assert (answer.peer, list(answer.chunks)) == (A, [3])


def test_the_next_chunk_is_asked_for_where_one_is_about_to_end_though_no_slot_is_free() -> None:
    driven = among_rack_peers(chunks=40)
    heard = (holdings(1, *range(40), size=40, free=24), holdings(2, *range(40), size=40, free=24))
    fetches = of(StartFetch, driven.tell(*heard))
    window = len(fetches)
    assert all(fetch.behind is None for fetch in fetches)
    assert not of(StartFetch, driven.tell()), "as many as may be"
    driven.tell(delta(1, free=0), delta(2, free=0))
    first = next(fetch.chunk for fetch in fetches if fetch.peer == A)
    ending = ChunkEnding(DEPLOYMENT, first, A)
    (following,) = of(StartFetch, driven.tell(ending))
    assert (following.peer, following.behind) == (A, first)
    assert not of(StartFetch, driven.tell(ending)), "one follows, however often it is told"
    assert not of(StartFetch, driven.tell(stored(first, A))), "its place has been taken"
    assert window == driven.planner.statistics().swarms[DEPLOYMENT].fetches


def test_an_end_that_was_foretold_counts_from_its_time_on() -> None:
    driven = among_rack_peers(chunks=40)
    heard = (holdings(1, *range(40), size=40, free=24), holdings(2, *range(40), size=40, free=24))
    fetches = of(StartFetch, driven.tell(*heard))
    driven.tell(delta(1, free=0), delta(2, free=0))
    first = next(fetch.chunk for fetch in fetches if fetch.peer == A)
    ending_at_s = driven.now + 0.04
    assert not of(StartFetch, driven.tell(ChunkArriving(DEPLOYMENT, first, A, ending_at_s)))
    assert driven.planner.next_deadline(driven.now) == ending_at_s
    assert not of(StartFetch, driven.tell(after=0.03))
    (following,) = of(StartFetch, driven.tell(after=0.01))
    assert (following.peer, following.behind) == (A, first)


def test_nothing_is_asked_for_behind_a_fetch_that_has_ended() -> None:
    driven = among_rack_peers(chunks=40)
    (fetch,) = of(StartFetch, driven.tell(holdings(1, 5, size=40)))
    driven.tell(ChunkEnding(DEPLOYMENT, 5, A))
    driven.tell(stored(5, A))
    (later,) = of(StartFetch, driven.tell(delta(1, 6)))
    assert (fetch.behind, later.behind) == (None, None)
    driven.tell(ChunkEnding(DEPLOYMENT, 6, A))
    driven.tell(FetchFailed(DEPLOYMENT, 6, A, FailReason.NOT_HELD))
    (last,) = of(StartFetch, driven.tell(delta(1, 7)))
    assert last.behind is None


def test_a_reader_begins_the_next_read_when_one_is_about_to_end() -> None:
    driven = seed_alone(400)
    driven.tell()
    assert not of(StartSourceRead, driven.tell())
    chunk, *others = driven.swarm().replica.flights
    (following,) = of(StartSourceRead, driven.tell(ChunkEnding(DEPLOYMENT, chunk, SOURCE)))
    assert not of(StartSourceRead, driven.tell(stored(chunk, SOURCE))), "the next is under way"
    assert not {chunk, *others} & set(following.chunks)


def test_a_host_says_what_a_chunk_takes_while_some_come_and_only_when_it_knows() -> None:
    driven = among_rack_peers(chunks=400)
    driven.tell(holdings(1, *range(400), size=400, free=24))
    assert driven.planner.chunk_time_s() == 0.0
    for _ in range(40):
        flying = list(driven.swarm().replica.flights)
        driven.tell(stored(flying[0], A), after=0.05)
    assert driven.planner.chunk_time_s() == driven.swarm().times.chunk_time_s > 0.0
    driven.tell(DeploymentClosed(DEPLOYMENT))
    assert driven.planner.chunk_time_s() == 0.0


def test_a_question_about_a_deployment_that_is_not_open_is_passed_over() -> None:
    driven = Driven()
    driven.meet(view(1, term=1))
    assert not driven.tell(SubscribeHeard(A, DEPLOYMENT))
    assert not of(SendHoldings, driven.tell(opened(8)))
    assert [answer.peer for answer in of(SendHoldings, driven.tell(SubscribeHeard(A, DEPLOYMENT)))] == [A]


def test_what_a_mate_holds_is_fetched_and_told_on() -> None:
    driven = among_rack_peers()
    driven.tell(SubscribeHeard(B, DEPLOYMENT))
    (fetch,) = of(StartFetch, driven.tell(holdings(1, 5)))
    assert (fetch.chunk, fetch.peer) == (5, A)
    (told,) = of(SendDelta, driven.tell(stored(5, A), after=0.1))
    assert (told.peers, told.added) == ((B,), (5,))


def test_an_import_is_told_soon_to_other_racks_but_not_to_the_one_it_came_from() -> None:
    driven = Driven(reads=False)
    driven.meet(view(1, "b"), view(2, "b"), view(3, "c"))
    driven.tell(opened(64))
    driven.tell(*[SubscribeHeard(node(number), DEPLOYMENT) for number in (1, 2, 3)])
    driven.tell(stored(63, LOCAL), after=LAZY_S)
    roles = driven.swarm().roles
    chunk = next(chunk for chunk in range(63) if roles.first_in_line("b", bucket_of(chunk)) == B)
    (fetch,) = of(StartFetch, driven.tell(holdings(1, chunk, size=64)))
    (told,) = of(SendDelta, driven.tell(stored(chunk, fetch.peer), after=0.1))
    assert (fetch.peer, told.peers, told.added) == (A, (node(3),), (chunk,))
    late = of(SendDelta, driven.wait(2 * LAZY_S))
    assert B in {peer for message in late for peer in message.peers}, "it hears of it in the end"


def test_a_chunk_is_told_while_it_comes_and_not_a_second_time_when_it_is_here() -> None:
    driven = among_rack_peers()
    driven.tell(SubscribeHeard(B, DEPLOYMENT), holdings(1, 5))
    (told,) = of(SendDelta, driven.tell(ChunkArriving(DEPLOYMENT, 5, A), after=0.1))
    assert (told.peers, told.added) == ((B,), (5,))
    after = driven.tell(stored(5, A), after=0.1) + driven.wait(LAZY_S)
    assert [message for message in of(SendDelta, after) if message.added] == []


def test_a_chunk_that_comes_again_after_its_relays_were_refused_is_told_again() -> None:
    driven = among_rack_peers()
    driven.tell(SubscribeHeard(B, DEPLOYMENT), holdings(1, 5))
    driven.tell(ChunkArriving(DEPLOYMENT, 5, A), after=0.1)
    for event in (ChunkArriving(DEPLOYMENT, 5, A), stored(5, A)):  # who asks in between may have been refused too
        after = driven.tell(event, after=0.1) + driven.wait(LAZY_S)
        assert [message.added for message in of(SendDelta, after) if message.added] == [(5,)]


def test_who_asks_for_news_while_a_chunk_comes_is_told_of_it_as_if_it_were_here() -> None:
    driven = among_rack_peers(held=(3,))
    driven.tell(holdings(1, 3, 5))
    driven.tell(ChunkArriving(DEPLOYMENT, 5, A))
    (answer,) = of(SendHoldings, driven.tell(SubscribeHeard(B, DEPLOYMENT)))
    assert list(answer.chunks) == [3, 5]


def test_a_chunk_that_was_told_and_did_not_come_is_taken_back_and_told_again_when_it_comes_from_elsewhere() -> None:
    driven = among_rack_peers()
    driven.tell(SubscribeHeard(B, DEPLOYMENT), holdings(1, 5))
    driven.tell(ChunkArriving(DEPLOYMENT, 5, A), after=0.1)
    after = driven.tell(FetchFailed(DEPLOYMENT, 5, A, FailReason.NOT_HELD), after=0.1) + driven.wait(0.1)
    assert [message.dropped for message in of(SendDelta, after)] == [(5,)]
    driven.tell(holdings(2, 5))
    after = driven.tell(stored(5, B), after=0.1) + driven.wait(LAZY_S)
    assert [message.added for message in of(SendDelta, after) if message.added] == [(5,)]


def with_its_last_chunk_coming_from_a_and_asked_of_b_too() -> Driven:
    """Chunk 7 of 8, told to B while it comes."""
    driven = among_rack_peers(8, (0, 1, 2, 3))
    driven.tell(SubscribeHeard(B, DEPLOYMENT), holdings(1, 4, 5, 6, 7), holdings(2))
    for chunk in (4, 5, 6):
        driven.tell(stored(chunk, A), after=0.1)
    driven.tell(ChunkArriving(DEPLOYMENT, 7, A), delta(2, 7))
    assert [fetch.peer for fetch in of(StartFetch, driven.wait(2.0)) if fetch.chunk == 7] == [B]
    return driven


def test_a_chunk_that_was_told_is_not_taken_back_while_another_fetch_of_it_goes_on() -> None:
    driven = with_its_last_chunk_coming_from_a_and_asked_of_b_too()
    after = driven.tell(FetchFailed(DEPLOYMENT, 7, A, FailReason.SLOW), after=0.05)
    assert not any(message.dropped for message in of(SendDelta, after))
    failed = [FetchFailed(DEPLOYMENT, 7, peer, FailReason.SLOW) for peer in (A, B)]
    after = driven.tell(*failed, after=0.05) + driven.wait(LAZY_S)
    assert (7,) in [message.dropped for message in of(SendDelta, after)]


def test_a_chunk_that_came_from_elsewhere_than_was_told_is_told_again_as_relays_were_refused_meanwhile() -> None:
    driven = with_its_last_chunk_coming_from_a_and_asked_of_b_too()
    after = driven.tell(stored(7, B), after=0.1) + driven.wait(LAZY_S)
    assert (7,) in [message.added for message in of(SendDelta, after)]


def test_a_host_whose_disk_refuses_promises_nothing_until_it_takes_a_chunk_again() -> None:
    driven = among_rack_peers()
    driven.tell(SubscribeHeard(B, DEPLOYMENT), holdings(1, 4, 5, 6))
    driven.tell(FetchFailed(DEPLOYMENT, 4, A, FailReason.DISK))
    assert not of(SendDelta, driven.tell(ChunkArriving(DEPLOYMENT, 5, A), after=0.1) + driven.wait(LAZY_S))
    driven.tell(stored(5, A), after=0.1)
    driven.wait(LAZY_S)
    (told,) = of(SendDelta, driven.tell(ChunkArriving(DEPLOYMENT, 6, A), after=0.1))
    assert told.added == (6,)


def test_a_host_far_behind_its_mates_promises_nothing_and_tells_what_is_here() -> None:
    driven = among_rack_peers(chunks=40)
    far = tuple(range(SETTINGS.behind_chunks + 1))
    driven.tell(SubscribeHeard(B, DEPLOYMENT), holdings(1, 39, *far, size=40), holdings(2, *far, size=40))
    driven.wait(1.0)
    assert not of(SendDelta, driven.tell(ChunkArriving(DEPLOYMENT, 39, A), after=0.1) + driven.wait(LAZY_S))
    (told,) = of(SendDelta, driven.tell(stored(39, A), after=0.1))
    assert told.added == (39,)


def test_what_is_here_or_was_never_asked_for_is_not_told_as_coming() -> None:
    driven = among_rack_peers(held=(3,))
    driven.tell(SubscribeHeard(B, DEPLOYMENT), holdings(1, 3))
    after = driven.tell(ChunkArriving(DEPLOYMENT, 3, A), ChunkArriving(DEPLOYMENT, 6, A), after=0.1)
    assert not of(SendDelta, after + driven.wait(LAZY_S))


def test_a_busy_peer_is_not_asked_again_at_once_but_another_is() -> None:
    driven = among_rack_peers()
    (fetch,) = of(StartFetch, driven.tell(holdings(1, 5)))
    commands = driven.tell(FetchFailed(DEPLOYMENT, 5, A, FailReason.BUSY), holdings(2, 5))
    assert [again.peer for again in of(StartFetch, commands)] == [B]
    assert fetch.timeout_s >= 5


def test_a_peer_that_lies_is_asked_no_more_and_others_are() -> None:
    driven = among_rack_peers()
    driven.tell(holdings(1, 5, 6))
    commands = driven.tell(FetchFailed(DEPLOYMENT, 5, A, FailReason.CORRUPT), holdings(2, 5, 6))
    assert {fetch.peer for fetch in of(StartFetch, commands)} <= {B}


def test_the_share_of_a_host_that_is_out_of_reach_moves_within_a_second() -> None:
    driven = among_rack_peers()
    driven.tell(holdings(1, 5))
    driven.tell(holdings(2, 5), PeerReachable(A, False))
    commands = driven.tell(FetchFailed(DEPLOYMENT, 5, A, FailReason.GONE), after=0.05)
    assert [fetch.peer for fetch in of(StartFetch, commands)] == [B]
    back = driven.tell(PeerReachable(A, True), after=0.3)
    assert [again.peer for again in of(StartSubscription, back)] == [A]


def test_a_lone_host_elects_itself_probes_and_reads() -> None:
    driven = Driven()
    claims = of(ClaimSeed, driven.wait(4.0))
    assert [claim.term for claim in claims] == [1]
    commands = driven.tell(opened(800, extent=8))
    assert of(ProbeSource, commands)
    reads = of(StartSourceRead, commands)
    assert len(reads) == 1, "the others wait for what the probe says, and for what neighbours hold"
    assert not of(StartSourceRead, driven.tell())
    reads += of(StartSourceRead, driven.tell(SourceProbed(DEPLOYMENT, True)))
    chunks = [chunk for read in reads for chunk in read.chunks]
    assert len(chunks) == 8
    assert all(one + 1 == other for read in reads for one, other in zip(read.chunks, read.chunks[1:], strict=False))


def test_the_end_of_a_read_is_told_at_once_to_readers_in_other_racks_who_may_begin_the_next() -> None:
    driven = Driven()
    driven.meet(*[view(number, "b", term=int(number == 50)) for number in range(50, 54)])
    driven.wait(5.0)
    driven.tell(opened(40), *[SubscribeHeard(node(number), DEPLOYMENT) for number in range(50, 54)])
    driven.wait(1.0)
    told: dict[NodeId, set[int]] = {}
    for chunk in range(8):
        for message in of(SendDelta, driven.tell(stored(chunk, SOURCE)) + driven.wait(0.05, step=0.05)):
            for peer in message.peers:
                told.setdefault(peer, set()).update(message.added)
    assert told[node(50)] == set(range(8))
    assert any(told.get(node(number), set()) != set(range(8)) for number in (51, 52, 53))


def test_a_chunk_is_told_while_it_is_read_and_its_end_to_readers_who_may_begin_the_next() -> None:
    driven = Driven()
    driven.meet(*[view(number, "b", term=int(number == 50)) for number in range(50, 52)])
    driven.wait(5.0)
    commands = driven.tell(opened(40), *[SubscribeHeard(node(number), DEPLOYMENT) for number in (50, 51)])
    assert not of(StartSourceRead, commands), "somebody may have everything"
    (read,) = of(StartSourceRead, driven.tell(holdings(51, size=40)))
    assert read.is_awaited
    (chunk,) = read.chunks
    driven.tell(SourceProbed(DEPLOYMENT, True))
    driven.wait(1.0)
    told = of(SendDelta, driven.tell(ChunkArriving(DEPLOYMENT, chunk, SOURCE)) + driven.wait(LAZY_S))
    assert all(message.added == (chunk,) and chunk in message.reading for message in told if message.added)
    assert {peer for message in told if message.added for peer in message.peers} == {node(50), node(51)}
    swarm = driven.swarm()
    swarm.reader.readable = False  # what begins here would be told at once as well
    ended = of(
        SendDelta,
        driven.tell(stored(chunk, SOURCE)) + driven.wait(swarm.times.batch_s(swarm.replica) + 0.05, step=0.05),
    )
    assert [message.peers for message in ended if chunk not in message.reading] == [(node(50),)]
    assert not any(message.added for message in ended)


def test_a_chunk_that_is_promised_by_who_reads_it_counts_as_read_when_the_read_has_ended() -> None:
    driven = Driven()
    driven.meet(*[view(number, "b", term=int(number == 50)) for number in range(50, 52)])
    driven.wait(5.0)
    driven.tell(opened(3), SourceProbed(DEPLOYMENT, True))
    reader = driven.swarm().reader
    promised = DeltaHeard(node(50), DEPLOYMENT, (1,), (), (1,), 24)
    driven.tell(HoldingsHeard(node(50), DEPLOYMENT, ChunkSet(3), 24), promised)
    driven.tell(DeltaHeard(node(51), DEPLOYMENT, (1,), (), (), 24))
    assert list(reader.present) == [0, 0, 0], "who has it has it from the one that reads it"
    driven.tell(DeltaHeard(node(50), DEPLOYMENT, (), (), (), 24))
    assert list(reader.present) == [0, 1, 0]
    driven.tell(DeltaHeard(node(50), DEPLOYMENT, (2,), (), (2,), 24))
    driven.tell(DeltaHeard(node(50), DEPLOYMENT, (), (2,), (), 24))
    assert list(reader.present) == [0, 1, 0], "it did not come"


def test_holdings_that_lack_what_a_peer_held_before_take_it_out_of_what_is_present_even_when_they_are_empty() -> None:
    driven = Driven()
    driven.meet(*[view(number, "b", term=int(number == 50)) for number in range(50, 52)])
    driven.wait(5.0)
    driven.tell(opened(3), SourceProbed(DEPLOYMENT, True))
    reader = driven.swarm().reader
    driven.tell(HoldingsHeard(node(50), DEPLOYMENT, ChunkSet.of(3, (0, 1)), 24))
    driven.tell(HoldingsHeard(node(51), DEPLOYMENT, ChunkSet.of(3, (1,)), 24))
    assert list(reader.present) == [1, 1, 0]
    driven.tell(HoldingsHeard(node(50), DEPLOYMENT, ChunkSet.of(3, (2,)), 24))
    assert list(reader.present) == [0, 1, 1]
    driven.tell(HoldingsHeard(node(50), DEPLOYMENT, ChunkSet(3), 24))
    assert list(reader.present) == [0, 1, 0]


def test_what_is_promised_before_its_read_is_heard_of_counts_as_read_when_the_read_has_ended() -> None:
    driven = Driven()
    driven.meet(*[view(number, "b", term=int(number == 50)) for number in range(50, 52)])
    driven.wait(5.0)
    driven.tell(opened(3), SourceProbed(DEPLOYMENT, True))
    driven.tell(stored(2, SOURCE))
    reader = driven.swarm().reader
    driven.tell(delta(51, 1), delta(50, reading=(1, 2)))
    assert list(reader.present) == [0, 0, 1], "what is here is here, also when another reads it again"
    driven.tell(delta(50))
    assert list(reader.present) == [0, 1, 1]


def test_what_a_mate_has_lost_is_imported_whether_it_says_so_or_says_all_that_it_holds() -> None:
    for loss in (holdings(1), DeltaHeard(A, DEPLOYMENT, (), (5,), (), 4)):
        driven = Driven()
        driven.meet(view(1, term=1), view(50, "b"))
        driven.tell(opened(8, (0, 1, 2, 3, 4, 6, 7)), after=4.0)
        driven.tell(holdings(1, 5))
        driven.tell(FetchFailed(DEPLOYMENT, 5, A, FailReason.BUSY), holdings(50, 5))
        fetches = of(StartFetch, driven.tell(loss) + driven.wait(4.0))
        assert [(fetch.chunk, fetch.peer) for fetch in fetches] == [(5, node(50))]


def test_a_neighbour_whose_answers_bring_nothing_new_is_asked_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gossipd.swarm.peers._REFUSED_S", 1e9)  # it may refuse for ever
    driven = Driven(reads=False)  # or it would read what the seed does not
    driven.meet(view(1, term=1))
    driven.tell(opened(8), after=4.0)
    driven.tell(holdings(1, 5))
    asked: list[float] = []
    for _ in range(480):
        if of(StartSubscription, driven.tell(after=0.25)):
            asked.append(driven.now)
            driven.tell(holdings(1, 5))
        driven.tell(FetchFailed(DEPLOYMENT, 5, A, FailReason.BUSY))
    gaps = [round(after - before) for before, after in pairwise(asked)]
    assert gaps == [24, 40, 40], "twice as long each time, up to a limit, and 12 s at first, as no chunk comes"


@pytest.mark.parametrize("brought_by_another", [True, False])
def test_a_busy_holder_is_left_alone_only_when_nothing_comes_from_others(*, brought_by_another: bool) -> None:
    driven = Driven()
    driven.meet(view(1, term=1), view(2))
    driven.tell(opened(64), after=4.0)
    asked = of(StartFetch, driven.tell(holdings(1, *range(64), size=64)))
    for _ in range(80):
        refused = [FetchFailed(DEPLOYMENT, fetch.chunk, A, FailReason.BUSY) for fetch in asked]
        brought = [stored(fetch.chunk, B) for fetch in asked[:1] if brought_by_another]
        asked = of(StartFetch, driven.tell(*refused, *brought, after=0.5))
    assert driven.planner._peers.is_shunned(A, driven.now) is not brought_by_another


def test_more_chunks_are_fetched_at_once_of_a_model_of_many_and_never_more_than_the_most() -> None:
    settings = PlannerSettings()
    assert [settings.flows(chunks) for chunks in (1, 256, 1_024, 2_000, 30_000)] == [4, 4, 7, 10, 10]
    assert [settings.reads_window(chunks) for chunks in (256, 30_000)] == [16, 20]
    assert PlannerSettings(fetches_min=1, fetches_max=1).flows(30_000) == 1


def test_a_failed_read_is_tried_again_after_a_pause() -> None:
    driven = seed_alone(8)
    failed = SourceReadFailed(DEPLOYMENT, tuple(reading(driven)), FailReason.SOURCE)
    assert failed.chunks
    assert not of(StartSourceRead, driven.tell(failed))
    assert of(StartSourceRead, driven.wait(4.0))


def test_other_readers_hear_at_once_that_a_read_has_failed() -> None:
    driven = Driven()
    driven.meet(*[view(number, "b", term=int(number == 50)) for number in (50, 51)])
    driven.wait(5.0)
    driven.tell(opened(40), *[SubscribeHeard(node(number), DEPLOYMENT) for number in (50, 51)])
    (read,) = of(StartSourceRead, driven.tell(holdings(51, size=40)))
    driven.wait(LAZY_S)
    failed = SourceReadFailed(DEPLOYMENT, read.chunks, FailReason.DISK)
    told = of(SendDelta, driven.tell(failed) + driven.wait(0.1, step=0.05))
    assert [message.peers for message in told if not {*read.chunks} & {*message.reading}] == [(node(50),)]


@pytest.mark.parametrize(("held", "is_told"), [(0, True), (50, False), (90, True)], ids=["begin", "midst", "end"])
def test_a_read_that_begins_is_told_soon_but_in_the_midst(held: int, *, is_told: bool) -> None:
    driven = Driven()
    driven.meet(*[view(number, "b", term=int(number == 50)) for number in (50, 51)])
    driven.wait(5.0)
    driven.tell(opened(100, tuple(range(held))), SubscribeHeard(node(50), DEPLOYMENT))
    commands = driven.tell(holdings(50, *range(held), size=100))
    assert of(StartSourceRead, commands)
    told = of(SendDelta, commands + driven.wait(0.3, step=0.05))
    assert [message.peers for message in told if message.reading] == ([(node(50),)] if is_told else [])


@pytest.mark.parametrize(("held", "is_told"), [(0, True), (50, False)], ids=["one-is-behind", "all-alike"])
def test_reads_are_told_soon_in_the_midst_where_a_host_is_behind(held: int, *, is_told: bool) -> None:
    driven = Driven()
    driven.meet(*[view(number, "b", term=int(number == 50)) for number in (50, 51)])
    driven.wait(5.0)
    driven.tell(opened(100, tuple(range(50))), SubscribeHeard(node(50), DEPLOYMENT))
    driven.tell(*[holdings(number, *range(count), size=100) for number, count in ((50, 50), (51, held))])
    driven.wait(10.0)
    driven.tell(delta(50, reading=(99,)))  # it goes on, so this host reads its own share alone
    commands = driven.tell(SourceProbed(DEPLOYMENT, True))
    assert of(StartSourceRead, commands)
    told = of(SendDelta, commands + driven.wait(0.3, step=0.05))
    assert bool([message for message in told if message.reading]) is is_told


def test_a_seed_that_takes_over_reads_of_a_slower_one_asks_it_what_it_reads() -> None:
    driven = Driven()
    driven.meet(*[view(number, "b", term=int(number == 50)) for number in (50, 51, 52, 53)])
    driven.wait(5.0)
    driven.tell(opened(2_000), *[holdings(number, size=2_000) for number in (50, 51, 52, 53)])
    commands: list[Command] = []
    for second in range(6):
        deltas = [delta(number, *range(second * 40, second * 40 + 40)) for number in (51, 52, 53)]
        commands += driven.tell(delta(50, *range(second * 10, second * 10 + 10)), *deltas, after=0.5)
        commands += driven.tell(after=0.5)
    assert [again.peer for again in of(StartSubscription, commands)] == [node(50)]


def test_a_host_that_cannot_read_the_source_gives_its_claim_up() -> None:
    driven = Driven()
    driven.wait(4.0)
    driven.tell(opened(8))
    driven.tell(SourceProbed(DEPLOYMENT, False))
    assert [claim.term for claim in of(ClaimSeed, driven.wait(1.0))] == [0]


def test_a_source_that_can_be_read_again_brings_the_claim_back_at_once() -> None:
    driven = Driven()
    driven.wait(4.0)
    driven.tell(opened(8))
    failed = SourceReadFailed(DEPLOYMENT, tuple(reading(driven)), FailReason.SOURCE)
    driven.tell(SourceProbed(DEPLOYMENT, False), failed)
    driven.wait(30.0)
    commands = driven.tell(SourceProbed(DEPLOYMENT, True)) + driven.wait(4.0)
    assert [claim.term for claim in of(ClaimSeed, commands)] == [2]
    assert of(StartSourceRead, commands)


def test_a_source_that_nobody_can_read_costs_no_other_deployment_its_seed() -> None:
    driven = seed_alone(800)
    driven.tell(replace(opened(8), deployment=OTHER))
    landed = [stored(chunk, SOURCE) for chunk in reading(driven)]
    failed = SourceReadFailed(OTHER, tuple(reading(driven, OTHER)), FailReason.SOURCE)
    commands = driven.tell(SourceProbed(OTHER, False), failed) + driven.wait(2.0) + driven.tell(*landed)
    assert not of(ClaimSeed, commands)
    assert {read.deployment for read in of(StartSourceRead, commands)} == {DEPLOYMENT}


def test_a_deployment_that_comes_after_one_with_a_dead_source_finds_a_seed() -> None:
    driven = Driven()
    driven.wait(4.0)
    driven.tell(replace(opened(8), deployment=OTHER))
    driven.tell(SourceReadFailed(OTHER, tuple(reading(driven, OTHER)), FailReason.SOURCE))
    for _ in range(4):  # the daemon asks again every ten seconds
        driven.tell(SourceProbed(OTHER, False))
        driven.wait(10.0)
    commands = driven.tell(opened(8)) + driven.wait(3.0)
    assert [claim.term for claim in of(ClaimSeed, commands)] == [2]
    assert [probe.deployment for probe in of(ProbeSource, commands)] == [DEPLOYMENT]
    commands += driven.tell(SourceProbed(OTHER, False), SourceProbed(DEPLOYMENT, True)) + driven.wait(2.0)
    assert {read.deployment for read in of(StartSourceRead, commands)} == {DEPLOYMENT}


def test_an_isolated_seed_reads_no_more() -> None:
    driven = seed_alone(800)
    driven.tell()
    landed = [stored(chunk, SOURCE) for chunk in reading(driven)]
    assert landed
    commands = driven.tell(IsolationChanged(True), *landed, after=0.3) + driven.wait(2.0)
    assert not of(StartSourceRead, commands)
    assert [claim.term for claim in of(ClaimSeed, commands)] == [0]


def test_the_last_chunk_finishes_the_model_once_and_neighbours_are_left() -> None:
    driven = among_rack_peers(2, (0,))
    driven.tell(holdings(1, 1, size=2))
    commands = driven.tell(stored(1, A), after=0.5) + driven.wait(2.0)
    assert len(of(FinishModel, commands)) == 1
    assert {gone.peer for gone in of(EndSubscription, commands)} == {A, B}


def test_a_complete_copy_is_finished_without_a_fetch() -> None:
    driven = Driven()
    driven.meet(view(1, term=1))
    commands = driven.tell(opened(2, (0, 1)))
    assert of(FinishModel, commands)
    assert not of(StartSubscription, commands)


def test_a_chunk_that_rots_is_told_and_fetched_again() -> None:
    driven = among_rack_peers(2, (0, 1))
    driven.tell(SubscribeHeard(B, DEPLOYMENT))
    commands = driven.tell(ChunkLost(DEPLOYMENT, 1), after=1.0)
    assert [told.dropped for told in of(SendDelta, commands)] == [(1,)]
    assert of(StartSubscription, commands + driven.wait(0.5))
    assert [fetch.chunk for fetch in of(StartFetch, driven.tell(holdings(1, 0, 1, size=2)))] == [1]
    assert of(FinishModel, driven.tell(stored(1, A)))


def test_a_closed_deployment_is_forgotten_and_its_fetches_cancelled() -> None:
    driven = among_rack_peers()
    driven.tell(holdings(1, 5))
    assert of(CancelFetch, driven.tell(DeploymentClosed(DEPLOYMENT)))
    assert driven.tell(FetchFailed(DEPLOYMENT, 5, A, FailReason.CANCELLED), holdings(1, 6), after=0.1) == []


def test_no_chunk_for_three_seconds_has_a_reason_and_its_end_is_told() -> None:
    driven = among_rack_peers()
    driven.tell(holdings(1, 5, free=0))
    reports = of(ReportStall, driven.wait(4.0))
    assert reports[0].reason in (StallReason.ALL_BUSY, StallReason.NO_HOLDER)
    assert driven.now - 100.0 < 9.0
    (end,) = of(ReportStall, driven.tell(stored(5, A), after=0.3))
    assert end.reason is None


def test_a_seed_whose_read_hangs_says_storage_before_the_read_has_failed_and_after() -> None:
    driven = seed_alone(200)
    reads = of(StartSourceRead, driven.tell())
    [report] = of(ReportStall, driven.wait(5.0))
    assert (report.reason, report.reads) == (StallReason.STORAGE, len(reads) + 1), "and the one before the probe"
    driven.tell(*[SourceReadFailed(DEPLOYMENT, read.chunks, FailReason.SLOW) for read in reads])
    told = {report.reason for report in of(ReportStall, driven.wait(5.0))}
    assert told == {StallReason.STORAGE}, "it stays the reason while storage is left alone for a while"


def test_a_stall_for_reads_is_told_every_three_seconds_for_their_limit_may_be_another() -> None:
    driven = seed_alone(200)
    driven.tell()
    told = of(ReportStall, driven.wait(30.0))
    assert {report.reason for report in told} == {StallReason.STORAGE}
    assert 8 <= len(told) <= 10


def test_chunks_of_one_read_share_no_limit_as_they_come_in_order() -> None:
    driven = seed_alone(200, extent=8)
    reads = of(StartSourceRead, driven.tell())
    assert {len(read.chunks) for read in reads} == {2}
    assert of(ReportStall, driven.wait(5.0))[0].reads == len(reads) + 1, "with the one before the probe"


def test_a_holder_that_takes_a_fetch_and_hangs_is_silent_and_not_busy() -> None:
    driven = among_rack_peers()
    (fetch,) = of(StartFetch, driven.tell(holdings(1, 5)))
    last = of(ReportStall, driven.wait(4.0))[-1]
    assert (last.reason, last.peer) == (StallReason.HOLDER_SILENT, fetch.peer)
    driven.tell(FetchFailed(DEPLOYMENT, fetch.chunk, fetch.peer, FailReason.SLOW))
    assert not of(ReportStall, driven.wait(1.0)), "asked again or not, it is why nothing comes"


def test_a_holder_that_was_cut_and_has_delivered_since_is_not_the_silent_one() -> None:
    driven = among_rack_peers()
    assert {fetch.peer for fetch in of(StartFetch, driven.tell(holdings(1, 5, 6)))} == {A}
    cut = FetchFailed(DEPLOYMENT, 5, A, FailReason.SLOW)
    (fetch,) = of(StartFetch, driven.tell(cut, stored(6, A), holdings(1, 6), holdings(2, 5), after=0.5))
    assert (fetch.peer, fetch.chunk) == (B, 5)
    driven.tell(FetchFailed(DEPLOYMENT, 5, B, FailReason.GONE))
    told = [(report.reason, report.peer) for report in of(ReportStall, driven.wait(9.0))]
    assert told == [(StallReason.HOLDER_SILENT, B)]


def test_holders_that_live_and_cannot_be_connected_to_are_the_reason_however_long() -> None:
    driven = among_rack_peers()
    (fetch,) = of(StartFetch, driven.tell(holdings(1, 5)))
    driven.tell(FetchFailed(DEPLOYMENT, fetch.chunk, fetch.peer, FailReason.GONE))
    told = [(report.reason, report.peer) for report in of(ReportStall, driven.wait(60.0))]
    assert told == [(StallReason.HOLDER_SILENT, fetch.peer)]
    (report,) = of(ReportStall, driven.tell(PeerReachable(fetch.peer, False), after=1.0))
    assert report.reason is not StallReason.HOLDER_SILENT, "it lives no longer"


def test_a_full_disk_is_named() -> None:
    driven = among_rack_peers()
    driven.tell(holdings(1, 5))
    driven.wait(2.5)
    driven.tell(FetchFailed(DEPLOYMENT, 5, A, FailReason.DISK))
    assert of(ReportStall, driven.wait(1.5))[0].reason is StallReason.DISK


def test_the_last_chunks_are_asked_for_twice_and_the_slower_is_cancelled() -> None:
    driven = among_rack_peers(8, (0, 1, 2, 3))
    driven.tell(holdings(1, 4, 5, 6, 7), holdings(2))
    for chunk in (4, 5, 6):
        driven.tell(stored(chunk, A), after=0.1)
    driven.tell(delta(2, 7))
    hedges = [fetch for fetch in of(StartFetch, driven.wait(2.0)) if fetch.chunk == 7]
    assert [hedge.peer for hedge in hedges] == [B]
    (cancel,) = of(CancelFetch, driven.tell(stored(7, B)))
    assert cancel.peer == A


def test_a_chunk_from_another_rack_is_asked_for_twice_by_what_such_chunks_take() -> None:
    driven = Driven(reads=False)
    driven.meet(view(1), view(8, "b"), view(9, "c"))
    driven.tell(opened(8, (0, 1, 2, 3)), after=4.0)
    driven.tell(holdings(1, 4, 5), holdings(8, 6))
    for chunk in (4, 5):
        driven.tell(stored(chunk, A), after=0.1)
    driven.wait(10.0)  # the first in line for it
    driven.tell(replace(stored(6, node(8)), elapsed_s=4.0))
    asked = of(StartFetch, driven.tell(delta(8, 7), delta(9, 7)))
    while not asked:
        asked = of(StartFetch, driven.tell(after=0.25))
    assert not of(StartFetch, driven.wait(5.0)), "fetches in the rack take a tenth of a second: ten times as long"
    (hedge,) = of(StartFetch, driven.wait(2.0))
    assert {asked[0].peer, hedge.peer} == {node(8), node(9)}


def test_a_late_import_is_asked_of_another_rack_and_not_of_mates_who_have_it_from_us() -> None:
    driven = Driven(reads=False)
    driven.meet(view(1), view(8, "b"), view(9, "c"))
    driven.tell(opened(8, (0, 1, 2, 3)), after=4.0)
    driven.tell(holdings(1, 4, 5, 6), holdings(8), holdings(9))
    for chunk in (4, 5, 6):
        driven.tell(stored(chunk, A), after=0.1)
    asked = of(StartFetch, driven.tell(delta(8, 7), delta(9, 7)))
    while not asked:
        asked = of(StartFetch, driven.tell(after=0.25))
    driven.tell(ChunkArriving(DEPLOYMENT, 7, asked[0].peer), delta(1, 7))
    (hedge,) = of(StartFetch, driven.wait(2.0))
    assert {asked[0].peer, hedge.peer} == {node(8), node(9)}


def test_a_late_read_is_asked_of_others_who_have_it_from_us_only_when_it_hangs() -> None:
    driven = Driven()
    driven.meet(view(8, "b"), view(9, "c"))
    driven.wait(5.0)
    driven.tell(opened(8, (0, 1, 2, 3)), holdings(8, 4, 5, 6), SubscribeHeard(node(8), DEPLOYMENT))
    driven.tell(*[stored(chunk, node(8)) for chunk in (4, 5, 6)], after=0.1)
    driven.tell(SourceProbed(DEPLOYMENT, True))
    assert reading(driven) == [7]
    driven.tell(ChunkArriving(DEPLOYMENT, 7, SOURCE), delta(8, 7), delta(9, 7))
    assert not of(StartFetch, driven.wait(SETTINGS.read_takeover_s - 0.5))
    (hedge,) = of(StartFetch, driven.wait(1.0))
    assert hedge.chunk == 7


def test_when_another_rack_is_too_slow_half_as_many_chunks_are_asked_of_others() -> None:
    driven = Driven()
    driven.meet(*(view(number, f"rack-{number}") for number in range(1, 9)))
    driven.tell(opened(64), after=4.0)
    heard = [holdings(number, *range(64), size=64) for number in range(1, 9)]
    asked = of(StartFetch, driven.tell(*heard))
    assert len(asked) >= 4
    driven.tell(*(ChunkArriving(DEPLOYMENT, one.chunk, one.peer) for one in asked))
    cut = [FetchFailed(DEPLOYMENT, one.chunk, one.peer, FailReason.SLOW) for one in asked]
    assert len(of(StartFetch, driven.tell(*cut, after=5.0))) == len(asked) // 2


def test_two_deployments_together_hedge_no_more_than_the_fetches_of_one() -> None:
    driven = Driven(settings=PlannerSettings(fetches_max=4, fetches_min=4))
    driven.meet(view(1), view(2), view(3))
    for deployment in (DEPLOYMENT, OTHER):
        driven.tell(DeploymentOpened(deployment, shape(8), ChunkSet.of(8, (0, 1, 2, 3))))
        driven.tell(HoldingsHeard(A, deployment, ChunkSet.of(8, (4, 5, 6, 7)), 9))
        driven.tell(ChunkStored(deployment, 4, A, CHUNK_BYTES, 0.1), after=0.1)
        driven.tell(HoldingsHeard(B, deployment, ChunkSet.of(8, (4, 5, 6, 7)), 9))
    driven.wait(3.0)
    in_flight = sum(swarm.fetches for swarm in driven.planner.statistics().swarms.values())
    assert in_flight == 5, "fetches_max and one hedge"


def test_a_chunk_that_came_is_not_asked_for_again_while_its_other_fetch_is_being_cancelled() -> None:
    driven = among_rack_peers(8, (0, 1, 2, 3))
    driven.meet(view(3))
    driven.tell(holdings(1, 4, 5, 6, 7), holdings(2), holdings(3))
    for chunk in (4, 5, 6):
        driven.tell(stored(chunk, A), after=0.1)
    driven.tell(delta(2, 7))
    assert [fetch.peer for fetch in of(StartFetch, driven.wait(2.0)) if fetch.chunk == 7] == [B]
    driven.tell(holdings(3, *range(8)), stored(7, B))
    assert not of(StartFetch, driven.wait(2.0))


def two_deployments(priority: int, chunks: int, settings: PlannerSettings = SETTINGS) -> Driven:
    """One of priority 5, and ``OTHER``, opened after it."""
    driven = Driven(settings=settings)
    driven.meet(*[view(number, term=int(number == 1)) for number in range(1, 20)])
    driven.tell(opened(chunks), DeploymentOpened(OTHER, shape(chunks), ChunkSet(chunks), priority=priority))
    return driven


def all_held(chunks: int, *deployments: DeploymentId) -> list[HoldingsHeard]:
    """Nineteen mates hold everything."""
    full = ChunkSet.full(chunks)
    return [HoldingsHeard(node(number), one, full, 4) for number in range(1, 20) for one in deployments]


def land_fetches(driven: Driven, flying: list[StartFetch], count: int, each_s: float) -> Counter[DeploymentId]:
    """So many chunks come, one at a time, oldest fetch first, as where all fetches share one link."""
    landed: Counter[DeploymentId] = Counter()
    for _ in range(count):
        one = flying.pop(0)
        landed[one.deployment] += 1
        chunk = ChunkStored(one.deployment, one.chunk, one.peer, CHUNK_BYTES, each_s * len(flying))
        flying += of(StartFetch, driven.tell(chunk, after=each_s))
    return landed


def two_versions(chunks: int) -> Driven:
    """Version 6 of a name, and version 7 as ``OTHER``, opened after it: a host that replaces another."""
    driven = Driven()
    driven.meet(*[view(number, term=int(number == 1)) for number in range(1, 20)])
    older = DeploymentOpened(DEPLOYMENT, shape(chunks), ChunkSet(chunks), name="run", version=6)
    driven.tell(older, replace(older, deployment=OTHER, version=7))
    return driven


def test_the_newest_version_of_a_name_is_fetched_before_all_others() -> None:
    driven = two_versions(200)
    flying = of(StartFetch, driven.tell(*all_held(200, OTHER)))
    flying += of(StartFetch, driven.tell(*all_held(200, DEPLOYMENT)))
    landed = land_fetches(driven, flying, 200, 0.01)
    assert landed[DEPLOYMENT] <= len(flying), "the older one begins when the newer has nothing left to ask for"
    assert landed[OTHER] >= 200 - len(flying)
    assert land_fetches(driven, flying, 200, 0.01)[DEPLOYMENT] >= 200 - 2 * len(flying) - 1


def test_an_older_version_goes_on_while_nobody_has_the_newer() -> None:
    driven = two_versions(200)
    assert len(of(StartFetch, driven.tell(*all_held(200, DEPLOYMENT)))) > 1


@pytest.mark.parametrize("each_s", [0.01, 0.5])
def test_a_higher_priority_takes_all_fetches_but_one(each_s: float) -> None:
    driven = two_deployments(9, 1_000)
    flying = of(StartFetch, driven.tell(*all_held(1_000, DEPLOYMENT)))
    flying += of(StartFetch, driven.tell(*all_held(1_000, OTHER)))
    land_fetches(driven, flying, 60, each_s)  # what had begun before
    landed = land_fetches(driven, flying, 200, each_s)
    under_way = len(flying)
    assert landed[DEPLOYMENT] == pytest.approx(200 / under_way, abs=2), "one fetch at a time, and no less"
    assert landed[OTHER] > 6 * landed[DEPLOYMENT]


@pytest.mark.parametrize("each_s", [0.01, 0.5])
def test_equal_priorities_have_equal_shares_whichever_came_first(each_s: float) -> None:
    driven = two_deployments(5, 1_000)
    flying = of(StartFetch, driven.tell(*all_held(1_000, DEPLOYMENT)))
    flying += of(StartFetch, driven.tell(*all_held(1_000, OTHER)))
    land_fetches(driven, flying, 60, each_s)
    landed = land_fetches(driven, flying, 300, each_s)
    assert landed[OTHER] == pytest.approx(150, abs=8)


def test_a_lower_priority_has_what_a_higher_one_cannot_use() -> None:
    alone = two_deployments(9, 1_000)
    most = len(of(StartFetch, alone.tell(*all_held(1_000, DEPLOYMENT))))
    assert most > SETTINGS.fetches_min, "nothing of the other can be asked for"
    driven = two_deployments(9, 1_000)
    driven.tell(HoldingsHeard(A, OTHER, ChunkSet.full(1_000), 4))
    driven.tell(delta(1, free=0))
    fetches = Counter(fetch.deployment for fetch in of(StartFetch, driven.tell(*all_held(1_000, DEPLOYMENT)[1:])))
    assert fetches[DEPLOYMENT] > 1, "the only holder of the other has no free slot"


def land_reads(driven: Driven, flying: list[StartSourceRead], count: int) -> Counter[DeploymentId]:
    """So many reads end, one at a time, oldest first, as where all reads share storage's link."""
    landed: Counter[DeploymentId] = Counter()
    for _ in range(count):
        one = flying.pop(0)
        landed[one.deployment] += 1
        stores = [ChunkStored(one.deployment, chunk, SOURCE, CHUNK_BYTES, 0.2) for chunk in one.chunks]
        flying += of(StartSourceRead, driven.tell(*stores, after=0.01))
    return landed


def two_that_are_read(priority: int, chunks: int) -> tuple[Driven, list[StartSourceRead]]:
    driven = Driven()
    driven.wait(4.0)
    commands = driven.tell(opened(chunks), DeploymentOpened(OTHER, shape(chunks), ChunkSet(chunks), priority=priority))
    commands += driven.tell(SourceProbed(DEPLOYMENT, True), SourceProbed(OTHER, True))
    return driven, of(StartSourceRead, commands)


def test_a_higher_priority_is_read_first_and_leaves_the_other_one_read() -> None:
    driven, flying = two_that_are_read(9, 2_000)
    window = SETTINGS.reads_window(2_000)
    assert Counter(read.deployment for read in flying) == {OTHER: window, DEPLOYMENT: 1}
    landed = land_reads(driven, flying, 600)
    assert landed[DEPLOYMENT] == pytest.approx(600 / (window + 1), abs=2)


def test_reads_of_all_deployments_are_told_as_they_share_the_limit() -> None:
    driven, flying = two_that_are_read(9, 2_000)
    told = {report.deployment: report.reads for report in of(ReportStall, driven.wait(5.0))}
    assert told.keys() == {DEPLOYMENT, OTHER}
    assert min(told.values()) >= len(flying)


def test_equal_priorities_are_read_in_equal_shares() -> None:
    driven, flying = two_that_are_read(5, 2_000)
    assert land_reads(driven, flying, 600)[OTHER] == pytest.approx(300, abs=5)


def test_when_the_higher_priority_has_been_read_the_other_has_all_reads() -> None:
    driven, flying = two_that_are_read(9, 1_000)
    land_reads(driven, flying, 1_120)
    assert len(flying) > 1
    assert {read.deployment for read in flying} == {DEPLOYMENT}


def test_what_another_host_reads_of_a_higher_priority_goes_first_too() -> None:
    driven = Driven()
    driven.wait(4.0)
    driven.meet(view(1, rack="b", term=1))
    driven.wait(4.0)
    driven.tell(opened(2_000), DeploymentOpened(OTHER, shape(2_000), ChunkSet(2_000), priority=9))
    driven.tell(SourceProbed(OTHER, False), DeltaHeard(A, OTHER, (), (), (1, 2, 3), 4))
    heard = HoldingsHeard(A, DEPLOYMENT, ChunkSet(2_000), 4)
    reads = of(StartSourceRead, driven.tell(SourceProbed(DEPLOYMENT, True), heard) + driven.wait(1.0))
    assert len(reads) <= 1, "one extent at a time, and it may be the other reader's"
    reads += of(StartSourceRead, driven.tell(DeltaHeard(A, OTHER, (), (), (), 4)))
    assert len(reads) == SETTINGS.reads_window(2_000) // 2, "as many as the other reader"


def test_a_member_declared_dead_holds_nothing_any_more() -> None:
    driven = among_rack_peers()
    driven.tell(holdings(1, 5, free=0))
    driven.tell(PeerLost(A))
    assert not of(StartFetch, driven.wait(2.0))


def test_who_is_not_among_all_members_any_more_is_told_nothing() -> None:
    driven = among_rack_peers()
    driven.tell(SubscribeHeard(A, DEPLOYMENT), SubscribeHeard(B, DEPLOYMENT))
    driven.tell(MembersSeen({OWN: view(0), B: view(2)}))
    told = {peer for message in of(SendDelta, driven.tell(stored(3, B)) + driven.wait(2.0)) for peer in message.peers}
    assert told == {B}


def test_a_claim_is_made_when_it_is_due_and_not_at_the_next_tick() -> None:
    driven = Driven()
    driven.meet(*[view(number) for number in range(1, 4)])
    driven.tell(opened(8))
    while not of(ClaimSeed, driven.tell()):
        due = driven.planner.next_deadline(driven.now)
        assert due > driven.now, "a plan has done what was due"
        driven.now = due
    assert driven.now <= 100.0 + 4 * SETTINGS.claim_rank_s


def test_a_host_far_behind_its_mates_gives_its_claim_up_and_makes_no_other() -> None:
    driven = Driven()
    driven.meet(*[view(number) for number in range(1, 4)])
    assert of(ClaimSeed, driven.wait(4.0))
    driven.tell(opened(400), *[holdings(number, *range(300), size=400) for number in range(1, 4)])
    (given_up,) = of(ClaimSeed, driven.wait(1.0))
    assert not given_up.term
    commands: list[Command] = []
    for _ in range(int(2 * SETTINGS.claim_hold_down_s)):
        fetches = of(StartFetch, commands)
        ended = [FetchFailed(DEPLOYMENT, fetch.chunk, fetch.peer, FailReason.CANCELLED) for fetch in fetches]
        commands = driven.tell(*ended, after=1.0)
        assert not of(ClaimSeed, commands), "it is still as far behind"


def test_chunks_copied_from_another_version_need_no_fetch_and_are_told() -> None:
    driven = among_rack_peers()
    driven.tell(SubscribeHeard(B, DEPLOYMENT))
    (told,) = of(SendDelta, driven.tell(stored(4, LOCAL), after=1.0))
    assert told.added == (4,)


def test_upload_slots_follow_what_others_are_likely_to_ask() -> None:
    limits = of(LimitUploads, among_rack_peers().wait(1.0))
    assert all(4 <= limit.slots <= 24 for limit in limits)


def test_upload_slots_follow_the_window_up_to_their_limit_and_not_past_it() -> None:
    driven = Driven(settings=PlannerSettings(slots_max=8))
    driven.meet(view(1, term=1), *[view(number) for number in range(2, 20)])
    driven.tell(opened(200))
    commands = driven.tell(*[holdings(number, *range(200), size=200) for number in range(1, 20)])
    limits = [limit.slots for limit in of(LimitUploads, commands + driven.wait(20.0))]
    assert max(limits) == 8


def test_the_only_holder_of_many_chunks_in_its_rack_gives_more_uploads_than_one_whose_mates_are_level() -> None:
    raised = {}
    for held_by_best_rack_peer in (0, 72):
        driven = among_rack_peers(96, tuple(range(72)))
        commands = driven.tell(holdings(1, *range(held_by_best_rack_peer), size=96), holdings(2, size=96))
        raised[held_by_best_rack_peer] = [limit.slots for limit in of(LimitUploads, commands + driven.wait(20.0))]
    assert not raised[72]
    assert raised[0] == sorted(raised[0])
    assert raised[0][-1] >= 2.5 * PlannerSettings().slots_min


def test_what_is_held_is_not_fetched_again_when_others_offer_it() -> None:
    driven = among_rack_peers(8, (0, 1, 2, 3))
    full = HoldingsHeard(B, DEPLOYMENT, ChunkSet.full(8), 24)
    commands = driven.tell(holdings(1, *range(8), free=24), full)
    commands += driven.meet(view(3), view(4, "b"))  # every wanted chunk is looked at again
    for chunk in (4, 5, 6, 7):
        commands += driven.tell(stored(chunk, A), after=0.1)
    fetched = {fetch.chunk for fetch in of(StartFetch, commands + driven.wait(10.0))}
    assert fetched == {4, 5, 6, 7}


def read_by(commands: list[Command]) -> list[int]:
    return [chunk for read in of(StartSourceRead, commands) for chunk in read.chunks]


def test_a_read_whose_end_is_never_told_is_begun_again_when_the_hand_would_have_given_up() -> None:
    driven = Driven()
    driven.wait(4.0)
    lost = read_by(driven.tell(opened(8)))
    assert not of(StartSourceRead, driven.wait(119.0)), "of so small a model one read at a time"
    assert read_by(driven.wait(10.0)) == lost, "128 s at the least rate for 16 chunks of 1 MiB"


def test_a_read_that_brings_one_small_file_after_the_other_is_not_lost() -> None:
    driven = Driven()
    driven.wait(4.0)
    (chunk,) = read_by(driven.tell(opened(8)))
    for _ in range(5):
        driven.tell(SourceReadMoves(DEPLOYMENT, chunk))
        assert not of(StartSourceRead, driven.wait(100.0))
    assert read_by(driven.wait(130.0)) == [chunk]


def test_reads_have_the_time_that_large_chunks_take_of_slow_storage() -> None:
    driven = Driven()
    driven.wait(4.0)
    size = 25 << 30
    (chunk,) = read_by(driven.tell(DeploymentOpened(DEPLOYMENT, Shape(20, size, 20 * size, 1), ChunkSet(20))))
    assert not of(StartSourceRead, driven.wait(1_200.0, step=2.0)), "nothing is known yet of how slow storage is"
    (chunk,) = read_by(driven.tell(ChunkStored(DEPLOYMENT, chunk, SOURCE, size, 1_200.0)))
    assert not of(StartSourceRead, driven.wait(10_000.0, step=20.0)), "a read takes twenty minutes, or a few times that"
    assert read_by(driven.wait(20_000.0, step=20.0)) == [chunk], "and is lost in the end"


def test_a_fetch_whose_end_is_never_told_is_given_up_and_asked_for_elsewhere() -> None:
    driven = among_rack_peers()
    (lost,) = of(StartFetch, driven.tell(holdings(1, 5)))
    driven.tell(holdings(2, 5))
    assert not of(CancelFetch, driven.wait(1.5 * lost.timeout_s)), "the hand's own deadline comes first"
    commands = driven.wait(lost.timeout_s)
    assert [(given_up.chunk, given_up.peer) for given_up in of(CancelFetch, commands)] == [(5, A)]
    assert [(again.chunk, again.peer) for again in of(StartFetch, commands)] == [(5, B)]


def test_a_link_that_is_limited_low_has_no_more_fetches_than_it_can_feed() -> None:
    driven = among_rack_peers(8, (0, 1, 2, 3, 4, 5, 6))
    (fetch,) = of(StartFetch, driven.tell(holdings(1, 7)))
    driven.tell(stored(fetch.chunk, A), after=4.0)  # 256 KiB/s feed two fetches of 128 KiB/s
    driven.tell(replace(opened(40), deployment=OTHER))
    heard = [replace(holdings(number, *range(40), size=40), deployment=OTHER) for number in (1, 2)]
    assert len(of(StartFetch, driven.tell(*heard))) == 2


def test_words_about_an_unknown_deployment_do_no_harm() -> None:
    driven = Driven()
    driven.meet(view(1))
    assert not driven.tell(holdings(1, 2), delta(1, 3), stored(4, A), FetchFailed(DEPLOYMENT, 1, A, FailReason.GONE))


def test_statistics_show_what_goes_on() -> None:
    driven = among_rack_peers()
    before = driven.planner.statistics()
    driven.tell(holdings(1, 5))
    picture = driven.planner.statistics()
    assert (picture.events, picture.plans) == (before.events + 1, before.plans + 1)
    assert picture.swarms[DEPLOYMENT].fetches == 1
    assert picture.swarms[DEPLOYMENT].readers == (A,)
    assert picture.seeds == {A}


def test_one_copy_is_known_when_of_every_chunk_somebody_holds_it_and_not_when_its_holder_is_gone() -> None:
    driven = among_rack_peers()

    def one_copy() -> bool:
        return driven.planner.statistics().swarms[DEPLOYMENT].one_copy

    driven.tell(holdings(1, 0, 1, 2, 3), stored(4, SOURCE))
    assert not one_copy()
    driven.tell(holdings(2, 3, 5, 6, 7))
    assert one_copy()
    driven.tell(PeerLost(node(2)))
    assert not one_copy()


def test_what_a_host_does_not_want_is_not_taken_for_held_by_others() -> None:
    part, other = ChunkSet.of(8, (0, 1, 2, 3)), ChunkSet.of(8, (0, 1, 4, 5))
    driven = Driven()
    driven.meet(view(1, term=1), view(2))
    driven.tell(DeploymentOpened(DEPLOYMENT, shape(8), ChunkSet(8), wanted=part), PeerWantHeard(B, DEPLOYMENT, other))

    def known() -> tuple[bool, set[NodeId]]:
        swarm = driven.planner.statistics().swarms[DEPLOYMENT]
        return swarm.one_copy, set(swarm.served)

    driven.tell(holdings(1, 0, 1, 2))
    assert known() == (False, set())
    driven.tell(delta(1, 3))
    assert known() == (False, {OWN})
    driven.tell(delta(1, 4, 5))
    assert known() == (False, {OWN, B})
    driven.tell(delta(1, 6, 7))
    assert known() == (True, {OWN, B})
    driven.tell(DeltaHeard(B, DEPLOYMENT, (), (), (5,), 4))
    assert known() == (False, {OWN}), "what is read from storage now, others may only have been promised"


def test_what_its_only_holder_takes_back_is_nowhere_and_what_another_has_too_is_not() -> None:
    for message in (
        DeltaHeard(A, DEPLOYMENT, (), (6, 7), (), 4),
        FetchFailed(DEPLOYMENT, 7, A, FailReason.NOT_HELD),
    ):
        driven = among_rack_peers(8, (0, 1, 2, 3))
        driven.tell(holdings(1, 4, 5, 6, 7), holdings(2, 4, 5, 6))
        assert driven.planner.statistics().swarms[DEPLOYMENT].one_copy
        driven.tell(message)
        assert not driven.planner.statistics().swarms[DEPLOYMENT].one_copy
        driven.tell(delta(2, 7))
        assert driven.planner.statistics().swarms[DEPLOYMENT].one_copy


def test_our_own_record_is_no_peer() -> None:
    driven = Driven()
    driven.tell(PeerSeen(view(0)))
    assert OWN not in {subscribe.peer for subscribe in of(StartSubscription, driven.tell(opened(8)))}


def test_a_paused_deployment_begins_nothing_and_serves_until_it_goes_on() -> None:
    driven = among_rack_peers(chunks=8, held=(7,))
    driven.tell(DeploymentPaused(DEPLOYMENT, True))
    begun = driven.tell(holdings(1, 0, 1, 2), after=0.1) + driven.wait(20.0)
    assert not of(StartFetch, begun)
    assert not of(ReportStall, begun), "nothing is wrong"
    [answer] = of(SendHoldings, driven.tell(SubscribeHeard(B, DEPLOYMENT)))
    assert list(answer.chunks) == [7]
    assert of(StartFetch, driven.tell(DeploymentPaused(DEPLOYMENT, False)))


def test_a_paused_seed_reads_nothing_from_storage_and_takes_back_its_stall() -> None:
    driven = seed_alone(chunks=8)
    before = reading(driven)
    driven.wait(10.0)
    driven.tell(DeploymentPaused(DEPLOYMENT, True))
    failed = driven.tell(SourceReadFailed(DEPLOYMENT, tuple(before), FailReason.SOURCE), after=0.1)
    later = failed + driven.wait(60.0)
    assert not of(StartSourceRead, later)
    assert not of(ReportStall, later)
    again = driven.tell(DeploymentPaused(DEPLOYMENT, False)) + driven.wait(1.0)
    assert of(StartSourceRead, again)


def with_copies(chunks: int, *copies: int) -> DeploymentOpened:
    return replace(opened(chunks), copies=ChunkSet.of(chunks, copies))


def asked(commands: list[Command]) -> set[int]:
    fetched = {command.chunk for command in of(StartFetch, commands)}
    return fetched | {chunk for command in of(StartSourceRead, commands) for chunk in command.chunks}


def test_a_copy_of_an_earlier_chunk_is_neither_fetched_nor_read_and_completes() -> None:
    driven = Driven()
    driven.meet(view(1, term=1), view(2))
    driven.tell(with_copies(4, 1, 3), after=4.0)
    assert asked(driven.tell(holdings(1, 0, 1, 2, 3, size=4), after=0.1)) == {0, 2}
    done = driven.tell(stored(0, A), stored(1, COPIED), stored(2, A), stored(3, COPIED), after=0.1)
    assert of(FinishModel, done)
    reads = Driven()
    reads.wait(4.0)
    first = reads.tell(with_copies(4, 1, 3)) + reads.tell(SourceProbed(DEPLOYMENT, True))
    begun = asked(first + reads.wait(2.0))
    for chunk in (0, 2):
        begun |= asked(reads.tell(stored(chunk, SOURCE), after=0.1))
    assert begun == {0, 2}


def test_copies_that_the_store_does_not_make_are_wanted_after_a_while() -> None:
    driven = Driven()
    driven.meet(view(1, term=1), view(2))
    driven.tell(with_copies(2, 1), after=4.0)
    driven.tell(holdings(1, 0, 1, size=2), after=0.1)
    driven.tell(stored(0, A), after=0.1)
    assert 1 in asked(driven.wait(10.0)), "the first has come, and the copy has not"
    lost = Driven(reads=False)
    lost.meet(view(1, term=1), view(2))
    lost.tell(with_copies(3, 1), after=4.0)
    assert not asked(lost.tell(holdings(1, 1, size=3), after=0.1) + lost.wait(10.0))
    assert 1 in asked(lost.wait(40.0)), "nobody has the first"


@pytest.mark.parametrize("opens", [(opened(4, (0, 1, 2, 3)),), ()], ids=["complete", "nothing open"])
def test_a_host_that_lacks_nothing_and_hears_nothing_looks_once_a_second(opens: tuple[DeploymentOpened, ...]) -> None:
    driven = Driven()
    driven.tell(*opens, PeerSeen(view(1)))
    driven.wait(3.0)
    assert driven.planner.next_deadline(driven.now) <= driven.now + 0.5
    driven.wait(4.0)
    due_s = driven.planner.next_deadline(driven.now)
    assert driven.now < due_s <= driven.now + 1.0
    assert due_s % 1.0 == 0.0, "when the daemon is awake anyway"
    driven.planner.plan(due_s + 0.003)
    assert driven.planner.next_deadline(due_s + 0.003) == pytest.approx(due_s + 1.0)
    driven.planner.handle(PeerSeen(view(2)), driven.now)
    assert driven.planner.next_deadline(driven.now) <= driven.now


@pytest.mark.parametrize(("own_chunks", "gives_up"), [(5, True), (20, False)])
def test_a_seed_gives_its_claim_up_where_a_rack_peer_has_the_quicker_link(own_chunks: int, gives_up: bool) -> None:
    driven = Driven()
    driven.meet(view(1), view(2))
    assert of(ClaimSeed, driven.wait(3.0))
    driven.tell(opened(600))
    commands: list[Command] = []
    for turn in range(12):
        others = tuple(range(20 * turn, 20 * (turn + 1)))
        own = (stored(300 + own_chunks * turn + at, SOURCE) for at in range(own_chunks))
        commands += driven.tell(delta(1, *others), delta(2, *others), *own, after=0.5)
    assert (ClaimSeed(0) in commands) is gives_up


def test_a_member_that_comes_moves_the_roles_of_many_deployments_in_several_ticks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gossipd.swarm.planner._UPKEEP_HOSTS", 2 * 5)
    refreshed: list[DeploymentId] = []

    def refresh(swarm: DeploymentSwarm, around: Surroundings, now: float) -> bool:
        refreshed.append(swarm.deployment)
        return refresh_roles(swarm, around, now)

    monkeypatch.setattr("gossipd.swarm.planner.refresh_roles", refresh)
    driven = Driven()
    driven.meet(*[view(number) for number in range(1, 4)])
    ids = [DeploymentId(bytes([number]) * 32) for number in range(1, 11)]
    *whole, missing = [
        replace(opened(8, held=() if one is ids[-1] else tuple(range(8))), deployment=one) for one in ids
    ]
    driven.tell(*whole, missing, *[SubscribeHeard(A, one) for one in ids[:-1]])
    assert len(refreshed) == 2, "the first time takes longest, so it is one of either sort"
    assert ids[-1] in refreshed, "what is missing here does not wait for the others"
    driven.wait(1.0, step=0.051)
    assert set(refreshed) == set(ids)
    refreshed.clear()
    driven.meet(view(9))
    assert len(refreshed) == 3, "two of ten hosts each, and the one of which chunks are missing"
    assert ids[-1] in refreshed
    driven.wait(0.3, step=0.051)
    assert set(refreshed) == set(ids)


def test_members_that_come_one_by_one_in_racks_of_their_own_move_roles_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refreshed_s: list[float] = []
    driven = Driven()

    def refresh(swarm: DeploymentSwarm, around: Surroundings, now: float) -> bool:
        refreshed_s.append(now)
        return refresh_roles(swarm, around, now)

    monkeypatch.setattr("gossipd.swarm.planner.refresh_roles", refresh)
    driven.meet(view(1), view(2))
    driven.tell(opened(8))
    driven.tell(PeerSeen(view(3)), after=0.1)
    assert refreshed_s[-1] == driven.now, "in a small cluster at once"
    for number in range(4, 254):
        driven.tell(PeerSeen(view(number, f"rack-{number}")), after=0.02)
    assert len(refreshed_s) < 50, "each costs more than all that the host does meanwhile"
    driven.wait(1.0, step=0.1)
    swarm = driven.swarm()
    assert len(swarm.roles.racks) == 251


def test_of_holdings_it_knows_its_own_and_what_neighbours_announced() -> None:
    driven = Driven()
    driven.meet(view(1), view(2))
    driven.tell(opened(8, held=(0, 3)), HoldingsHeard(A, DEPLOYMENT, ChunkSet.of(8, [1]), 4))
    driven.tell(DeltaHeard(A, DEPLOYMENT, added=(5,), dropped=(), reading=(), free_slots=4), after=1.0)
    driven.tell(PeerWantHeard(A, DEPLOYMENT, ChunkSet.of(8, [1, 5])))
    own, announced = driven.planner.holdings(DEPLOYMENT, OWN), driven.planner.holdings(DEPLOYMENT, A)
    assert own == KnownHoldings(ChunkSet.of(8, [0, 3]), ChunkSet.full(8), None)
    assert announced == KnownHoldings(ChunkSet.of(8, [1, 5]), ChunkSet.of(8, [1, 5]), driven.now)
    assert driven.planner.holdings(DEPLOYMENT, B) is None
    assert driven.planner.holdings(OTHER, OWN) is None
    driven.tell(PeerLost(A))
    assert driven.planner.holdings(DEPLOYMENT, A) is None


@pytest.mark.parametrize("goes", [PeerLost(node(1)), PeerReachable(node(1), False)])
def test_what_a_peer_says_after_it_is_lost_makes_it_no_holder(goes: PeerLost | PeerReachable) -> None:
    """Its message was under way. Nothing would take it back, and the chunk would neither be fetched nor be read."""
    driven = Driven(reads=False)
    driven.meet(view(1), view(2, "b"))
    driven.wait(5.0)
    driven.tell(opened(4))
    driven.tell(*[HoldingsHeard(node(number), DEPLOYMENT, ChunkSet(4), 4) for number in (1, 2)], after=0.25)
    driven.tell(goes, DeltaHeard(node(1), DEPLOYMENT, (0,), (), (), 4), after=0.25)
    heard: list[object] = [DeltaHeard(node(2), DEPLOYMENT, (0, 1, 2, 3), (), (), 4)]
    begun_s, plans = driven.now, 0
    while driven.now < begun_s + 20.0:
        out = driven.tell(*heard, after=max(0.001, driven.planner.next_deadline(driven.now) - driven.now))
        plans += 1
        heard = [ChunkStored(DEPLOYMENT, one.chunk, one.peer, CHUNK_BYTES, 0.1) for one in of(StartFetch, out)]
        asked = [one.peer for one in of(StartSubscription, out)]
        heard += [HoldingsHeard(peer, DEPLOYMENT, ChunkSet.full(4), 4) for peer in asked if peer == node(2)]
    assert not driven.swarm().replica.missing_count
    assert plans < 10 * 20


def test_a_model_is_finished_once_though_an_unwanted_chunk_comes_later() -> None:
    driven = Driven()
    driven.wait(4.0)
    commands = driven.tell(replace(opened(4, held=(0, 1)), wanted=ChunkSet.of(4, (0, 1))))
    commands += driven.tell(ChunkStored(DEPLOYMENT, 2, SOURCE, CHUNK_BYTES, 0.1), after=1.0)
    assert len(of(FinishModel, commands)) == 1
