"""Versions as steps and attempts."""

from __future__ import annotations

import pytest

from gossipd.core.versions import parse_version, show_step, split_version, step_version


def test_a_later_attempt_is_higher_than_every_step_before_it() -> None:
    said = [step_version(100), step_version(200), step_version(300), step_version(200, 2)]
    assert said == sorted(said)
    assert [show_step(version) for version in said] == ["100", "200", "300", "200.2"]
    assert split_version(said[-1]) == (200, 2)


@pytest.mark.parametrize("text", ["0", "7", "300.2", "4294967295.2097151"])
def test_what_is_shown_is_read_again(text: str) -> None:
    assert show_step(parse_version(text)) == text


def test_a_large_plain_version_is_read_as_it_is() -> None:
    assert parse_version("20261125120000") == 20261125120000
    assert parse_version("9007199254740991") == 2**53 - 1


@pytest.mark.parametrize(
    "text", ["", ".", "1.", ".1", "-1", "1.2.3", "a", "9007199254740992", "4294967296.1", "1.2097152", "٣", "1" * 17]
)
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"a version is|a step is"):
        parse_version(text)
