"""A pool of threads that grows while work waits and shrinks to one thread at rest.

What lives here: handing out work, starting and ending threads. What does not: the work (``daemon.executor``), and the
blocking calls of the event loop (``worker_threads``).

A thread is started by a worker and never by the submitter, which is the event loop: starting a thread waits until that
thread runs, which takes long under full load. One idle thread is kept ready for that. Rejected: the standard library's
pool, which starts threads in ``submit`` and keeps all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeAlias

import structlog

from gossipd.runtime.thread_priority import lower_priority

IDLE_S = 30.0  # longer than the pauses within a deployment
_Job: TypeAlias = tuple[Callable[..., None], tuple[object, ...]]
log = structlog.get_logger("worker_pool")


class _Reporting:
    """Tells what its block raises, and ends it there: every bug is told, and the work of others goes on."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if isinstance(error, Exception):
            self._failed(error)
        return isinstance(error, Exception)


class WorkerPool:
    """Threads of lower priority than the event loop's."""

    def __init__(
        self, threads_max: int, name: str, failed: Callable[[Exception], None], *, idle_s: float = IDLE_S
    ) -> None:
        """``failed`` is told, in the worker's thread, what a job raises; the thread goes on."""
        self._threads_max = threads_max
        self._name = name
        self._failed = failed
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._idle = 0
        self._is_closed = False
        self._threads: set[threading.Thread] = set()
        self._start_thread()

    def __len__(self) -> int:
        """Threads that there are now."""
        return len(self._threads)

    def submit(self, work: Callable[..., None], *what: object) -> None:
        """Have ``work(*what)`` done; after ``close`` nothing happens. Never blocks."""
        if self._is_closed:
            log.debug("too late for more work", pool=self._name)
            return
        self._jobs.put((work, what))

    def close(self) -> None:
        """Drop the work that has not begun, and wait until the rest is done and every thread has ended."""
        with self._lock:
            self._is_closed = True
            threads = list(self._threads)
        for _ in threads:
            self._jobs.put(None)
        for thread in threads:
            thread.join()

    def _run(self) -> None:
        lower_priority()
        while (job := self._next_job()) is not None:
            work, what = job
            with _Reporting(self._failed):
                work(*what)

    def _next_job(self) -> _Job | None:
        """None when this thread has to end."""
        while True:
            with self._lock:
                self._idle += 1
            try:
                job = self._jobs.get(timeout=self._idle_s)
            except Empty:
                job = None
            with self._lock:
                self._idle -= 1
                if self._is_closed or (job is None and self._idle):
                    self._threads.discard(threading.current_thread())
                    return None
                is_wanted = job is not None and not self._idle and len(self._threads) < self._threads_max
            if is_wanted:
                self._start_thread()
            if job is not None:
                return job

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        with self._lock:
            if self._is_closed or len(self._threads) >= self._threads_max:
                return
            self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:  # the system's limit on threads: the pool makes do with those that there are
            log.warning("fewer threads than wanted", pool=self._name, threads=len(self._threads) - 1)
            with self._lock:
                self._threads.discard(thread)
