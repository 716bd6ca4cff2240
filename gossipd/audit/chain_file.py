"""The audit log on disk: a chain of records that shows if one was changed, removed or inserted.

What lives here: the format, appending, rotation, and checking. What does not: what is recorded and when (``log``). All
methods block; one owner calls them in a worker thread.

Format: one JSON object a line, keys sorted, no blanks, ASCII::

    {"at":"2026-01-02T03:04:05.678Z","event":"manifest_accepted",...,"prev":HEX,"seq":17,"hash":HEX}

``hash`` is BLAKE3 over the line without it (the object with every other key); ``prev`` is the hash of the record
before. The first record ever has 64 zeros there and ``seq`` 0.

A file of ``file_bytes_max`` becomes ``NAME.1``, older ones move up, and the last is deleted. The new file continues the
chain, so that two neighbours can be checked together. The chain proves order and integrity, but not that the end is
present: for that, keep a copy of the last hash, which the status page shows.

After a crash the file may end in part of a line. That record was never acknowledged: the part is cut off, and the next
record reports it (``log_recovered``). Nothing else is ever removed or rewritten. Where others have moved the file away,
or cut it, under a running daemon, the next record says so (``log_replaced``) and goes on with the chain: behind a cut
it does not fit to the record before, as one is missing.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from blake3 import blake3
from msgspec import Struct

from gossipd.core.errors import LocalError
from gossipd.runtime.regular_file import open_regular

GENESIS = "0" * 64
FILE_BYTES_MAX = 16 * 1024 * 1024  # about 50,000 records
FILES_MAX = 8  # with the present one: 128 MiB at most
LINE_BYTES_MAX = 16_384  # a record has a few hundred bytes; fields are cut
# O_NONBLOCK: a pipe that was put in the log's place must not hold its thread.
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Scalar = str | int | float | bool | None


class AuditError(LocalError):
    """The audit log cannot be read or written. Fault: this host's disk. State: records wait, in a bounded queue."""

    code = "E_AUDIT"


class AuditReport(Struct, frozen=True):
    """The result of checking a log. ``problem`` is None when the chain is intact."""

    records: int
    first_at: str | None
    last_at: str | None
    head: str
    problem: str | None


class AuditFile:
    """Appends to one log. ``head`` and ``records`` describe the part on the disk."""

    def __init__(self, path: Path, *, file_bytes_max: int = FILE_BYTES_MAX, files_max: int = FILES_MAX) -> None:
        self.path = path
        self._file_bytes_max = file_bytes_max
        self._files_max = files_max
        self.head = GENESIS
        self.records = 0
        self._size = 0
        self._bytes_lost = 0  # of which no record tells yet
        self._opened = False
        self._has_durable_name = False  # an earlier run may have been killed before

    @property
    def is_opened(self) -> bool:
        """Whether the file's end was found, so that ``head`` and ``records`` say what is on the disk."""
        return self._opened

    def append(self, records: Iterable[Mapping[str, Scalar]], at: str) -> None:
        """Write ``records`` and sync once. ``at``: the time of those that have none. Raises OSError with nothing
        acknowledged; calling again is safe."""
        if not self._opened:
            self._recover(at)
        self._look_for_others()
        if self._bytes_lost:
            records = [{"event": "log_replaced", "bytes_lost": self._bytes_lost}, *records]
        if self._size >= self._file_bytes_max:
            self._rotate()
        lines, head, seq = [], self.head, self.records
        for record in records:
            line, head = _sealed({"at": at, **record, "prev": head, "seq": seq})
            lines.append(line)
            seq += 1
        self._write(b"".join(lines))
        self.head, self.records, self._bytes_lost = head, seq, 0

    def _look_for_others(self) -> None:
        """Find the end of a file that is shorter than what was written. Raises OSError."""
        try:
            size = self.path.lstat().st_size
        except FileNotFoundError:
            size = 0
        if size < self._size:
            self._bytes_lost += self._size - size
            self._size = _content(self.path).rfind(b"\n") + 1
            self._has_durable_name = False

    def _write(self, data: bytes) -> None:
        descriptor = os.open(self.path, _FLAGS, 0o640)
        try:
            # A failed attempt may have left unacknowledged bytes.
            os.ftruncate(descriptor, self._size)
            view, offset = memoryview(data), self._size
            while view:
                written = os.pwrite(descriptor, view, offset)
                view, offset = view[written:], offset + written
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if not self._has_durable_name:
            _sync_directory(self.path.parent)
            self._has_durable_name = True
        self._size = offset

    def _recover(self, at: str) -> None:
        """Find the end of the chain and cut off a partial line. Raises OSError, AuditError."""
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(self.path.lstat().st_mode):  # a pipe would keep the thread for ever
                raise AuditError(f"{self.path} is no file; move it away")
        content = _content(self.path)
        whole = content[: content.rfind(b"\n") + 1]
        last = _last_record(whole) or _last_record(_content(_numbered(self.path, 1)))
        if last is not None:
            self.head, self.records = str(last["hash"]), int(last["seq"]) + 1
        self._size = len(whole)
        self._opened = True
        if len(content) > len(whole):
            self.append([{"event": "log_recovered", "bytes_cut": len(content) - len(whole)}], at)

    def _rotate(self) -> None:
        for number in range(self._files_max - 1, 0, -1):
            older = self.path if number == 1 else _numbered(self.path, number - 1)
            if older.exists():
                older.replace(_numbered(self.path, number))
        self._size = 0
        self._has_durable_name = False


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def verify_audit(path: Path, *, head: str | None = None) -> AuditReport:
    """Check one file, joined to the one before it if that exists. ``head``: the end of the log at an earlier time. It
    must be in the chain, or the end was cut off since. Raises AuditError when the file cannot be read."""
    if not path.exists():
        raise AuditError(f"{path}: no such file")
    before = _before(path)
    try:
        previous = _last_record(_content(before))
    except OSError as error:
        raise AuditError(f"{before}: {error.strerror}") from None
    expected = str(previous["hash"]) if previous is not None else None
    first_at: str | None = None
    last_at: str | None = None
    seq: int | None = None
    records, chain = 0, expected
    has_head = head is None or head == (expected or GENESIS)
    for number, line in enumerate(_lines(path), start=1):
        try:
            record = _opened(line)
        except ValueError as error:
            return AuditReport(records, first_at, last_at, chain or GENESIS, f"line {number}: {error}")
        if chain is None and record["seq"] == 0 and record["prev"] != GENESIS:
            problem = f"line {number}: the first record names one before it"
            return AuditReport(records, first_at, last_at, GENESIS, problem)
        if chain is not None and record["prev"] != chain:
            problem = f"line {number}: does not follow the record before it (a record was changed, removed or inserted)"
            return AuditReport(records, first_at, last_at, chain, problem)
        if seq is not None and record["seq"] != seq + 1:
            return AuditReport(records, first_at, last_at, record["prev"], f"line {number}: the numbers have a gap")
        chain, seq, records = record["hash"], record["seq"], records + 1
        has_head = has_head or chain == head
        first_at, last_at = first_at or record["at"], record["at"]
    found = chain or GENESIS
    end: str | None = None
    if head is not None and not has_head:
        end = f"the log ends at {found[:16]}... and {head[:16]}... is not in it: the end was cut off, or FILE.1 has it"
    return AuditReport(records, first_at, last_at, found, end)


def verify_rotated(path: Path, *, files_max: int = FILES_MAX) -> str | None:
    """What is wrong with the files that a log was rotated from; None when nothing is. Raises AuditError when one cannot
    be read.

    Rotation deletes nothing before there are ``files_max`` files: fewer of them begin with the first record ever. Of
    ``files_max`` files it is not known how many came before.
    """
    older = rotated(path)
    for at, file in enumerate(older, start=1):
        if file != _numbered(path, at):
            return f"{_numbered(path, at)}: it is missing, and {file.name} is older"
        report = verify_audit(file)
        problem = report.problem or (None if report.records else "no record is in it: its content was removed")
        if problem is not None:
            return f"{file}: {problem}"
    oldest = older[-1] if older else path
    if len(older) < files_max - 1 and not _is_numbered(path) and (first := _first_number(oldest)):
        return f"{oldest}: it begins with record {first}; the files before it were removed, or not copied with it"
    return None


def rotated(path: Path) -> list[Path]:
    """The files that a log was rotated from, as far as they are there, the newest first."""
    return [one for number in range(1, FILES_MAX) if (one := _numbered(path, number)).exists()]


def check_witnessed(path: Path, heads: Iterable[tuple[int, str]]) -> str | None:
    """What is wrong with a log in the light of heads that others kept; None when nothing is.

    Args:
        path: the newest file; those that it was rotated from are read with it.
        heads: the number of records that there were, and the hash of the last of them.
    Raises: AuditError when a file cannot be read.
    """
    hashes: dict[int, str] = {}
    for file in filter(Path.exists, (path, *rotated(path))):
        for line in _lines(file):
            try:
                record = _opened(line)
            except ValueError:
                continue  # verify_audit says which
            hashes[record["seq"]] = record["hash"]
    first, end = min(hashes, default=0), max(hashes, default=-1) + 1
    for records, head in sorted(heads):
        if records > end:
            return f"a witness heard of {records} records, and the log has {end}: its end was cut off"
        if records > first and hashes.get(records - 1) != head:
            return f"record {records - 1} is not the one that a witness heard of: the end was cut off and rewritten"
    return None


def _sealed(record: dict[str, Scalar]) -> tuple[bytes, str]:
    body = json.dumps(record, sort_keys=True, separators=(",", ":"))
    digest = blake3(body.encode()).hexdigest()
    return f'{body[:-1]},"hash":"{digest}"}}\n'.encode(), digest


def _opened(line: bytes) -> dict[str, Any]:
    """One record whose own hash is right. Raises ValueError with a sentence."""
    if not line.endswith(b"\n"):
        raise ValueError("the line is incomplete")
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("not a JSON object") from None
    kinds = (("seq", int), ("hash", str), ("prev", str), ("at", str))
    if not (isinstance(record, dict) and all(isinstance(record.get(key), kind) for key, kind in kinds)):
        raise ValueError("not an audit record")
    if _sealed({key: value for key, value in record.items() if key != "hash"})[0] != line:
        raise ValueError("the record does not match its hash (changed)")
    return record


def _last_record(content: bytes) -> dict[str, Any] | None:
    lines = content.splitlines(keepends=True)
    if not lines:
        return None
    try:
        return _opened(lines[-1])
    except ValueError as error:
        # Continuing would hide the damage: the chain would be whole from here on.
        raise AuditError(f"the last record of the audit log is damaged ({error}); move the file away") from None


def _first_number(path: Path) -> int:
    """The number of the first record; 0 of a file without records, and of one that ``verify_audit`` refuses."""
    with suppress(ValueError):
        for line in _lines(path):
            return int(_opened(line)["seq"])
    return 0


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with open_regular(path) as lines:
            while line := lines.readline(LINE_BYTES_MAX + 1):
                yield line
    except OSError as error:
        raise AuditError(f"{path}: {error.strerror}") from None


def _content(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read()  # bounded by rotation
    except FileNotFoundError:
        return b""


def _before(path: Path) -> Path:
    """The file that was rotated before this one."""
    name, _, number = path.name.rpartition(".")
    return path.with_name(f"{name}.{int(number) + 1}") if _is_numbered(path) else _numbered(path, 1)


def _is_numbered(path: Path) -> bool:
    number = path.name.rpartition(".")[2]
    return number.isascii() and number.isdigit() and len(number) == 1


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
