"""Modes and groups of what the daemon makes for other users."""

from __future__ import annotations

import grp
import os
import stat
from pathlib import Path

import pytest

from gossipd.runtime.file_access import UNCHANGED, grant, group_number


def test_a_group_is_found_by_name_or_number() -> None:
    own = grp.getgrgid(os.getegid())
    assert group_number(own.gr_name) == group_number(str(own.gr_gid)) == own.gr_gid
    assert group_number("") == UNCHANGED


def test_an_unknown_group_and_a_foreign_one_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="'no-such-group', which this host does not have"):
        group_number("no-such-group")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ValueError, match="not a member"):
        group_number("54321")


def test_mode_and_group_are_set_whatever_the_umask(tmp_path: Path) -> None:
    made = tmp_path / "models"
    made.mkdir(mode=0o700)
    grant(made, 0o755, os.getegid())
    grant(made, 0o750, UNCHANGED)
    assert stat.S_IMODE(made.stat().st_mode) == 0o750
