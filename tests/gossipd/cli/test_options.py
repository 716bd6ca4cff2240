"""Times and shares as people read and type them."""

from __future__ import annotations

import click
import pytest

from gossipd.cli.options import Duration, time_words
from gossipd.core.units import percent_words


@pytest.mark.parametrize(
    ("part", "whole", "words"),
    [(0, 10, "0 %"), (1, 3, "33.3 %"), (9_999_999, 10_000_000, "99.9 %"), (10, 10, "100 %"), (0, 0, "100 %")],
)
def test_100_percent_is_shown_only_when_it_is_exactly_that(part: int, whole: int, words: str) -> None:
    assert percent_words(part, whole) == words


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (59.9, "59 s"), (200, "3m 20s"), (7500, "2h 5m"), (273_600, "3d 4h")]
)
def test_times_have_at_most_two_units(seconds: float, words: str) -> None:
    assert time_words(seconds) == words


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("500ms", 0.5), ("30m", 1800.0), ("1.5h", 5400.0), ("2d", 172_800.0)]
)
def test_durations_are_typed_with_a_unit(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


def test_what_is_no_duration_is_the_users_mistake() -> None:
    with pytest.raises(click.BadParameter, match="'soon' is not a duration such as 90s"):
        Duration().convert("soon", None, None)
