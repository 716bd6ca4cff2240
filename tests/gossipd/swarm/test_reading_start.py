"""A host that resumes a deployment hears the other source readers before it reads, and does not wait for ever."""

from __future__ import annotations

import pytest

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import ChunkStored, HoldingsHeard, PeerReachable, SourceProbed, StartSourceRead
from gossipd.core.ids import SOURCE
from tests.gossipd.swarm.planning import CHUNK_BYTES, DEPLOYMENT, SETTINGS, Driven, node, of, opened, view

SIZE = 64
HELD = tuple(range(16))
LEFT = {*range(48, SIZE)}
PROBED = SourceProbed(DEPLOYMENT, True)


def holdings(number: int, *chunks: int) -> HoldingsHeard:
    return HoldingsHeard(node(number), DEPLOYMENT, ChunkSet.of(SIZE, chunks), 4)


def restarted(held: tuple[int, ...] = HELD) -> Driven:
    """A seed beside those of two other racks, which may read its source and has just opened a deployment."""
    driven = Driven()
    driven.meet(view(1), view(8, "b", term=1), view(9, "c", term=1))
    driven.wait(8.0)
    assert len(driven.planner.statistics().seeds) == 3
    driven.tell(opened(SIZE, held))
    return driven


def read(driven: Driven, *events: object, seconds: float = 0.5) -> set[int]:
    """What is begun to be read when these events come, and in the seconds after."""
    commands = [*driven.tell(*events), *driven.wait(seconds, 0.1)]
    return {chunk for one in of(StartSourceRead, commands) for chunk in one.chunks}


def test_who_resumes_reads_nothing_that_others_have_read_meanwhile() -> None:
    driven = restarted()
    assert not read(driven, PROBED), "nothing has been heard"
    assert not read(driven, holdings(1, *range(16, 32)), holdings(8, *range(16, 32))), "not the second reader"
    found = read(driven, holdings(9, *range(32, 48)))
    assert found and found <= LEFT


@pytest.mark.parametrize("held", [HELD, (0,)])
def test_a_reader_that_says_nothing_is_waited_for_until_others_would_take_over(held: tuple[int, ...]) -> None:
    driven = restarted(held)
    assert not read(driven, PROBED, holdings(8, *range(16, 32)), seconds=SETTINGS.read_takeover_s - 0.5)
    assert read(driven, seconds=1.5)


def test_a_reader_that_is_out_of_reach_is_not_waited_for() -> None:
    driven = restarted()
    assert not read(driven, PROBED, holdings(8, *range(16, 32)))
    assert read(driven, PeerReachable(node(9), False))


def test_who_holds_nothing_begins_when_its_probe_has_succeeded() -> None:
    driven = restarted(())
    assert not read(driven)
    assert read(driven, PROBED)


def test_who_has_heard_all_readers_once_waits_for_no_other() -> None:
    driven = restarted()
    begun = read(driven, PROBED, holdings(8), holdings(9))
    driven.meet(view(10, "d", term=1))
    assert begun and read(driven, *(ChunkStored(DEPLOYMENT, chunk, SOURCE, CHUNK_BYTES, 0.1) for chunk in begun))
