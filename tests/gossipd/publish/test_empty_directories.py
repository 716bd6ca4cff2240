"""Empty directories of a tree on a disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gossipd.manifest.errors import ManifestError
from gossipd.publish.empty_directories import find_empty_directories
from gossipd.publish.selection import EVERYTHING, Selection


def test_only_leaves_are_listed_and_exclusion_counts_for_them(tmp_path: Path) -> None:
    for path in ("b/c", "a", "logs/x", "full"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "full" / "f").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert find_empty_directories(tmp_path, EVERYTHING) == ("a", "b/c", "logs/x")
    assert find_empty_directories(tmp_path, Selection((), ("logs/", "a/"))) == ("b/c",)
    assert find_empty_directories(tmp_path, Selection(("b/*",))) == ("b/c",)
    assert find_empty_directories(tmp_path / "full" / "f", EVERYTHING) == ()


def test_a_name_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    os.mkdir(os.fsencode(tmp_path) + b"/\xff")
    with pytest.raises(ManifestError) as caught:
        find_empty_directories(tmp_path, EVERYTHING)
    assert caught.value.code == "E_PATH_UNICODE"
