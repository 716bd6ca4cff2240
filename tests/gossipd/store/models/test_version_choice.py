"""Which version is picked, by values; and the file of what was said."""

from __future__ import annotations

import pytest

from gossipd.store.models.version_choice import FILE_BYTES_MAX, VersionChoice

SAID = [
    VersionChoice(),
    VersionChoice(2, 3),
    VersionChoice(avoided=frozenset({3, 10**18})),
    VersionChoice(2, 3, frozenset({1})),
]


@pytest.mark.parametrize("choice", SAID)
def test_a_choice_comes_back_from_its_file(choice: VersionChoice) -> None:
    assert VersionChoice.from_bytes(choice.to_bytes()) == choice


OTHERS = [b"", b"gossipd-pin 2\n1\n2\n", b"gossipd-pin 1\n1\n", b"gossipd-pin 1\nx\n2\n", b"\xff"]


@pytest.mark.parametrize("body", OTHERS)
def test_another_file_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        VersionChoice.from_bytes(body)


def test_the_file_of_many_versions_keeps_the_highest_and_can_be_read() -> None:
    many = VersionChoice(avoided=frozenset(2**63 - one for one in range(1000)))
    body = many.to_bytes()
    read = VersionChoice.from_bytes(body)
    assert len(body) <= FILE_BYTES_MAX and max(read.avoided) == 2**63 and len(read.avoided) == 500


@pytest.mark.parametrize(
    ("choice", "shown", "now", "picked"),
    [
        (VersionChoice(), [1, 2, 3], 1, 3),
        (VersionChoice(2, 3), [1, 2, 3], 3, 2),
        (VersionChoice(2, 3), [1, 2, 3, 4], 2, 4),
        (VersionChoice(2, 3), [1, 3], 2, 1),
        (VersionChoice(2, 3), [3], 2, 3),
        (VersionChoice(avoided=frozenset({3})), [1, 2, 3], 3, 2),
        (VersionChoice(avoided=frozenset({1, 2})), [1, 2], 1, 1),
        (VersionChoice(avoided=frozenset({1, 2})), [1, 2], None, 2),
        (VersionChoice(2, 3, frozenset({2})), [1, 2, 3], 2, 1),
        (VersionChoice(2, 3, frozenset({1, 2})), [1, 2, 3], 2, 3),
    ],
)
def test_the_newest_is_picked_unless_something_was_said(
    choice: VersionChoice, shown: list[int], now: int | None, picked: int
) -> None:
    assert choice.pick(shown, now) == picked


@pytest.mark.parametrize(("now", "picked"), [(3, 3), (2, 2), (None, 2)])
def test_what_is_not_all_here_is_picked_only_where_it_is_current(now: int | None, picked: int) -> None:
    assert VersionChoice().pick([1, 2, 3], now, unfit={3}) == (picked if now == 3 else 2)
    assert VersionChoice().pick([3], now, unfit={3}) == 3


def test_what_has_ended_is_forgotten() -> None:
    said = VersionChoice(2, 3, frozenset({3}))
    assert said.still_valid([1, 2, 3]) == said
    assert said.still_valid([1, 2, 3, 4]) == VersionChoice(avoided=frozenset({3}))
    assert said.still_valid([]) == said, "parts may be growing"
    assert said.without(3, {2}) == VersionChoice(2, 3)
    assert said.without(3, ()).is_empty
