"""No chunk for three seconds has a reason, causes at home first."""

from __future__ import annotations

import pytest

from gossipd.core.events import FailReason, StallReason
from gossipd.core.stall import StallWatch


def judge(watch: StallWatch, now: float, **overrides: bool) -> StallReason | None:
    facts = {"alone": False, "holders": False, "readers": True} | overrides
    return watch.judge(progress_s=0.0, now=now, **facts)


def test_nothing_is_said_before_three_seconds() -> None:
    assert judge(StallWatch(3.0), 2.9, holders=True) is None


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"holders": True}, StallReason.ALL_BUSY),
        ({"readers": False}, StallReason.STORAGE),
        ({"alone": True}, StallReason.MEMBERSHIP),
        ({}, StallReason.NO_HOLDER),
    ],
)
def test_each_cause_has_its_word(facts: dict[str, bool], reason: StallReason) -> None:
    assert judge(StallWatch(3.0), 3.0, **facts) is reason


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (FailReason.DISK, StallReason.DISK),
        (FailReason.CORRUPT, StallReason.VERIFICATION),
        (FailReason.SOURCE, StallReason.STORAGE),
    ],
)
def test_what_failed_lately_explains_the_stall(failure: FailReason, reason: StallReason) -> None:
    watch = StallWatch(3.0)
    watch.failed(failure, 2.0)
    assert judge(watch, 4.0) is reason


def test_a_full_disk_comes_before_busy_peers() -> None:
    watch = StallWatch(3.0)
    watch.failed(FailReason.DISK, 2.0)
    assert judge(watch, 4.0, holders=True) is StallReason.DISK
