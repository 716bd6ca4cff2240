"""Which versions make room, by values."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from gossipd.core.ids import DeploymentId
from gossipd.deployment.eviction_plan import EvictionCandidate, keepers, plan_eviction
from membership.member import NodeId


def one(label: str, last_used_s: float, *, size: int = 10, current: bool = False, kept: str = "") -> EvictionCandidate:
    return EvictionCandidate(DeploymentId(label.encode().ljust(32)), label, size, last_used_s, current, kept)


ALL = [
    one("a@2", 50, current=True), one("a@1", 40), one("b@1", 10, current=True), one("c@7", 20),
    one("d@1", 5, kept="pinned"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("used", "target", "is_prune", "expected"),
    [
        (90, 90, False, []),
        (91, 90, False, ["c@7"]),
        (100, 85, False, ["c@7", "a@1"]),
        (100, 75, False, ["c@7", "a@1", "b@1"]),
        (100, 0, False, ["c@7", "a@1", "b@1", "a@2"]),
        (100, None, False, []),
        (100, None, True, ["c@7", "a@1"]),
        (10, 90, True, ["c@7", "a@1"]),
        (100, 75, True, ["c@7", "a@1", "b@1"]),
    ],
)
def test_the_superseded_go_first_and_then_the_longest_unused(
    used: int, target: int | None, is_prune: bool, expected: list[str]
) -> None:
    plan = plan_eviction(ALL, used_bytes=used, target_bytes=target, is_prune=is_prune)
    assert [each.label for each in plan.chosen] == expected
    assert [each.label for each in plan.kept] == ["d@1"]


def test_nothing_kept_is_chosen_and_no_more_than_needed_whatever_the_order() -> None:
    rng = Random(39)
    for _ in range(300):
        candidates = [
            one(f"m@{number}", rng.randrange(5), size=rng.randrange(1, 30), current=rng.random() < 0.4,
                kept=rng.choice(["", "", "held", "open", "deploying"]))
            for number in range(rng.randrange(8))
        ]  # fmt: skip
        used, target = rng.randrange(200), rng.randrange(200)
        plan = plan_eviction(candidates, used_bytes=used, target_bytes=target)
        rng.shuffle(candidates)
        assert plan_eviction(candidates, used_bytes=used, target_bytes=target) == plan
        assert not [each for each in plan.chosen if each.kept]
        freed = sum(each.byte_count for each in plan.chosen)
        if used - freed > target:
            assert len(plan.chosen) + len(plan.kept) == len(candidates), "all that nothing keeps"
        elif plan.chosen:
            assert used - freed + plan.chosen[-1].byte_count > target


def test_the_keepers_of_a_version_stay_the_same_when_others_go() -> None:
    rng = Random(4)
    for _ in range(200):
        deployment = DeploymentId(rng.randbytes(32))
        holders = [NodeId(rng.randbytes(16)) for _ in range(rng.randrange(1, 9))]
        first = keepers(deployment, holders, 2)
        assert len(first) == min(2, len(holders))
        gone = set(rng.sample(holders, len(holders) // 2)) - set(first)
        assert keepers(deployment, [one for one in holders if one not in gone], 2) == first
        assert keepers(deployment, holders, 0) == []


def test_keepers_of_many_versions_are_spread_over_the_rack() -> None:
    rng = Random(5)
    holders = [NodeId(rng.randbytes(16)) for _ in range(10)]
    counts = Counter(node for _ in range(500) for node in keepers(DeploymentId(rng.randbytes(32)), holders, 2))
    assert min(counts.values()) > 60, "a hundred each on average"
