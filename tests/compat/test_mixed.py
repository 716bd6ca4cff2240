"""A commit that is not there; the cluster of old and new daemons itself is a command, as it needs the history."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.mixed import NoSuchCommitError, take_out


def test_a_commit_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoSuchCommitError):
        take_out("0" * 40, tmp_path)
