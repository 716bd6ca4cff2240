"""A commit that is not there, code that cannot be built. The cluster itself is a command, as it needs the history."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.mixed import BuildError, NoSuchCommitError, installed, take_out


def test_a_commit_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoSuchCommitError):
        take_out("0" * 40, tmp_path)


def test_code_that_cannot_be_installed_is_said(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    with pytest.raises(BuildError, match="could not be installed"):
        installed(tmp_path / "code", tmp_path / "environment")
