"""Who deployed a model, by values: what each piece of evidence changes, and that their order does not matter."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import permutations
from typing import TypeAlias

import pytest

from gossipd.deployment.deployer import (
    CONTESTED_HEAD,
    HEAD_BYTES,
    Deployer,
    Evidence,
    after_order,
    after_told,
    after_word,
)

A, B = b"a" * 32, b"b" * 32
HEAD_A, HEAD_B = A[:HEAD_BYTES], B[:HEAD_BYTES]


Step: TypeAlias = Callable[[Deployer | None], Deployer]


def after_all(steps: Iterable[Step]) -> Deployer:
    known: Deployer | None = None
    for step in steps:
        known = step(known)
    assert known is not None
    return known


def test_a_first_word_is_known_first_hand_and_told() -> None:
    known = after_word(None, A, 1)
    assert known == Deployer(A, Evidence.FIRST_HAND)
    assert known.told == HEAD_A


def test_a_later_word_is_weak_and_not_told() -> None:
    known = after_word(None, B, 3)
    assert (known, known.told) == (Deployer(B, Evidence.LATER_WORD), b"")
    assert after_word(known, A, 5) == known
    assert after_told(known, HEAD_A) == Deployer(HEAD_A, Evidence.TOLD)
    assert after_word(known, A, 1) == after_order(known, A) == Deployer(A, Evidence.FIRST_HAND)


def test_what_others_tell_is_not_told_on() -> None:
    known = after_told(None, HEAD_A)
    assert (known, known.told) == (Deployer(HEAD_A, Evidence.TOLD), b"")
    assert after_told(known, HEAD_A) == known
    assert after_word(known, B, 3) == known
    assert after_word(known, A, 1) == Deployer(A, Evidence.FIRST_HAND)


@pytest.mark.parametrize("known", [Deployer(A, Evidence.FIRST_HAND), Deployer(HEAD_A, Evidence.TOLD)])
def test_two_that_have_deployed_it_are_contested_for_ever(known: Deployer) -> None:
    for found in (after_word(known, B, 1), after_order(known, B), after_told(known, HEAD_B)):
        assert found == Deployer(known.key, Evidence.CONTESTED)
        assert found.told == CONTESTED_HEAD
        for later in (after_word(found, A, 1), after_order(found, A), after_told(found, HEAD_A)):
            assert later.is_contested


def test_contested_is_catching() -> None:
    for known in (None, after_word(None, B, 3), after_word(None, A, 1), after_told(None, HEAD_A)):
        assert after_told(known, CONTESTED_HEAD).is_contested


def test_the_order_of_evidence_does_not_change_who_may_cancel() -> None:
    pieces: list[Step] = [
        lambda known: after_word(known, A, 1), lambda known: after_word(known, B, 2),
        lambda known: after_told(known, HEAD_A), lambda known: after_word(known, B, 3),
    ]  # fmt: skip
    assert {after_all(order) for order in permutations(pieces)} == {Deployer(A, Evidence.FIRST_HAND)}
    contests: list[Step] = [lambda known: after_word(known, B, 1), lambda known: after_told(known, HEAD_B)]
    for contest in contests:
        assert all(after_all(order).is_contested for order in permutations([*pieces, contest]))
