"""Our copy: what is held and in flight, and the states that follow."""

from __future__ import annotations

from gossipd.core.chunkset import ChunkSet
from gossipd.core.ids import SOURCE
from gossipd.swarm.local_replica import LocalReplica, ReplicaState
from tests.gossipd.swarm.planning import DEPLOYMENT, node, shape


def replica(*held: int) -> LocalReplica:
    return LocalReplica(DEPLOYMENT, shape(10), ChunkSet.of(10, held), now=0.0)


def test_a_hedged_chunk_counts_once_and_the_loser_as_a_duplicate() -> None:
    copy = replica()
    copy.start(3, node(1), 0.0)
    copy.start(3, node(2), 1.0)
    assert copy.fetches == 2
    assert copy.land(3, node(1))
    assert copy.store(3, 2.0)
    assert copy.land(3, node(2))
    assert not copy.store(3, 2.5)
    assert (copy.held_count, copy.fetches, copy.duplicate_chunks, copy.flights) == (1, 0, 1, {})


def test_what_was_not_started_does_not_land() -> None:
    copy = replica()
    copy.start(3, SOURCE, 0.0)
    assert not copy.land(3, node(1))
    assert copy.reads == 1
    assert copy.land(3, SOURCE)
    assert copy.reads == 0


def test_a_lost_chunk_is_missing_again_and_reopens_a_sealed_copy() -> None:
    copy = replica(*range(10))
    states = [copy.state]
    assert copy.lose(4)
    states.append(copy.state)
    assert states == [ReplicaState.SEALING, ReplicaState.FETCHING]
    assert list(copy.missing()) == [4]
    assert not copy.lose(4)


def test_the_pace_is_that_of_the_last_chunks_that_came() -> None:
    copy = replica()
    assert copy.mean_chunk_s(6.0) == 6.0, "none has come"
    for chunk in range(8):
        copy.store(chunk, 10.0 + chunk)
    assert copy.mean_chunk_s(18.0) == 1.0
    copy.store(8, 26.0)
    assert copy.mean_chunk_s(27.0) == 2.0
