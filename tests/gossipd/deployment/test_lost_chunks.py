"""Which lost chunks are told, by values."""

from __future__ import annotations

from gossipd.deployment.lost_chunks import TOLD_MAX, LostChunks


def test_no_more_than_some_are_told_until_the_model_is_whole() -> None:
    lost = LostChunks()
    told = [lost.lost(chunk) for chunk in range(TOLD_MAX + 5)]
    assert told == [True] * TOLD_MAX + [False] * 5
    assert lost.is_back(TOLD_MAX - 1) and not lost.is_back(TOLD_MAX - 1), "once"
    assert not lost.is_back(TOLD_MAX + 1)
    assert not lost.lost(3), "as many have been told already"
    assert lost.all_are_back() == 6
    assert lost.lost(7) and lost.is_back(7) and lost.all_are_back() == 0
