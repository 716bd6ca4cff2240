"""When a second holder is asked, and when one of two fetches is stopped; see ``test_planner`` for which holder."""

from __future__ import annotations

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import (
    CancelFetch,
    ChunkArriving,
    ChunkEnding,
    ChunkStored,
    Command,
    HoldingsHeard,
    StartFetch,
)
from gossipd.swarm.settings import PlannerSettings
from tests.gossipd.swarm.planning import CHUNK_BYTES, DEPLOYMENT, SETTINGS, Driven, node, opened, view

A, B = node(1), node(2)
USUAL_S = 0.4


def _last_chunk_asked(usual_s: float = USUAL_S, settings: PlannerSettings = SETTINGS) -> Driven:
    """Of eight chunks all but the last are here; A is asked for it, and B has it too."""
    driven = Driven(settings=settings)
    driven.meet(view(1, term=1), view(2))
    driven.tell(opened(8, (0, 1, 2, 3)), after=4.0)
    driven.tell(
        HoldingsHeard(A, DEPLOYMENT, ChunkSet.of(8, (4, 5, 6, 7)), 4),
        HoldingsHeard(B, DEPLOYMENT, ChunkSet.of(8, ()), 4),
    )
    for chunk in (4, 5, 6):
        driven.tell(ChunkStored(DEPLOYMENT, chunk, A, CHUNK_BYTES, usual_s), after=0.01)
    driven.tell(HoldingsHeard(B, DEPLOYMENT, ChunkSet.of(8, (7,)), 4))
    return driven


def _seconds_to_hedge(driven: Driven, step: float = 0.05, most_s: float = 10.0) -> float:
    begun = driven.now
    while driven.now < begun + most_s:
        if _of(StartFetch, driven.tell(after=step)):
            return driven.now - begun
    return most_s


def _of(kind: type, commands: list[Command]) -> list[Command]:
    return [command for command in commands if isinstance(command, kind)]


def test_a_fetch_that_brings_nothing_is_asked_of_another_holder_first() -> None:
    silent = _seconds_to_hedge(_last_chunk_asked())
    moving, ending = _last_chunk_asked(), _last_chunk_asked()
    moving.tell(ChunkArriving(DEPLOYMENT, 7, A))
    ending.tell(ChunkArriving(DEPLOYMENT, 7, A), ChunkEnding(DEPLOYMENT, 7, A))
    assert 1.5 * USUAL_S <= silent < _seconds_to_hedge(moving) < _seconds_to_hedge(ending) < 10.0


def test_small_chunks_are_not_asked_for_twice_within_a_moment() -> None:
    assert _seconds_to_hedge(_last_chunk_asked(0.005)) >= SETTINGS.hedge_s_min


def test_a_host_that_acts_late_waits_longer_by_as_much() -> None:
    driven = _last_chunk_asked(0.005)
    assert not _of(StartFetch, driven.tell(after=0.9)), "the whole machine stood still, and so did the fetch's events"
    assert not _of(StartFetch, driven.tell(after=0.05))


def test_when_most_of_one_copy_is_here_the_other_is_stopped() -> None:
    driven = _last_chunk_asked()
    _seconds_to_hedge(driven)
    (cancel,) = _of(CancelFetch, driven.tell(ChunkEnding(DEPLOYMENT, 7, B)))
    assert cancel == CancelFetch(DEPLOYMENT, 7, A)
    assert not _of(CancelFetch, driven.tell(ChunkEnding(DEPLOYMENT, 7, A))), "both are nearly here: the first one wins"
