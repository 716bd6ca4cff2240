"""Collecting audit records: decisions such as accepted, refused, elected, published, and their cause.

What lives here: taking records from any thread without waiting, dropping endless repeats, and writing the rest in
batches with one sync each. What does not: the file (``chain_file``).

A record is its time, an event's name and a few scalars. Values are shortened and stripped of credentials
(``logs.redacted``); bytes are not accepted, so that no key gets in. Records that a remote host causes have a
``subject``: after ``SUBJECT_BURST`` of one event by one subject further ones are only counted, and the next written one
gives their number (``suppressed``). While the disk refuses, at most ``QUEUE_MAX`` records wait; the lost ones are
counted too.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import trio
from msgspec import Struct

from gossipd.audit.chain_file import AuditFile, Scalar
from gossipd.core.errors import GossipdError
from gossipd.core.units import precise_timestamp
from gossipd.runtime.logs import get_logger, redacted
from gossipd.runtime.look_interval import until_next_look
from gossipd.runtime.worker_threads import run_blocking

QUEUE_MAX = 4096
VALUE_CHARS_MAX = 512
BATCH_INTERVAL_S = 0.25  # a burst of decisions is one sync, and nobody waits for it
RETRY_S = 5.0
SUBJECT_BURST = 10
SUBJECT_REFILL_S = 60.0  # one more each minute
SUBJECTS_MAX = 4096

log = get_logger("audit")


class _Allowance(Struct):
    left: float
    at: float
    suppressed: int = 0


class RecordListener(Protocol):
    """Hears of records when they are taken, before they are written; from any thread. ``label``: as of ``record``."""

    def recorded(self, kind: str, subject: str | None, fields: Mapping[str, Scalar], label: str) -> None: ...


class AuditLog:
    """Takes records from any thread; ``run`` writes them. ``trouble`` says why it cannot."""

    def __init__(
        self, path: Path, *, wall: Callable[[], float] = time.time, listener: RecordListener | None = None
    ) -> None:
        """``listener`` is told of every record that is taken."""
        self._listener = listener
        self._file = AuditFile(path)
        self._wall = wall
        self._lock = threading.Lock()
        self._waiting: deque[dict[str, Scalar]] = deque()
        self._allowances: OrderedDict[tuple[str, str], _Allowance] = OrderedDict()
        self._lost = 0
        self._recorded = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None  # while ``run`` runs
        self.trouble: str | None = None

    @property
    def head(self) -> str:
        return self._file.head

    @property
    def records(self) -> int:
        return self._file.records

    @property
    def position(self) -> tuple[int, str] | None:
        """How many records are on the disk, and the last one's hash; None until the file was first written."""
        return (self._file.records, self._file.head) if self._file.is_opened else None

    def record(
        self, event: str, *, subject: str | None = None, by: Scalar = None, label: str = "", **fields: Scalar
    ) -> None:  # fmt: skip
        """Record one decision; never waits, never raises. ``subject`` is the remote host that caused it; ``by``: what
        stands for that host in the count of its records, where its subject is a name, which it can change. ``label``:
        the deployment as ``status`` calls it, which is not recorded: the listener's alone."""
        with self._lock:
            suppressed = 0
            if subject is not None:
                allowed, suppressed = self._allowed(event, str(by or subject))
                if not allowed:
                    return
            if len(self._waiting) >= QUEUE_MAX:
                self._lost += 1
                return
            entry: dict[str, Scalar] = {key: _clean(value) for key, value in fields.items()}
            entry |= {"event": event, "at": precise_timestamp(self._wall())}
            if subject is not None:
                entry["subject"] = _clean(subject)
            if suppressed:
                entry["suppressed"] = suppressed
            self._waiting.append(entry)
            token = self._token
        if token is not None:
            with suppress(trio.RunFinishedError):  # by a thread that outlives the loop by a moment
                token.run_sync_soon(self._wake, idempotent=True)
        if self._listener is not None:
            told = {key: value for key, value in entry.items() if key not in ("event", "at", "subject", "suppressed")}
            self._listener.recorded(event, subject, told, label)

    def _wake(self) -> None:
        self._recorded.set()

    async def run(self) -> None:
        """Write for ever; at the daemon's stop the waiting records are written first."""
        self._token = trio.lowlevel.current_trio_token()
        try:
            while True:
                self._recorded = trio.Event()
                wrote = await self._write(cancellable=True)
                if wrote:
                    await self._recorded.wait()
                await until_next_look(BATCH_INTERVAL_S if wrote else RETRY_S)
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 2.0):
                await self._write(cancellable=False)

    async def _write(self, *, cancellable: bool) -> bool:
        """Write one batch. False when the disk refuses; the batch stays waiting."""
        with self._lock:
            batch = list(self._waiting)
            if self._lost:
                batch.append({"event": "records_lost", "count": self._lost})
            lost = self._lost
        if not batch:
            return True
        at = precise_timestamp(self._wall())
        try:
            # At the stop the write is abandoned if the disk hangs; the next start cuts off a partial line.
            await run_blocking(self._file.append, batch, at, abandon_on_cancel=not cancellable)
        except (OSError, GossipdError) as error:
            words = str(error)
            if isinstance(error, OSError):  # of a rotation, the file that is to be
                words = f"{error.filename2 or error.filename or self._file.path}: {error.strerror}"
            words += f"; records wait in memory, {QUEUE_MAX} at most"
            if words != self.trouble:
                log.error("audit log cannot be written", reason=words)
            self.trouble = words
            return False
        if self.trouble is not None:
            log.info("audit log is written again")
            self.trouble = None
        with self._lock:
            for _ in range(len(batch) - (1 if lost else 0)):
                self._waiting.popleft()
            self._lost -= lost
        return True

    def _allowed(self, event: str, subject: str) -> tuple[bool, int]:
        """Whether one more is written, and how many were suppressed before it."""
        now = self._wall()
        key = (event, subject)
        allowance = self._allowances.pop(key, None) or _Allowance(float(SUBJECT_BURST), now)
        self._allowances[key] = allowance  # last: the oldest is dropped first
        if len(self._allowances) > SUBJECTS_MAX:
            self._allowances.popitem(last=False)
        allowance.left = min(SUBJECT_BURST, allowance.left + max(0.0, now - allowance.at) / SUBJECT_REFILL_S)
        allowance.at = now
        if allowance.left < 1.0:
            allowance.suppressed += 1
            return False, 0
        allowance.left -= 1.0
        suppressed, allowance.suppressed = allowance.suppressed, 0
        return True, suppressed


def _clean(value: Scalar) -> Scalar:
    return redacted(value[:VALUE_CHARS_MAX]) if isinstance(value, str) else value
