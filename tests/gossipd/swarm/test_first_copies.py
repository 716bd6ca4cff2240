"""Which requests an origin refuses while others of its chunks have never left."""

from __future__ import annotations

from random import Random

from gossipd.core.ids import DeploymentId
from gossipd.swarm.first_copies import DEPLOYMENTS_MAX, PATIENCE_S, FirstCopies
from tests.gossipd.swarm.planning import DEPLOYMENT


def watching(*begun: int, chunks: int = 10) -> FirstCopies:
    """The origin of ten chunks, of which these were asked for at second 0 and are under way."""
    copies = FirstCopies()
    copies.watch(DEPLOYMENT, chunks)
    assert all(copies.may_begin(DEPLOYMENT, chunk, 0.0) for chunk in begun)
    return copies


def send(copies: FirstCopies, chunk: int) -> None:
    copies.sent(DEPLOYMENT, chunk)
    copies.ended(DEPLOYMENT, chunk)


def test_a_chunk_leaves_once_while_others_have_never_left() -> None:
    copies = watching(0, 1, 2)
    assert not copies.may_begin(DEPLOYMENT, 0, 1.0), "under way"
    send(copies, 0)
    assert not copies.may_begin(DEPLOYMENT, 0, 1.0), "gone"
    assert copies.may_begin(DEPLOYMENT, 3, 1.0)


def test_second_copies_leave_where_nobody_asks_for_first_ones() -> None:
    copies = watching(0, 1)
    send(copies, 0)
    assert copies.may_begin(DEPLOYMENT, 0, 1.0), "one under way may be a slow taker's"
    copies.ended(DEPLOYMENT, 0)
    send(copies, 1)
    assert copies.may_begin(DEPLOYMENT, 1, 1.0)


def test_second_copies_leave_when_every_chunk_has_left() -> None:
    copies = watching(*range(10))
    assert not copies.may_begin(DEPLOYMENT, 0, 1.0)
    for chunk in range(10):
        send(copies, chunk)
    assert all(copies.may_begin(DEPLOYMENT, chunk, 1.0) for chunk in range(10) for _ in range(2))


def test_a_chunk_that_was_cut_off_leaves_with_the_next_request() -> None:
    copies = watching(0, 1, 2)
    copies.ended(DEPLOYMENT, 0)
    assert copies.may_begin(DEPLOYMENT, 0, 1.0)
    assert not copies.may_begin(DEPLOYMENT, 0, 1.0)


def test_a_chunk_whose_taker_is_gone_with_it_leaves_again_after_a_time() -> None:
    copies = watching(0, 1, 2)
    send(copies, 0)
    assert not copies.may_begin(DEPLOYMENT, 0, PATIENCE_S - 0.1)
    assert copies.may_begin(DEPLOYMENT, 0, PATIENCE_S)


def test_chunks_and_deployments_that_are_not_watched_may_begin() -> None:
    copies = watching(0, 1, 2)
    other = DeploymentId(b"o" * 32)
    for _ in range(2):
        assert copies.may_begin(DEPLOYMENT, 10, 1.0), "it has ten; their reader says so"
        assert copies.may_begin(other, 0, 1.0)
    copies.ended(other, 0)
    copies.ended(DEPLOYMENT, 10)


def test_only_the_latest_deployments_are_remembered() -> None:
    copies = watching(0, 1, 2)
    for number in range(DEPLOYMENTS_MAX):
        copies.watch(DeploymentId(bytes([number]) * 32), 10)
    assert copies.may_begin(DEPLOYMENT, 0, 1.0)


def test_in_any_order_of_requests_nothing_waits_for_what_nobody_asks() -> None:
    """Takers ask at random, and hang up at random: whenever nothing is under way, every chunk may begin."""
    for seed in range(200):
        rng, copies, under_way, now = Random(seed), watching(chunks=6), list[int](), 0.0
        for _ in range(200):
            now += rng.random()
            if under_way and rng.random() < 0.5:
                chunk = under_way.pop(rng.randrange(len(under_way)))
                if rng.random() < 0.7:
                    copies.sent(DEPLOYMENT, chunk)
                copies.ended(DEPLOYMENT, chunk)
            elif copies.may_begin(DEPLOYMENT, chunk := rng.randrange(6), now):
                under_way.append(chunk)
            else:
                assert len(set(under_way)) >= 2 or under_way.count(under_way[0]) >= 2, "refused though nothing goes"
