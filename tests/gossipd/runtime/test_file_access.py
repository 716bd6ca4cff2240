"""Modes and groups of what the daemon makes for other users."""

from __future__ import annotations

import grp
import os
import stat
import tempfile
from pathlib import Path

import pytest

from gossipd.runtime.file_access import UNCHANGED, grant, group_number, refusal_words, user_name, why_closed


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


NOBODY = 65534
READ, WRITE = os.R_OK, os.R_OK | os.W_OK


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    ("mode", "need", "is_closed"),
    [(0o600, READ, True), (0o640, READ, False), (0o604, READ, False), (0o644, WRITE, True), (0o000, READ, True)],
)
def test_a_file_of_another_user_is_closed_as_its_mode_says(
    tmp_path: Path, mode: int, need: int, is_closed: bool
) -> None:
    (tmp_path / "register").touch()
    (tmp_path / "register").chmod(mode)
    told = why_closed(tmp_path / "register", NOBODY, need, root=tmp_path)
    name = user_name(NOBODY)
    words = f"belongs to user root and is closed to user {name} (mode {mode:o}); chown -R {name} {tmp_path}"
    assert told == (words if is_closed else None)


@pytest.mark.needs("root")
def test_a_file_that_is_closed_to_its_owner_is_told_with_its_own_cure(tmp_path: Path) -> None:
    (tmp_path / "register").touch()
    (tmp_path / "register").chmod(0)
    os.chown(tmp_path / "register", NOBODY, NOBODY)
    told = why_closed(tmp_path / "register", NOBODY, READ, root=tmp_path) or ""
    assert told.endswith("(mode 0); chmod u+rwX it")
    (tmp_path / "register").chmod(0o600)
    assert why_closed(tmp_path / "register", NOBODY, WRITE, root=tmp_path) is None


def test_nothing_is_closed_to_root_and_what_is_absent_or_a_link_to_nobody(tmp_path: Path) -> None:
    (tmp_path / "register").touch(mode=0)
    (tmp_path / "link").symlink_to("register")
    assert why_closed(tmp_path / "register", 0, WRITE, root=tmp_path) is None
    assert why_closed(tmp_path / "link", NOBODY, WRITE, root=tmp_path) is None
    assert why_closed(tmp_path / "absent", NOBODY, WRITE, root=tmp_path) is None


def test_a_read_only_file_system_closes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class ReadOnly:
        f_flag = os.ST_RDONLY

    (tmp_path / ".lock").touch()
    (tmp_path / ".lock").chmod(0o444)
    monkeypatch.setattr(os, "statvfs", lambda path: ReadOnly)
    other = os.geteuid() + 1
    assert why_closed(tmp_path / ".lock", other, WRITE, root=tmp_path) is None


def test_a_refusal_that_no_mode_explains_still_has_path_and_cure(tmp_path: Path) -> None:
    (tmp_path / "register").touch()
    refusal = PermissionError(13, "Permission denied", "register")
    told = refusal_words(refusal, tmp_path / "register", READ, root=tmp_path)
    name = user_name(os.geteuid())
    assert told.startswith(f"{tmp_path}/register is closed to user {name} (Permission denied); chown -R {name} ")


def test_a_user_without_a_name_is_told_by_number() -> None:
    assert user_name(2**31 - 7) == str(2**31 - 7)


@pytest.mark.needs("root")
def test_root_who_asks_as_another_user_is_that_user() -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        root.chmod(0o755)
        (root / "register").touch()
        (root / "register").chmod(0o600)
        os.seteuid(NOBODY)
        try:
            told = why_closed(root / "register", NOBODY, READ, root=root) or ""
        finally:
            os.seteuid(0)
    assert told.startswith("belongs to user root and is closed to user ")
