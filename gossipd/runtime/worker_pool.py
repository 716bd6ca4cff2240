"""A pool of threads that grows while work waits and shrinks to one thread at rest.

What lives here: handing out work, starting and ending threads. What does not: the work (``daemon.planner_executor``),
and the blocking calls of the event loop (``worker_threads``).

A thread is started by a worker and never by the submitter, which is the event loop: starting a thread waits until that
thread runs, which takes long under full load. One idle thread is kept ready for that. Each idle thread waits for a lock
of its own, so work wakes one thread, once; the last that fell idle goes first, as its caches are warm and the others
can end. The event loop queues work during its turn and wakes threads at the end, when it gives up the interpreter's
lock, for which they would wait at once otherwise.

Rejected: the standard library's pool, which starts threads in ``submit`` and keeps all of them; its SimpleQueue, which
wakes a second thread for each that it gives work to.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from gossipd.runtime.logs import get_logger
from gossipd.runtime.named_thread import NamedThread
from gossipd.runtime.system_refusals import NO_THREADS, NoThreadError
from gossipd.runtime.thread_priority import lower_priority

IDLE_S = 30.0  # longer than the pauses within a deployment
_Job: TypeAlias = tuple[Callable[..., None], tuple[object, ...]]
log = get_logger("worker_pool")


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
        """``failed`` is told, in the worker's thread, what a job raises; the thread goes on. Raises NoThreadError."""
        self._threads_max = threads_max
        self._name = name
        self._failed = failed
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._jobs: deque[_Job] = deque()
        self._unannounced = 0  # of them, those for which no thread was woken
        self._idle: list[threading.Lock] = []
        self._is_closed = False
        self._workers: set[threading.Thread] = set()
        if not self._start_thread():
            raise NoThreadError(NO_THREADS)  # later ones are started by workers

    def __len__(self) -> int:
        """Threads that there are now."""
        return len(self._workers)

    def submit(self, work: Callable[..., None], *what: object) -> None:
        """Have ``work(*what)`` done; after ``close`` nothing happens. Never blocks."""
        self.queue(work, *what)
        self.wake()

    def queue(self, work: Callable[..., None], *what: object) -> None:
        """``submit``, but an idle thread begins only at the next ``wake``. Never blocks."""
        if self._is_closed:
            log.debug("too late for more work", pool=self._name)
            return
        with self._lock:
            self._jobs.append((work, what))
            self._unannounced += 1

    def wake(self) -> None:
        """Have idle threads begin what was queued. Never blocks."""
        if not self._unannounced:
            return
        with self._lock:
            for _ in range(min(self._unannounced, len(self._jobs), len(self._idle))):
                self._idle.pop().release()
            self._unannounced = 0

    def close(self) -> None:
        """Drop the work that has not begun, and wait until the rest is done and every thread has ended."""
        with self._lock:
            self._is_closed = True
            threads = list(self._workers)
            while self._idle:
                self._idle.pop().release()
        for thread in threads:
            thread.join()

    def _run(self) -> None:
        lower_priority()
        woken = threading.Lock()
        woken.acquire()
        while (job := self._next_job(woken)) is not None:
            work, what = job
            with _Reporting(self._failed):
                work(*what)

    def _next_job(self, woken: threading.Lock) -> _Job | None:
        """None when this thread has to end. ``woken``: the thread's own, held; who releases it wakes the thread."""
        while True:
            with self._lock:
                if self._is_closed:
                    self._workers.discard(threading.current_thread())
                    return None
                if self._jobs:
                    job = self._jobs.popleft()
                    is_wanted = not self._idle and len(self._workers) < self._threads_max
                    break
                idle_s = self._idle_s if self._idle else -1  # one stays, the last that is woken
                self._idle.append(woken)
            if not woken.acquire(timeout=idle_s) and self._is_surplus(woken):
                return None
        if is_wanted:
            self._start_thread()
        return job

    def _is_surplus(self, woken: threading.Lock) -> bool:
        """Whether a thread that waited in vain ends, as it was not woken at the last moment."""
        with self._lock:
            if woken not in self._idle:
                woken.acquire()  # released since the time was over
                return False
            self._idle.remove(woken)
            self._workers.discard(threading.current_thread())
            return True

    def _start_thread(self) -> bool:
        """False when the system refuses one: the pool makes do with those that there are."""
        thread = NamedThread(target=self._run, name=self._name, daemon=True)
        with self._lock:
            if self._is_closed or len(self._workers) >= self._threads_max:
                return True
            self._workers.add(thread)
        try:
            thread.start()
        except NoThreadError:
            with self._lock:
                self._workers.discard(thread)
            return False
        return True
