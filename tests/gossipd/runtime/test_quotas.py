"""Each writer has its own bucket, and what it has spent comes back with time."""

from __future__ import annotations

from gossipd.runtime.quotas import WRITERS_MAX, Quotas


def test_a_writer_over_its_bound_takes_nothing_from_another() -> None:
    quotas = Quotas[str](burst=3, per_s=1)
    assert [quotas.take("a", 0.0) for _ in range(5)] == [True, True, True, False, False]
    assert quotas.take("b", 0.0)
    assert quotas.refused == 2


def test_what_was_spent_comes_back_up_to_the_burst() -> None:
    quotas = Quotas[str](burst=4, per_s=2)
    assert quotas.take("a", 0.0, 4)
    assert not quotas.take("a", 1.0, 3)
    assert quotas.take("a", 1.0, 2)
    assert not quotas.take("a", 100.0, 5)
    assert quotas.take("a", 100.0, 4)


def test_writers_without_end_are_forgotten_from_the_quietest_on() -> None:
    quotas = Quotas[int](burst=1, per_s=0)
    for writer in range(3 * WRITERS_MAX):
        assert quotas.take(writer, 0.0)
    assert len(quotas._left) == WRITERS_MAX
    assert not quotas.take(3 * WRITERS_MAX - 1, 0.0)


def test_a_writer_whose_amount_came_back_takes_no_room() -> None:
    quotas = Quotas[int](burst=4, per_s=1)
    for writer in range(100):
        assert quotas.take(writer, float(writer), 2)
    assert len(quotas._left) <= 3
    assert not quotas.has(99, 99.0, 3), "what was spent a moment ago is known"
    assert quotas.take(0, 99.0, 4)
