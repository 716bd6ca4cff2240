"""Which versions of a name live: the last ones, multiples of a step, and whatever is above the lowest of the last."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipd.core.versions import step_version
from gossipd.manifest.annotations import Retention
from gossipd.manifest.retention import live_rule


def live(versions: list[int], keep: Retention) -> list[int]:
    is_live = live_rule(versions, keep)
    return [version for version in versions if is_live(version)]


def test_the_last_ones_and_multiples_of_a_step_live() -> None:
    steps = list(range(100, 1100, 100))
    assert live(steps, Retention(last=2)) == [900, 1000]
    assert live(steps, Retention(last=2, every=400)) == [400, 800, 900, 1000]


def test_multiples_count_in_steps_of_every_attempt() -> None:
    versions = [100, 200, 300, step_version(200, 1), step_version(300, 1), step_version(400, 1)]
    assert live(versions, Retention(last=1, every=200)) == [200, step_version(200, 1), step_version(400, 1)]


@pytest.mark.parametrize("versions", [[], [7], [7, 9]])
def test_no_version_goes_before_there_are_enough(versions: list[int]) -> None:
    assert live(versions, Retention(last=3)) == versions


@given(st.sets(st.integers(0, 2**53 - 1), min_size=1, max_size=40), st.integers(1, 50), st.integers(0, 5))
def test_the_highest_lives_and_a_new_one_ends_at_most_one_of_the_last(
    versions: set[int], last: int, every: int
) -> None:
    keep = Retention(last=last, every=every)
    before = live(sorted(versions), keep)
    assert max(versions) in before
    assert len(live(sorted(versions), Retention(last=last))) == min(last, len(versions))
    after = live(sorted({*versions, max(versions) + 1}), keep)
    assert len(set(before) - set(after)) <= 1
