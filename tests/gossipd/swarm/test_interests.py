"""Who wants what, as classes of chunks that all hosts compute alike."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gossipd.core.chunkset import ChunkSet
from gossipd.swarm.interests import CLASSES_MAX, Interests
from tests.gossipd.swarm.planning import node

SIZE = 40


def test_hosts_that_tell_nothing_want_everything() -> None:
    interests = Interests(SIZE, (1 << SIZE) - 1)
    told = []
    for chunks in (ChunkSet.full(SIZE), ChunkSet.of(SIZE, [1, 2]), ChunkSet.full(SIZE)):
        interests.heard(node(1), chunks)
        told.append((interests.is_uniform, interests.version))
    assert told == [(True, 0), (False, 1), (True, 2)]


def test_a_want_of_another_size_is_not_believed() -> None:
    interests = Interests(SIZE, (1 << SIZE) - 1)
    interests.heard(node(1), ChunkSet(SIZE + 1, 1))
    assert interests.is_uniform and interests.version == 0


def test_nobody_relies_on_a_host_whose_want_cannot_be_told() -> None:
    interests = Interests(SIZE, 0b1111)
    interests.heard(node(1), ChunkSet(SIZE))
    assert interests.classes() == [0b1111] and interests.without(0b1111) == {node(1)}


@given(st.integers(1, (1 << SIZE) - 1), st.lists(st.integers(0, (1 << SIZE) - 1), max_size=6))
def test_classes_part_the_own_want_and_each_host_wants_all_or_none_of_one(own: int, others: list[int]) -> None:
    interests = Interests(SIZE, own)
    for number, bits in enumerate(others, start=1):
        interests.heard(node(number), ChunkSet(SIZE, bits))
    classes = interests.classes()
    assert sum(classes) == own and sum(one.bit_count() for one in classes) == own.bit_count()
    for one in classes:
        for bits in others:
            assert one & bits in (0, one)


def test_classes_are_bounded_and_still_cover_the_want() -> None:
    interests = Interests(SIZE, (1 << SIZE) - 1)
    for number in range(SIZE):
        interests.heard(node(number), ChunkSet(SIZE, (1 << SIZE) - (1 << number)))
    for number in range(200):
        interests.heard(node(number), ChunkSet(SIZE, number * 0x5F3759DF % (1 << SIZE)))
    assert len(interests.classes()) <= 2 * CLASSES_MAX and sum(interests.classes()) == (1 << SIZE) - 1
