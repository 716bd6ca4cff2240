"""What is remembered of files that stay in the inbox, as bytes."""

from __future__ import annotations

import os

import pytest

from gossipd.inbox.drop_folder import Print
from gossipd.inbox.stuck_files import NoMemory, StuckFile, stuck_from_bytes, stuck_to_bytes

PRINT = Print(2**63, 2**64 - 1, 0, -1)


@pytest.mark.parametrize("name", ["toy.manifest", "a\nb", os.fsdecode(b"\xff.gmf")], ids=repr)
def test_a_file_that_stays_comes_back_as_it_was(name: str) -> None:
    stuck = [StuckFile(name, PRINT)]
    assert stuck_from_bytes(stuck_to_bytes(stuck)) == stuck


@pytest.mark.parametrize("kept", [b"", b"\0" * 9, b"[", b"{}", b'[["eA==",[1,2,3]]]', b'[["?",[1,2,3,4]]]'])
def test_damaged_bytes_are_as_none(kept: bytes) -> None:
    assert stuck_from_bytes(kept) == []


def test_nothing_is_kept_as_nothing() -> None:
    NoMemory().keep_inbox(b"x")
    assert stuck_to_bytes([]) == NoMemory().inbox() == b""
