"""What heads that a host told prove about its log, after a restart of the witness too."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossipd.audit.chain_file import AuditFile, check_witnessed
from gossipd.audit.witness import CUT_KEEP_MS, HEADS_MAX, HOSTS_MAX, TELL_MS_MIN, AuditHead, Witness
from gossipd.identity.keys import SecretKey

KEY = SecretKey(b"k" * 32)
NODE, OTHER = b"n" * 16, b"o" * 16
AT = "2026-01-02T03:04:05Z"
MINUTE = 60_000


def head(minute: int, records: int, mark: str = "") -> AuditHead:
    return AuditHead(minute * MINUTE, records, f"{mark}{records}".encode().rjust(32, b"."))


def witness_of(*heads: AuditHead) -> Witness:
    witness = Witness()
    for one in heads:
        witness.heard(NODE, "gpu-1", one)
    return witness


def test_a_head_is_its_signers() -> None:
    told = head(1, 5)
    assert AuditHead.opened(told.signed(KEY), KEY.public.ed25519) == told
    assert AuditHead.opened(told.signed(SecretKey(b"x" * 32)), KEY.public.ed25519) is None
    assert AuditHead.opened(told.signed(KEY)[:-1], KEY.public.ed25519) is None


def test_a_chain_that_grows_or_stands_still_is_whole() -> None:
    witness = witness_of(head(1, 5), head(2, 5), head(3, 9), head(4, 9))
    assert witness.cuts(5 * MINUTE) == []


@pytest.mark.parametrize("later", [head(3, 8), head(3, 9, "rewritten")])
def test_a_chain_with_fewer_records_or_another_end_was_cut(later: AuditHead) -> None:
    witness = witness_of(head(1, 5), head(2, 9), later)
    (said,) = witness.cuts(4 * MINUTE)
    assert "gpu-1 had 9 records" in said
    assert witness_of(head(1, 5), head(2, 9)).cuts(4 * MINUTE) == []


def test_a_cut_is_remembered_over_a_restart_and_for_a_month() -> None:
    witness = Witness.from_bytes(witness_of(head(1, 9), head(2, 3), head(3, 30)).to_bytes())
    assert len(witness.cuts(4 * MINUTE)) == 1, "it has grown again, which undoes nothing"
    assert witness.cuts(2 * MINUTE + CUT_KEEP_MS) == []
    witness.forget(NODE)
    assert witness.cuts(4 * MINUTE) == []


@pytest.mark.parametrize("grows_between", [False, True])
def test_a_host_that_cut_its_log_does_not_push_out_what_it_told_before(grows_between: bool) -> None:
    witness = witness_of(head(1, 50), head(61, 70), head(122, 90))
    for number in range(10 * HEADS_MAX):
        records = 100 + number if grows_between and number % 2 else 5
        witness.heard(NODE, "gpu-1", AuditHead(123 * MINUTE + number * TELL_MS_MIN, records, bytes([number]) * 32))
    kept = [records for records, _ in witness.heads_of("gpu-1")]
    assert kept[:3] == [50, 70, 90]
    assert len(kept) <= 5
    assert len(witness.cuts(140 * MINUTE)) == 1


def test_an_old_head_that_is_sent_again_accuses_nobody() -> None:
    witness = witness_of(head(1, 5), head(9, 50))
    assert not witness.heard(NODE, "gpu-1", head(1, 5))
    restarted = Witness.from_bytes(witness.to_bytes())
    assert not restarted.heard(NODE, "gpu-1", head(2, 5))
    assert not restarted.is_due(NODE, 9 * MINUTE + TELL_MS_MIN - 1)
    assert restarted.cuts(10 * MINUTE) == []


def test_hosts_and_heads_are_bounded_and_one_head_an_hour_is_kept() -> None:
    witness = Witness()
    for minute in range(60 * (HEADS_MAX + 5)):
        witness.heard(NODE, "gpu-1", head(minute, minute))
    kept = witness.heads_of("gpu-1")
    assert len(kept) == HEADS_MAX
    assert kept[-1][0] - kept[0][0] > 60 * (HEADS_MAX - 3)
    for number in range(HOSTS_MAX + 5):
        witness.heard(number.to_bytes(16), f"h{number}", head(1, 1))
    assert len(witness.names()) == HOSTS_MAX


@pytest.mark.parametrize("kept", [b"", b"[]", b'{"hosts": [[1]]}', b'{"hosts": 7}', b"\xff", b"[" * 100_000])
def test_a_file_that_rotted_is_refused(kept: bytes) -> None:
    with pytest.raises(ValueError, match="not a file"):
        Witness.from_bytes(kept)


def written(path: Path, *events: str) -> AuditFile:
    file = AuditFile(path)
    for event in events:
        file.append([{"event": event}], AT)
    return file


def test_a_log_is_compared_with_what_a_witness_heard(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file = written(path, "a", "b", "c")
    heads = [(file.records, file.head)]
    file.append([{"event": "d"}], AT)
    assert check_witnessed(path, [*heads, (0, "0" * 64)]) is None
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]))
    assert "cut off" in str(check_witnessed(path, heads))
    written(path, "x", "y", "z")
    assert "rewritten" in str(check_witnessed(path, heads))


def test_a_log_that_was_rotated_is_read_with_what_it_was_rotated_from(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file, heads = AuditFile(path, file_bytes_max=300), []
    for number in range(12):
        file.append([{"event": f"{number}"}], AT)
        heads.append((file.records, file.head))
    assert path.with_name("audit.jsonl.1").exists()
    assert check_witnessed(path, heads) is None
