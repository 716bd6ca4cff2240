"""A member's budget is its own, comes back, and is kept for so many."""

from __future__ import annotations

from membership.shares import Shares


def test_a_share_is_used_up_and_comes_back_and_is_nobody_elses() -> None:
    shares = Shares(burst=3.0, per_s=1.0)
    assert [shares.take(b"a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert shares.take(b"b", 0.0, 3)
    assert not shares.take(b"a", 0.9)
    assert shares.take(b"a", 1.0)
    assert not shares.take(b"a", 1000.0, 4), "never more than the burst"
    assert shares.take(b"a", 1000.0, 3), "a refusal costs nothing"


def test_the_table_is_bounded() -> None:
    shares = Shares(burst=1.0, per_s=0.0)
    for number in range(10_000):
        assert shares.take(number.to_bytes(8), 0.0)
    assert len(shares._left) == 4096
