"""Who reads when the elected source readers do not: one host after the other, behind each that is heard to read."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import (
    ChunkLost,
    ChunkStored,
    Command,
    DeltaHeard,
    DeploymentPaused,
    FailReason,
    HoldingsHeard,
    PeerWantHeard,
    ProbeSource,
    SourceProbed,
    SourceReadFailed,
    StartFetch,
    StartSourceRead,
    StartSubscription,
)
from gossipd.core.ids import SOURCE, DeploymentId, Supplier
from gossipd.core.targets import Targets
from gossipd.swarm.rendezvous import scores
from tests.gossipd.swarm.planning import CHUNK_BYTES, DEPLOYMENT, OWN, SETTINGS, Driven, node, of, opened, view

SEED = node(1)
FIRST_S = 2 * SETTINGS.read_takeover_s  # what the first stand-in waits
SETTLED_S = SETTINGS.seeds_stable_s


def beside_a_silent_seed(*others: int, chunks: int = 40, settled_s: float = 5.0, reads: bool = True) -> Driven:
    """A host that is no seed; the seed of its rack is 1, takes no part in what is open, and is the only one."""
    driven = Driven(reads=reads)
    driven.meet(view(1, term=5), *[view(number, f"rack {number}") for number in others])
    driven.tell(after=settled_s)
    driven.tell(opened(chunks))
    driven.tell(*[HoldingsHeard(node(number), DEPLOYMENT, ChunkSet(chunks), 4) for number in others])
    return driven


def stored(chunk: int, supplier: Supplier) -> ChunkStored:
    return ChunkStored(DEPLOYMENT, chunk, supplier, CHUNK_BYTES, 0.1)


def reads(commands: list[Command]) -> set[int]:
    return {chunk for one in commands if isinstance(one, StartSourceRead) for chunk in one.chunks}


def first_read_s(driven: Driven, most_s: float = 300.0) -> float:
    """When this host begins to read, its probe answered at once; infinite when it does not."""
    begun = driven.now
    while driven.now < begun + most_s:
        commands = driven.tell(after=0.25)
        if any(isinstance(one, ProbeSource) for one in commands):
            commands += driven.tell(SourceProbed(DEPLOYMENT, True))
        if reads(commands):
            return driven.now - begun
    return float("inf")


def before_own(count: int, deployment: DeploymentId = DEPLOYMENT) -> list[int]:
    """The first hosts that stand in before this one."""
    own = scores(OWN, deployment, 1)
    return [number for number in range(2, 200) if scores(node(number), deployment, 1) > own][:count]


def after_own(count: int) -> list[int]:
    own = scores(OWN, DEPLOYMENT, 1)
    return [number for number in range(2, 200) if scores(node(number), DEPLOYMENT, 1) < own][:count]


def test_the_first_host_of_the_order_reads_what_a_silent_seed_does_not() -> None:
    driven = beside_a_silent_seed(*after_own(3))
    assert FIRST_S <= first_read_s(driven) <= FIRST_S + 3.0


def test_each_next_host_waits_twice_as_long_as_the_one_before() -> None:
    waits = [first_read_s(beside_a_silent_seed(*before_own(rank))) for rank in range(5)]
    for rank, wait_s in enumerate(waits):
        due_s = SETTINGS.read_takeover_s * (1 + 2**rank)
        assert due_s <= wait_s <= due_s + 3.0, (rank, waits)


def test_a_stand_in_reads_the_whole_model_without_waiting_again() -> None:
    driven = beside_a_silent_seed(*after_own(2))
    first_read_s(driven)
    swarm = driven.swarm()
    begun = driven.now
    while swarm.replica.missing_count and driven.now < begun + FIRST_S:
        coming = [chunk for chunk in swarm.replica.flights if swarm.replica.reads_now(chunk)]
        driven.tell(*[stored(chunk, SOURCE) for chunk in coming], after=0.1)
    assert not swarm.replica.missing_count, "each of the next was the silent seed's to read"


def test_a_seed_that_is_heard_to_read_goes_before_the_stand_in() -> None:
    driven = beside_a_silent_seed(*after_own(2), chunks=400)
    first_read_s(driven)
    swarm = driven.swarm()
    assert {line[0] for line in swarm.reader._lines} == {OWN}
    driven.tell(DeltaHeard(SEED, DEPLOYMENT, (), (), (399,), 4))
    driven.wait(1.0)
    assert set(swarm.reader._lines) == {(SEED, OWN)}


def test_of_two_stand_ins_the_earlier_goes_first_in_both_views() -> None:
    (other,) = before_own(1)
    driven = beside_a_silent_seed(other)
    first_read_s(driven)
    driven.tell(DeltaHeard(node(other), DEPLOYMENT, (), (), (39,), 4))
    driven.wait(1.0)
    swarm = driven.swarm()
    assert set(swarm.reader._lines) == {(node(other), OWN)}
    (later,) = after_own(1)
    driven = beside_a_silent_seed(later)
    first_read_s(driven)
    driven.tell(DeltaHeard(node(later), DEPLOYMENT, (), (), (39,), 4))
    driven.wait(1.0)
    swarm = driven.swarm()
    assert set(swarm.reader._lines) == {(OWN,)}


def test_nobody_stands_in_while_chunks_leave_storage() -> None:
    driven = beside_a_silent_seed(*after_own(2))
    for chunk in range(10):
        driven.tell(DeltaHeard(SEED, DEPLOYMENT, (chunk,), (), (chunk + 1,), 4))
        commands = driven.tell(stored(chunk, SEED), after=0.1) + driven.wait(4.0)
        assert not reads(commands)


def test_a_read_that_is_claimed_is_waited_for_four_times_as_long() -> None:
    driven = beside_a_silent_seed(*after_own(2))
    driven.tell(DeltaHeard(SEED, DEPLOYMENT, (), (), (1, 2), 4))
    assert first_read_s(driven) >= 2 * FIRST_S


@pytest.mark.parametrize("why", ["it may not read storage", "it is no target"])
def test_a_host_that_could_not_read_never_stands_in(why: str) -> None:
    driven = beside_a_silent_seed(2, reads=why != "it may not read storage")
    if why == "it is no target":
        driven = Driven()
        driven.meet(view(1, "b", term=5), view(2, "b"))
        driven.tell(after=5.0)
        driven.tell(replace(opened(40), targets=Targets(racks=("b",))))
    assert first_read_s(driven) == float("inf")


def test_the_wait_begins_again_when_a_pause_ends() -> None:
    driven = beside_a_silent_seed(*after_own(2))
    driven.tell(DeploymentPaused(DEPLOYMENT, is_paused=True))
    assert first_read_s(driven, 60.0) == float("inf")
    driven.tell(DeploymentPaused(DEPLOYMENT, is_paused=False))
    assert first_read_s(driven) >= FIRST_S


def test_where_storage_fails_for_all_few_hosts_ask_it() -> None:
    asked = 0
    for rank in range(12):
        driven = beside_a_silent_seed(*before_own(rank))
        failed = SourceReadFailed(DEPLOYMENT, (), FailReason.SOURCE)
        commands = driven.wait(600.0, step=1.0)
        asked += any(isinstance(one, ProbeSource) for one in [*commands, *driven.tell(failed)])
    assert 6 <= asked <= 9, "of twelve in ten minutes"


def test_a_member_that_changes_its_claim_for_ever_delays_reads_by_a_bound() -> None:
    driven = Driven()
    driven.meet(view(1, "b", term=5))
    driven.tell(opened(40))  # before any claims have been the same for a while
    begun, term, read_s = driven.now, 5, float("inf")
    while driven.now < begun + 120.0 and read_s == float("inf"):
        term = 0 if term else 5
        commands = driven.meet(view(1, "b", term=term))
        commands += driven.tell(SourceProbed(DEPLOYMENT, True)) + driven.wait(0.5)
        if reads(commands):
            read_s = driven.now - begun
    assert 9 * SETTLED_S <= read_s <= 12 * SETTLED_S


@pytest.mark.parametrize("is_told_first", [True, False])
def test_a_host_stands_in_for_a_seed_that_wants_a_part_and_reads_nothing(is_told_first: bool) -> None:
    """This host reads what the seed does not want, and is a source reader therefore; or was a stand-in before."""
    driven = beside_a_silent_seed()
    want = PeerWantHeard(SEED, DEPLOYMENT, ChunkSet.of(40, range(4)))
    heard: list[object] = [want] if is_told_first else []
    has_lost, end_s = is_told_first, driven.now + 120.0
    while driven.now < end_s and (driven.swarm().replica.missing_count or not has_lost):
        if not driven.swarm().replica.missing_count:
            has_lost, heard = True, [want, ChunkLost(DEPLOYMENT, 1)]
        out, heard = driven.tell(*heard, after=0.25), []
        heard += [SourceProbed(DEPLOYMENT, True) for _ in of(ProbeSource, out)]
        heard += [HoldingsHeard(SEED, DEPLOYMENT, ChunkSet(40), 4) for _ in of(StartSubscription, out)]
        heard += [stored(chunk, SOURCE) for chunk in sorted(reads(out))]
    assert not driven.swarm().replica.missing_count


@pytest.mark.parametrize("others", [0, 3, 21])
def test_hosts_that_do_not_want_what_is_missing_are_not_waited_for(others: int) -> None:
    """They stand before this host in the order of stand-ins, and would never read it: the wait doubles for each."""
    own, part = scores(OWN, DEPLOYMENT, 1), ChunkSet.of(40, range(20))
    before = [number for number in range(2, 400) if scores(node(number), DEPLOYMENT, 1) > own][:others]
    driven = Driven()
    driven.meet(view(1, term=5), *[view(number, f"r{number % 4}") for number in before])
    driven.tell(after=5.0)
    driven.tell(opened(40))
    driven.tell(*[PeerWantHeard(node(number), DEPLOYMENT, part) for number in before])
    heard: list[object] = []
    end_s = driven.now + 3 * FIRST_S + 5.0
    while driven.now < end_s and driven.swarm().replica.missing_count:
        out, heard = driven.tell(*heard, after=0.25), []
        heard += [SourceProbed(DEPLOYMENT, True) for _ in of(ProbeSource, out)]
        for asked in of(StartSubscription, out):
            held = ChunkSet(40) if asked.peer == SEED else part
            heard.append(HoldingsHeard(asked.peer, DEPLOYMENT, held, 4))
        heard += [stored(fetch.chunk, fetch.peer) for fetch in of(StartFetch, out)]
        heard += [stored(chunk, SOURCE) for chunk in sorted(reads(out))]
    assert not driven.swarm().replica.missing_count
