"""What is remembered of files that stay in the inbox, as bytes."""

from __future__ import annotations

import os

import pytest

from gossipd.inbox.drop_folder import Print
from gossipd.inbox.judged_files import JudgedFile, NoMemory, judged_from_bytes, judged_to_bytes

PRINT = Print(2**63, 2**64 - 1, 0, -1)


@pytest.mark.parametrize("name", ["toy.manifest", "a\nb", os.fsdecode(b"\xff.gmf")], ids=repr)
def test_a_judged_file_comes_back_as_it_was(name: str) -> None:
    judged = [JudgedFile(name, PRINT)]
    assert judged_from_bytes(judged_to_bytes(judged)) == judged


@pytest.mark.parametrize("kept", [b"", b"\0" * 9, b"[", b"{}", b'[["eA==",[1,2,3]]]', b'[["?",[1,2,3,4]]]'])
def test_damaged_bytes_are_as_none(kept: bytes) -> None:
    assert judged_from_bytes(kept) == []


def test_nothing_is_kept_as_nothing() -> None:
    NoMemory().keep_inbox(b"x")
    assert judged_to_bytes([]) == NoMemory().inbox() == b""
