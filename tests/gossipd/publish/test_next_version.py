"""Which version a publication gets, by values."""

from __future__ import annotations

import pytest

from gossipd.core.errors import UsageError
from gossipd.core.versions import VERSION_MAX, step_version
from gossipd.publish.next_version import VersionKnownError, next_version


def test_without_a_version_it_is_one_more_than_the_last() -> None:
    assert next_version("m", None) == 1
    assert next_version("m", 7) == 8
    assert next_version("m", 7, version=9) == 9
    assert next_version("m", None, version=0) == 0


@pytest.mark.parametrize("version", [0, 6, 7])
def test_a_version_that_is_not_above_the_last_is_refused(version: int) -> None:
    with pytest.raises(VersionKnownError, match="m@7 is known here"):
        next_version("m", 7, version=version)


def test_a_refusal_names_the_step_that_is_known() -> None:
    last = step_version(300, 2)
    with pytest.raises(VersionKnownError, match=r"m@300\.2 is known here"):
        next_version("m", last, version=7, last_label="300.2")


def test_steps_make_the_version_and_going_back_makes_an_attempt() -> None:
    last = None
    attempts = {0: 0, 100: 0, 300: 0, 200: 1, 199: 2, 201: 2}  # by step, in this order
    for step, attempt in attempts.items():
        version = next_version("m", last, step=step)
        assert version == step_version(step, attempt)
        assert last is None or version > last
        last = version


def test_what_no_manifest_can_hold_is_refused() -> None:
    with pytest.raises(UsageError):
        next_version("m", None, step=1 << 32)
    with pytest.raises(UsageError):
        next_version("m", None, version=VERSION_MAX + 1)
    with pytest.raises(UsageError):
        next_version("m", VERSION_MAX)
    with pytest.raises(UsageError):
        next_version("m", VERSION_MAX, step=1)
