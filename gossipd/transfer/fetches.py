"""Worker threads that fetch a chunk, hand it to the store, and report how that ended.

What lives here: performing StartFetch and CancelFetch. What does not: planning, and the good news, which only the store
can tell (it emits ChunkStored itself).

Each fetch runs on one thread from request to verified write: while one thread hashes and writes, the others receive,
which keeps both cores busy without handing buffers from thread to thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

from gossipd.core.events import CancelFetch, FailReason, FetchFailed, StartFetch
from gossipd.core.ids import ChunkIndex, DeploymentId
from gossipd.ports import ChunkWriter, DigestMismatchError, NotHeldError, StoreWriteError
from gossipd.transfer.client import BulkClient
from gossipd.transfer.errors import TransferError
from gossipd.transfer.links import Endpoint
from membership.member import NodeId

COMPLAINT_S = 2.0  # a complaint is a courtesy: a peer that does not take it soon is not worth a worker
CLOSE_S = 0.9


@dataclass(frozen=True, slots=True)
class _Job:
    deployment: DeploymentId
    chunk: ChunkIndex
    peer: NodeId
    endpoint: Endpoint
    length: int
    deadline: float


class Fetches:
    """Runs fetches on ``workers`` threads.

    Args:
        on_failed: told of every fetch that did not end in the store, from a worker thread; quick.
    """

    def __init__(
        self, client: BulkClient, writer: ChunkWriter, *, workers: int, on_failed: Callable[[FetchFailed], None]
    ) -> None:
        self._client = client
        self._writer = writer
        self._on_failed = on_failed
        self._lock = threading.Lock()
        self._waiting: set[_Job] = set()
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"fetch-{number}", daemon=True) for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def start(self, command: StartFetch, endpoint: Endpoint, length: int) -> None:
        """Begin a fetch; its time-out counts from now, waiting for a worker included. Never blocks."""
        job = _Job(
            command.deployment, command.chunk, command.peer, endpoint, length, time.monotonic() + command.timeout_s
        )
        with self._lock:
            self._waiting.add(job)
        self._queue.put(job)

    def cancel(self, command: CancelFetch) -> None:
        """Stop a fetch wherever it is; it is reported as CANCELLED unless it has already ended."""
        with self._lock:
            found = [job for job in self._waiting if _matches(job, command)]
            self._waiting.difference_update(found)
        for job in found:
            self._fail(job, FailReason.CANCELLED)
        self._client.cancel(command.peer, command.deployment, command.chunk)

    def close(self) -> None:
        """Let workers end after what they are doing; close the client first, so that this is soon."""
        with self._lock:
            self._waiting.clear()
        for _ in self._threads:
            self._queue.put(None)
        deadline = time.monotonic() + CLOSE_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            with self._lock:
                if job not in self._waiting:
                    continue
                self._waiting.discard(job)
            reason = self._fetch(job)
            if reason is not None:
                self._fail(job, reason)

    def _fetch(self, job: _Job) -> FailReason | None:
        started = time.monotonic()
        try:
            lease = self._client.fetch_chunk(
                job.peer, job.endpoint, job.deployment, job.chunk, job.length, timeout_s=job.deadline - started
            )
        except TransferError as error:
            return error.reason
        with lease:
            try:
                elapsed_s = time.monotonic() - started
                self._writer.put(job.deployment, job.chunk, lease.view, job.peer, elapsed_s)
            except DigestMismatchError:
                self._complain(job)
                return FailReason.CORRUPT
            except StoreWriteError:
                return FailReason.DISK
            except NotHeldError:
                return FailReason.CANCELLED
        return None

    def _complain(self, job: _Job) -> None:
        try:
            self._client.complain(job.peer, job.endpoint, job.deployment, job.chunk, timeout_s=COMPLAINT_S)
        except TransferError:
            return  # counted by the client; the chunk is fetched elsewhere in any case

    def _fail(self, job: _Job, reason: FailReason) -> None:
        self._on_failed(FetchFailed(job.deployment, job.chunk, job.peer, reason))


def _matches(job: _Job, command: CancelFetch) -> bool:
    return (job.peer, job.deployment, job.chunk) == (command.peer, command.deployment, command.chunk)
