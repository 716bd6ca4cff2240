"""Counts of entries by writer, beside plain ones."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from membership.writer_counts import WriterCounts


@pytest.mark.parametrize("seed", range(5))
def test_the_loudest_has_most_after_any_changes(seed: int) -> None:
    rng, counts, plain = Random(seed), WriterCounts[bytes](), Counter[bytes]()
    for _ in range(2_000):
        writer = bytes([rng.randrange(12)])
        by = rng.choice((1, 1, 1, -1)) if plain[writer] else 1
        if plain[writer] and rng.random() < 0.02:
            by = -plain[writer]  # a member is forgotten
        plain[writer] += by
        counts.change(writer, by)
        assert counts.of(writer) == plain[writer]
        if any(plain.values()):
            assert plain[counts.loudest] == max(plain.values())


def test_of_equals_the_first_is_the_loudest() -> None:
    counts = WriterCounts[bytes]()
    for writer in (b"a", b"b", b"c"):
        counts.change(writer, 2)
    assert counts.loudest == b"a"
    counts.change(b"a", -1)
    counts.change(b"a", 1)
    assert counts.loudest == b"b"


def test_a_look_at_the_loudest_does_not_grow_with_the_writers() -> None:
    counts = WriterCounts[bytes]()
    for number in range(10_000):
        counts.change(number.to_bytes(2), 1)
    counts.change(b"loud", 5_000)
    counts.change(b"loud", -5_000)
    assert counts.of(b"loud") == 0
    assert counts.loudest == bytes(2)
