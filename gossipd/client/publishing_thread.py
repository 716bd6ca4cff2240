"""The thread beside a job in which its publications are made, one after the other.

What lives here: the thread, which of the publications that wait are left out, and what a fork and a pickle have of it.
What does not: publishing (``client``).

A child after ``fork`` has no thread but the one that forked, and a lock may be held there for ever by one that it does
not have. So it begins with nothing: what its parent has ordered is its parent's. The workers of a torch ``DataLoader``
are such children, or, with ``spawn``, are sent the client as a pickle.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

_T = TypeVar("_T")


class PublishingThread:
    """Of one client and one process."""

    def __init__(self) -> None:
        self.begin_again()
        _THREADS.add(self)

    def __reduce__(self) -> tuple[type[PublishingThread], tuple[()]]:
        return PublishingThread, ()

    def begin_again(self) -> None:
        """Forget thread and orders: they are the parent's."""
        self._lock = Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._waiting: dict[str, Future[Any]] = {}

    def submit(self, name: str, publish: Callable[[], _T]) -> Future[_T]:
        """Publish when those before are done; one of the same name that has not begun is cancelled."""
        with self._lock:
            if self._executor is None:
                from concurrent.futures import ThreadPoolExecutor  # some milliseconds that most clients do not need

                self._executor = ThreadPoolExecutor(1, thread_name_prefix="gossipd-publish")
            before = self._waiting.pop(name, None)
            if before is not None:
                before.cancel()  # without effect when it has begun
            future = self._executor.submit(publish)
            self._waiting[name] = future
        return future


_THREADS: WeakSet[PublishingThread] = WeakSet()


def _after_fork() -> None:
    for thread in list(_THREADS):
        thread.begin_again()


os.register_at_fork(after_in_child=_after_fork)
