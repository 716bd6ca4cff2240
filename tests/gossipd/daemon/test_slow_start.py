"""A start that waits for a directory names it in the log; one that does not wait says nothing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gossipd.daemon.slow_start import told_if_slow


def test_a_directory_that_does_not_answer_is_named_while_the_start_waits(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING"), told_if_slow(Path("models"), wait_s=0.01):
        until_s = time.monotonic() + 60
        while not caplog.records:
            assert time.monotonic() < until_s
            time.sleep(0.001)
    assert [record.getMessage() for record in caplog.records] == ["the start waits for a directory"]


def test_a_start_that_is_quick_or_fails_tells_nothing_of_its_directory(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING"):
        with pytest.raises(OSError, match="gone"), told_if_slow(Path("models"), wait_s=60.0):
            raise OSError("gone")
        with told_if_slow(Path("models"), wait_s=60.0):
            pass
    assert not caplog.records
