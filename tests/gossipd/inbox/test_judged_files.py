"""What is remembered of files that stay in the inbox, as bytes."""

from __future__ import annotations

import os

import pytest

from gossipd.inbox.drop_folder import Print
from gossipd.inbox.judged_files import JudgedFile, NoMemory, judged_from_bytes, judged_to_bytes

PRINT = Print(2**63, 2**64 - 1, 0, -1)


@pytest.mark.parametrize("name", ["toy.manifest", "a\nb", os.fsdecode(b"\xff.gmf")], ids=repr)
@pytest.mark.parametrize("reason", [None, "offered 7, trusted 9"])
def test_a_judged_file_comes_back_as_it_was(name: str, reason: str | None) -> None:
    judged = [JudgedFile(name, PRINT, reason, "E_ROLLBACK")]
    assert judged_from_bytes(judged_to_bytes(judged)) == judged


def test_a_reason_that_is_no_text_comes_back_as_text_of_bounded_length() -> None:
    kept = judged_to_bytes([JudgedFile("x", PRINT, "\ud800" + "c" * 10_000, "E_NAME")])
    [found] = judged_from_bytes(kept)
    assert (found.reason or "").startswith("\\ud800ccc")
    assert len(kept) < 6_000


@pytest.mark.parametrize(
    "kept", [b"", b"\0" * 9, b"[", b"{}", b'[["eA==",[1,2,3],null,""]]', b'[["?",[1,2,3,4],null,""]]']
)
def test_damaged_bytes_are_as_none(kept: bytes) -> None:
    assert judged_from_bytes(kept) == []


def test_nothing_is_kept_as_nothing() -> None:
    NoMemory().keep_inbox(b"x")
    assert judged_to_bytes([]) == NoMemory().inbox() == b""
