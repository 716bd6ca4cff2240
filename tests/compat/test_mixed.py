"""Old and new daemons deliver to each other; needs the repository's history."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.mixed import OLD, NoSuchCommitError, run, take_out


def test_a_cluster_of_old_and_new_daemons_delivers_both_ways(tmp_path: Path) -> None:
    try:
        take_out(OLD, tmp_path / "there")
    except NoSuchCommitError:
        pytest.skip("this checkout has no history")
    outcome = run(OLD, tmp_path / "run")
    assert outcome.is_good, outcome


def test_a_commit_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoSuchCommitError):
        take_out("0" * 40, tmp_path)
