"""The audit log: a chain that shows every change, survives crashes, and bounds what strangers can write."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from gossipd.audit.chain_file import GENESIS, AuditError, AuditFile, rotated, verify_audit, verify_rotated
from gossipd.audit.log import QUEUE_MAX, SUBJECT_BURST, AuditLog

AT = "2027-01-15T08:00:00Z"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def write(path: Path, count: int = 5, **options: int) -> AuditFile:
    file = AuditFile(path, **options)
    for number in range(count):
        file.append([{"event": "manifest_accepted", "name": f"toy@{number}"}], AT)
    return file


def test_an_untouched_log_is_whole_and_ends_at_the_head_that_status_shows(path: Path) -> None:
    file = write(path)
    report = verify_audit(path, head=file.head)
    assert (report.problem, report.records, report.head) == (None, 5, file.head)
    first = json.loads(path.read_bytes().splitlines()[0])
    assert (first["prev"], first["seq"], first["event"]) == (GENESIS, 0, "manifest_accepted")


@pytest.mark.parametrize("number", ["", ".1"])
def test_a_pipe_in_the_place_of_the_log_holds_no_thread(path: Path, number: str) -> None:
    file = write(path) if not number else AuditFile(path)
    path.unlink(missing_ok=True)
    os.mkfifo(f"{path}{number}")
    with pytest.raises(OSError, match=r"is not a file|No such device or address"):
        file.append([{"event": "published"}], AT)
    path.touch() if number else None
    with pytest.raises(AuditError, match="is not a file; move it away"):
        verify_audit(path)


def test_records_of_one_batch_follow_one_another_as_those_of_several_do(path: Path) -> None:
    file = AuditFile(path)
    for batch in (3, 1, 2):
        file.append([{"event": "manifest_accepted"}] * batch, AT)
    assert verify_audit(path, head=file.head).problem is None
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [record["prev"] for record in records] == [GENESIS, *(record["hash"] for record in records[:-1])]
    assert [record["seq"] for record in records] == list(range(6))


def test_no_byte_can_be_changed_unseen(path: Path) -> None:
    write(path, 3)
    content = path.read_bytes()
    for position in range(0, len(content), 3):
        changed = bytearray(content)
        changed[position] ^= 1
        path.write_bytes(changed)
        assert verify_audit(path).problem is not None, position


@pytest.mark.parametrize("edit", ["drop the first", "drop one", "swap two", "repeat one", "cut the last in half"])
def test_no_record_can_be_left_out_put_in_or_moved_unseen(path: Path, edit: str) -> None:
    write(path, 5)
    lines = path.read_bytes().splitlines(keepends=True)
    edits = {
        "drop the first": lines[1:],
        "drop one": lines[:2] + lines[3:],
        "swap two": [lines[0], lines[2], lines[1], *lines[3:]],
        "repeat one": [*lines[:3], lines[2], *lines[3:]],
        "cut the last in half": [*lines[:4], lines[4][:40]],
    }
    path.write_bytes(b"".join(edits[edit]))
    report = verify_audit(path)
    if edit == "drop the first":
        # Seen only where something still knows the beginning: the count does not start at 0.
        assert json.loads(lines[1])["seq"] == 1
        path.write_bytes(b"".join([lines[1].replace(b'"seq":1', b'"seq":0'), *lines[2:]]))
        report = verify_audit(path)
    assert report.problem is not None


def test_a_cut_off_end_is_seen_by_who_kept_the_head(path: Path) -> None:
    file = write(path, 5)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:4]))
    assert verify_audit(path).problem is None
    assert "the end was cut off" in (verify_audit(path, head=file.head).problem or "")


def test_a_log_that_went_on_still_has_the_head_that_was_kept(path: Path) -> None:
    kept = write(path, 3).head
    again = AuditFile(path)
    again.append([{"event": "more"}], "2026-01-01T00:00:00Z")
    assert again.head != kept
    assert verify_audit(path, head=kept).problem is None


def test_a_restart_goes_on_with_the_chain(path: Path) -> None:
    write(path, 3)
    again = AuditFile(path)
    again.append([{"event": "started"}], AT)
    assert (again.records, verify_audit(path, head=again.head).problem) == (4, None)


def test_half_a_line_left_by_a_crash_is_cut_off_and_the_next_record_says_so(path: Path) -> None:
    write(path, 3)
    whole = path.read_bytes()
    for cut in (1, 50, 100):
        path.write_bytes(whole + b'{"at":"2027-01-15T08:00:00Z","event":"x","hash":"' + b"f" * cut)
        again = AuditFile(path)
        again.append([{"event": "started"}], AT)
        events = [json.loads(line)["event"] for line in path.read_bytes().splitlines()]
        assert events[3:] == ["log_recovered", "started"]
        assert verify_audit(path, head=again.head).problem is None


@pytest.mark.parametrize("how", ["renamed", "deleted", "emptied", "cut"])
def test_a_file_that_others_replace_goes_on_and_says_so(path: Path, how: str) -> None:
    file = write(path, 3)
    whole = path.read_bytes()
    if how == "renamed":
        path.rename(path.with_name("mine.jsonl"))
    elif how == "deleted":
        path.unlink()
    else:
        path.write_bytes(b"" if how == "emptied" else whole[: len(whole) // 2])
    left = path.read_bytes().count(b"\n") if path.exists() else 0
    for number in range(2):
        file.append([{"event": f"more {number}"}], AT)
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [one["event"] for one in records[left:]] == ["log_replaced", "more 0", "more 1"]
    assert records[-1]["seq"] == 5 and records[left]["bytes_lost"] > 0
    assert (verify_audit(path, head=file.head).problem is None) is (how != "cut")
    if how == "renamed":
        assert verify_audit(path.with_name("mine.jsonl")).problem is None


def test_a_damaged_end_is_never_written_over(path: Path) -> None:
    write(path, 3)
    damaged = path.read_bytes().replace(b"toy@2", b"toy@9")
    path.write_bytes(damaged)
    with pytest.raises(AuditError) as refusal:
        AuditFile(path).append([{"event": "started"}], AT)
    assert refusal.value.code == "E_AUDIT"
    assert path.read_bytes() == damaged


def test_rotation_keeps_the_chain_and_bounds_the_disk(path: Path) -> None:
    file = write(path, 60, file_bytes_max=1000, files_max=4)
    names = sorted(each.name for each in path.parent.iterdir())
    assert names == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2", "audit.jsonl.3"]
    assert sum(each.stat().st_size for each in path.parent.iterdir()) < 4 * 1400
    for name in names:
        assert verify_audit(path.with_name(name)).problem is None
    assert verify_audit(path, head=file.head).problem is None
    path.with_name("audit.jsonl.1").write_bytes(path.with_name("audit.jsonl.2").read_bytes())
    assert verify_audit(path).problem is not None


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda of: of(1).write_bytes(b""), "audit.jsonl.1: no record is in it"),
        (lambda of: of(1).unlink(), "audit.jsonl.1: it is missing, and audit.jsonl.2 is older"),
        (lambda of: of(2).unlink(), "audit.jsonl.2: it is missing, and audit.jsonl.3 is older"),
        (
            lambda of: of(2).write_bytes(b"".join(of(2).read_bytes().splitlines(True)[:-1])),
            "audit.jsonl.1: line 1: does ",
        ),
        (
            lambda of: of(1).write_bytes(b"".join(of(1).read_bytes().splitlines(True)[1:])),
            "audit.jsonl.1: line 1: does ",
        ),
    ],
)
def test_a_record_or_file_that_is_missing_between_rotated_files_is_seen(
    path: Path, harm: Callable[[Callable[[int], Path]], object], said: str
) -> None:
    write(path, 60, file_bytes_max=1000, files_max=4)
    assert verify_rotated(path, files_max=4) is None
    harm(lambda number: path.with_name(f"audit.jsonl.{number}"))
    assert said in str(verify_rotated(path, files_max=4))


@pytest.mark.parametrize("removed", [1, 2, 3])
def test_the_oldest_files_that_are_removed_are_missed(path: Path, removed: int) -> None:
    write(path, 20, file_bytes_max=1000)
    older = rotated(path)
    assert len(older) >= 3
    assert verify_rotated(path) is None
    for file in older[-removed:]:
        file.unlink()
    assert "it begins with record" in str(verify_rotated(path))


def test_of_as_many_files_as_are_kept_none_is_missed(path: Path) -> None:
    write(path, 60, file_bytes_max=1000, files_max=4)
    assert verify_rotated(path, files_max=4) is None
    assert "it begins with record" in str(verify_rotated(path, files_max=5))


def test_a_rotated_file_is_checked_for_itself(path: Path) -> None:
    write(path, 60, file_bytes_max=1000, files_max=4)
    assert verify_rotated(path.with_name("audit.jsonl.2")) is None


def test_a_restart_right_after_rotation_goes_on_with_the_chain(path: Path) -> None:
    write(path, 5)
    path.rename(path.with_name("audit.jsonl.1"))
    again = AuditFile(path)
    again.append([{"event": "started"}], AT)
    assert (again.records, verify_audit(path, head=again.head).problem) == (6, None)


@pytest.mark.parametrize("call", ["pwrite", "fsync", "open"])
def test_a_disk_that_fails_at_any_step_leaves_nothing_half_and_a_retry_completes(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    file = write(path, 2)
    real = getattr(os, call)
    calls = 0

    def fail(*args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        if call == "pwrite" and calls == 1:
            return real(args[0], bytes(args[1])[:7], args[2])  # type: ignore[call-overload]  # a short write first
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space"):
        file.append([{"event": "lost?"}], AT)
    monkeypatch.setattr(os, call, real)
    assert file.records == 2
    file.append([{"event": "lost?"}], AT)
    assert (file.records, verify_audit(path, head=file.head).problem) == (3, None)


def test_nothing_of_a_failed_attempt_is_left_behind_a_shorter_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(path, 2)
    real = os.fsync

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        file.append([{"event": "long", "words": "x" * 400}] * 3, AT)
    monkeypatch.setattr(os, "fsync", real)
    file.append([{"event": "short"}], AT)
    assert (file.records, verify_audit(path, head=file.head).problem) == (3, None)


def test_the_names_of_the_log_are_made_durable_in_each_life_and_after_each_rotation(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, directories = os.fsync, []

    def watched(descriptor: int) -> None:
        directories.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    for _ in range(2):
        file = AuditFile(path, file_bytes_max=1)  # each record after the first rotates
        for number in range(3):
            file.append([{"event": f"e{number}"}], AT)
    assert directories == [False, True] * 6


def test_a_missing_log_is_an_error_and_not_a_whole_chain(path: Path) -> None:
    with pytest.raises(AuditError, match="no such file"):
        verify_audit(path)


@pytest.mark.parametrize(
    "content", [b"\n", b"null\n", b"[]\n", b"{}\n", b"\xff\xfe\n", b"x" * 100_000, b"[" * 9000 + b"\n"]
)
def test_any_bytes_are_a_report_and_never_a_crash(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert verify_audit(path).problem is not None


async def drained(log: AuditLog, seconds: float = 1.0) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.run)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()


async def becomes(log: AuditLog, trouble: str | None) -> bool:
    """True once the log says so; the writing thread runs in real time, whatever the clock."""
    for _ in range(100_000):
        await trio.sleep(0.1)
        if log.trouble == trouble and (trouble is not None or log.records > QUEUE_MAX):
            return True
    return False


def events(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


async def test_what_waits_when_the_daemon_stops_is_on_disk(path: Path) -> None:
    log = AuditLog(path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.run)
        await trio.testing.wait_all_tasks_blocked()
        log.record("seed_elected", rack="r1")
        nursery.cancel_scope.cancel()
    assert [each["event"] for each in events(path)] == ["seed_elected"]
    assert verify_audit(path, head=log.head).problem is None


async def test_each_record_has_the_millisecond_at_which_it_happened(path: Path, autojump_clock: MockClock) -> None:
    wall = 1_800_000_000.25
    log = AuditLog(path, wall=lambda: wall)
    for _ in range(3):
        log.record("published")
        wall += 0.125
    wall += 3600.0  # the disk refused so long
    await drained(log)
    assert [each["at"] for each in events(path)] == [f"2027-01-15T08:00:00.{ms}Z" for ms in (250, 375, 500)]
    assert verify_audit(path, head=log.head).problem is None


async def test_a_rotation_that_fails_names_the_file_that_was_to_be(
    path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr("gossipd.audit.log.AuditFile", partial(AuditFile, file_bytes_max=1))
    log = AuditLog(path)
    log.record("started")
    await drained(log)
    path.with_name("audit.jsonl.6").touch()
    (path.with_name("audit.jsonl.7") / "taken").mkdir(parents=True)
    log.record("published")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.run)
        for _ in range(10_000):
            await trio.sleep(0.1)
            if log.trouble is not None:
                break
        nursery.cancel_scope.cancel()
    assert f"{path}.7: Is a directory; records wait in memory" in str(log.trouble)


async def test_secrets_do_not_reach_the_log(path: Path, autojump_clock: MockClock) -> None:
    log = AuditLog(path)
    log.record(
        "source_refused",
        url="https://user:hunter2@bucket.example/x?X-Amz-Signature=c0ffee&token=t0ken#frag",
        words="tried s3://key:hunter2@bucket/y?a=c0ffee and gave up " + "x" * 5000,
    )
    await drained(log)
    text = path.read_text()
    for secret in ("hunter2", "c0ffee", "t0ken", "user:"):
        assert secret not in text
    assert "bucket.example/x" in text
    assert len(text) < 2000


async def test_a_stranger_cannot_fill_the_log_and_what_was_left_out_is_counted(
    path: Path, autojump_clock: MockClock
) -> None:
    wall = 1000.0
    log = AuditLog(path, wall=lambda: wall)
    for _ in range(100_000):
        log.record("stranger_refused", subject="192.0.2.7")
    log.record("stranger_refused", subject="192.0.2.8")
    wall += 61.0
    log.record("stranger_refused", subject="192.0.2.7")
    await drained(log)
    assert len(events(path)) == SUBJECT_BURST + 2
    assert events(path)[-1]["suppressed"] == 100_000 - SUBJECT_BURST


@pytest.mark.parametrize("kind", ["pipe", "link", "directory"])
async def test_what_stands_in_the_logs_place_is_named_and_the_log_goes_on_without_it(
    path: Path, autojump_clock: MockClock, kind: str
) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("elsewhere")
    else:
        path.mkdir()
    log = AuditLog(path)
    async with trio.open_nursery() as nursery:
        for number in range(QUEUE_MAX + 1):
            log.record("published", number=number)
        nursery.start_soon(log.run)
        words = f"{path} is no file; move it away; records wait in memory, {QUEUE_MAX} at most"
        assert await becomes(log, words)
        path.rename(path.with_name("aside"))
        assert await becomes(log, None)
        nursery.cancel_scope.cancel()
    assert verify_audit(path, head=log.head).problem is None


async def test_a_disk_that_refuses_keeps_a_bounded_queue_and_goes_on_by_itself(
    path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditLog(path)
    real = os.fsync

    def refuse(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    async with trio.open_nursery() as nursery:
        for number in range(QUEUE_MAX + 7):
            log.record("published", number=number)
        nursery.start_soon(log.run)
        assert await becomes(log, f"{path}: Input/output error; records wait in memory, {QUEUE_MAX} at most")
        monkeypatch.setattr(os, "fsync", real)
        assert await becomes(log, None)
        nursery.cancel_scope.cancel()
    written = events(path)
    assert len(written) == QUEUE_MAX + 1
    assert (written[-1]["event"], written[-1]["count"]) == ("records_lost", 7)
    assert verify_audit(path, head=log.head).problem is None


async def test_the_end_of_a_log_is_told_only_after_it_was_read(path: Path) -> None:
    write(path)
    log = AuditLog(path)
    before = log.position
    log.record("started")
    assert await log._write(cancellable=True)
    assert (before, (log.position or (0, ""))[0]) == (None, 6)


async def test_a_record_of_a_thread_is_written_while_the_log_sleeps(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.run)
        await trio.testing.wait_all_tasks_blocked(0.01)
        await trio.to_thread.run_sync(partial(log.record, "started"))
        with trio.fail_after(120):
            while log.records < 1:
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()


def test_records_of_one_host_are_counted_whatever_name_it_takes(path: Path) -> None:
    log = AuditLog(path)
    for number in range(100):
        log.record("statement refused", subject=f"name-{number}", by="node 1", code="E_X")
    log.record("statement refused", subject="name-1", by="node 2", code="E_X")
    log.record("statement refused", subject="name-99", code="E_X")
    told = [one["subject"] for one in log._waiting]
    assert told == [*(f"name-{number}" for number in range(SUBJECT_BURST)), "name-1", "name-99"]
