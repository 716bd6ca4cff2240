"""Memory to encrypt from: one piece for each upload at a time, none when no more come."""

from __future__ import annotations

from gossipd.transfer.scratch import ScratchMemory


def test_a_piece_serves_one_upload_after_another() -> None:
    scratch = ScratchMemory(4096)
    with scratch.piece() as one, scratch.piece() as other:
        one[:1], other[:1] = b"1", b"2"
        assert (bytes(one[:1]), len(one), len(other)) == (b"1", 4096, 4096)
    assert scratch.kept_bytes == 2 * 4096
    with scratch.piece():
        assert scratch.kept_bytes == 4096


def test_what_no_upload_has_used_between_two_looks_is_let_go() -> None:
    scratch = ScratchMemory(4096)
    with scratch.piece():
        scratch.connections_looked_at(1.0)
    scratch.connections_looked_at(2.0)
    assert scratch.kept_bytes == 0
    with scratch.piece():
        pass
    scratch.connections_looked_at(3.0)
    assert scratch.kept_bytes == 4096
    scratch.connections_looked_at(4.0)
    assert scratch.kept_bytes == 0
